//! Pages that keep up with the queue.

use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::http::Request;
use delayline_web::{Access, Dashboard, Role, Router};
use futures_util::StreamExt as _;
use tower::ServiceExt as _;

use crate::support::{get, let_die, open, orders, post, send, send_later, site};
use crate::trouble::Counted;

/// The events of a page.
async fn events(site: &Router, page: &str) -> BodyDataStream {
    let page = get(site, page).await.status(200);
    let (_, live) = page.text().split_once("data-live=\"").unwrap();
    let address = format!("/{}", live.split_once('"').unwrap().0.replace("&amp;", "&"));
    let request = Request::get(address).body(Body::empty()).unwrap();
    let response = site.clone().oneshot(request).await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    assert_eq!(response.headers()["cache-control"], "no-store");
    response.into_body().into_data_stream()
}

/// The stamp of the next event.
async fn changed(events: &mut BodyDataStream) -> String {
    let text = events.next().await.unwrap().unwrap();
    let text = std::str::from_utf8(&text).unwrap();
    let stamp = text.strip_prefix("event: changed\ndata: ").and_then(|it| it.strip_suffix("\n\n"));
    stamp.unwrap_or_else(|| panic!("{text:?}")).to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_page_is_told_when_its_queue_has_changed() {
    let queue = orders().await;
    let site = site(&queue, Role::Viewer);
    for page in ["/queues", "/queue?queue=orders"] {
        let mut events = events(&site, page).await;
        let start = tokio::time::Instant::now();
        // Its ages grow, and nothing in between takes the connection for dead.
        let first = changed(&mut events).await;
        assert_eq!(start.elapsed().as_secs(), 15);
        assert_eq!(changed(&mut events).await, first);
        queue.pause().await.unwrap();
        let before = tokio::time::Instant::now();
        assert_ne!(changed(&mut events).await, first);
        let most = Duration::from_secs(if page == "/queues" { 5 } else { 2 });
        assert!(before.elapsed() <= most, "{:?}", before.elapsed());
        get(&site, &format!("{page}{}live=1", if page.contains('?') { '&' } else { '?' }))
            .await
            .status(200)
            .has("paused");
        queue.resume().await.unwrap();
        changed(&mut events).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_changed_before_the_page_listened_is_told_at_once() {
    let queue = orders().await;
    let site = site(&queue, Role::Viewer);
    let request = Request::get("/live?queue=orders&since=old").body(Body::empty()).unwrap();
    let response = site.clone().oneshot(request).await.unwrap();
    let mut events = response.into_body().into_data_stream();
    let start = tokio::time::Instant::now();
    assert_ne!(changed(&mut events).await, "old");
    assert!(start.elapsed() < Duration::from_secs(1));
    // It ends some time, and the browser shows again who it is.
    while events.next().await.is_some() {}
    assert!(start.elapsed() < Duration::from_secs(310));
    get(&site, "/live?queue=unknown").await.status(404);
}

#[tokio::test(start_paused = true)]
async fn a_page_that_shows_an_action_is_not_replaced_by_an_older_one() {
    let queue = orders().await;
    let site = site(&queue, Role::Operator);
    // Another visitor's page has had the queue counted a moment ago.
    for page in ["/queues?", "/queue?queue=orders"] {
        get(&site, &format!("{page}&live=1")).await.status(200).lacks("paused");
        let next = post(&site, "/pause?queue=orders", "").await.leads_to();
        get(&site, &next).await.status(200).has("paused");
        get(&site, &format!("{page}&live=1")).await.status(200).has("paused");
        queue.resume().await.unwrap();
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_ages_history_and_forecast_of_an_open_page_do_not_grow_old() {
    let queue = orders().await;
    let site = site(&queue, Role::Viewer);
    let live = async || get(&site, "/queue?queue=orders&live=1").await.status(200);
    get(&site, "/queue?queue=orders").await.status(200);
    for part in ["counts", "line", "turns", "totals"] {
        live().await.has(&format!("data-part=\"{part}\""));
    }
    let_die(&queue, &["order-1"], "no").await;
    live().await.has("Nothing happened");
    tokio::time::sleep(Duration::from_secs(11)).await;
    live().await.has("<strong>1</strong> delivered").has("class=\"p99\"").lacks("Nothing happened");
}

#[tokio::test(start_paused = true)]
async fn fifty_pages_cost_what_one_costs() {
    let (counted, queue) = Counted::on(&orders().await);
    let site = site(&queue, Role::Viewer);
    let mut pages = Vec::new();
    for _ in 0..50 {
        pages.push(events(&site, "/queue?queue=orders").await);
    }
    let before = counted.count("stats");
    let start = tokio::time::Instant::now();
    send(&queue, "order-1", "1").await;
    for page in &mut pages {
        changed(page).await;
        get(&site, "/queue?queue=orders&live=1").await.status(200).has("1 ready");
    }
    let seconds = start.elapsed().as_secs();
    let times = counted.count("stats") - before;
    assert!(times <= seconds + 2, "counted {times} times in {seconds} s");
}

#[tokio::test(start_paused = true)]
async fn a_row_costs_two_commands_in_five_seconds_for_all_who_see_it() {
    let (counted, queue) = Counted::on(&orders().await);
    let site = site(&queue, Role::Viewer);
    let mut pages = Vec::new();
    for _ in 0..10 {
        pages.push(events(&site, "/queues").await);
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = counted.all() - counted.count("enqueue");
    let start = tokio::time::Instant::now();
    while start.elapsed() < Duration::from_secs(120) {
        send(&queue, &format!("{:?}", start.elapsed()), "1").await;
        for page in &mut pages {
            changed(page).await;
            get(&site, "/queues?live=1").await.status(200);
        }
    }
    let all = counted.all() - counted.count("enqueue") - before;
    let seconds = start.elapsed().as_secs();
    assert!(all <= 2 * (seconds / 5 + 1), "{all} commands in {seconds} s");
    // Rows that are not shown cost nothing.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let before = counted.all();
    let mut other = events(&site, "/queues?name=texts").await;
    changed(&mut other).await;
    assert_eq!(counted.all(), before);
}

#[tokio::test(start_paused = true)]
async fn a_row_knows_nothing_from_the_last_time_that_its_page_was_open() {
    let connection = delayline::connect("memory:").await.unwrap();
    let orders = open(&connection, "orders").await;
    // The messages are taken, but by no listed worker.
    let_die(&orders, &["order-1"], "no").await;
    let minute_ago = std::time::SystemTime::now() - Duration::from_secs(60);
    let draft = orders.message(&delayline::Bytes::from_static(b"1")).id("late").due_at(minute_ago);
    assert!(draft.send().await.unwrap().is_accepted());
    let dashboard = Dashboard::new(Access::everyone(Role::Viewer)).queue(orders.clone());
    let site = dashboard.workers(connection).router().unwrap();
    let row = async || {
        let page = get(&site, "/queues").await.status(200);
        let page = page.has("The queue falls behind.").lacks("no listed worker");
        let (_, due) = page.text().split_once("class=\"due\" d=\"").expect("a picture");
        due.split('"').next().unwrap().to_owned()
    };
    let nothing = row().await;
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    send_later(&orders, "order-2", 7_200).await;
    assert_ne!(row().await, nothing);
}

#[tokio::test(start_paused = true)]
async fn the_past_of_a_row_far_down_does_not_delay_the_page() {
    let (counted, queue) = Counted::on(&orders().await);
    counted.history_seconds.store(60, Ordering::SeqCst);
    let mut dashboard = Dashboard::new(Access::everyone(Role::Viewer)).queue(queue);
    let connection = delayline::connect("memory:").await.unwrap();
    for number in 0..20 {
        dashboard = dashboard.queue(open(&connection, &format!("a-{number}")).await);
    }
    let site = dashboard.router().unwrap();
    let start = tokio::time::Instant::now();
    let pictures = async || {
        let page = get(&site, "/queues?live=1").await.status(200).has("queue?queue=orders");
        page.text().matches("class=\"spark\"").count()
    };
    assert_eq!(pictures().await, 20);
    let mut events = events(&site, "/queues").await;
    let first = changed(&mut events).await;
    assert!(start.elapsed() < Duration::from_secs(20));
    while changed(&mut events).await == first {}
    assert!(start.elapsed() < Duration::from_secs(70));
    assert_eq!(pictures().await, 21);
}
