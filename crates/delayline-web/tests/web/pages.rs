//! What pages show.

use std::time::Duration;

use axum::Router;
use delayline::message::Priority;
use delayline::{Bytes, Job, Outcome, Worker};
use delayline_web::{Access, BuildError, Dashboard, Role};

use crate::api::permits;
use crate::support::{get, let_die, open, orders, post, send, send_later, site};
use crate::trouble::Trouble;

#[tokio::test]
async fn the_overview_counts_every_queue() {
    let connection = delayline::connect("memory:").await.unwrap();
    let (orders, texts) = (open(&connection, "orders").await, open(&connection, "a/b:c").await);
    send(&orders, "one", "1").await;
    send_later(&orders, "two", 3_600).await;
    texts.pause().await.unwrap();
    let dashboard = Dashboard::new(Access::everyone(Role::Viewer)).queue(orders).queue(texts);
    let site = dashboard.router().unwrap();
    let page = get(&site, "/queues").await.status(200);
    let page = page.has("queue?queue=orders").has("queue?queue=a%2Fb%3Ac").has("paused");
    let page = page.has("1 scheduled, 1 ready, 0 leased, 0 dead").has("due ").has("nothing to do");
    page.has("All 2 queues keep up.").has("<title>Queues - ").lacks("messages?state=leased");
    let page = get(&site, "/queues?name=ORD").await.status(200).has("The queue keeps up.");
    page.has("queue?queue=orders").lacks("a%2Fb%3Ac").has("value=\"ORD\"");
    get(&site, "/queues?name=%3Cb%3E").await.status(200).has("No queue has this name.");
}

#[tokio::test(start_paused = true)]
async fn the_first_page_says_in_a_line_what_is_wrong_and_begins_with_it() {
    let backend = delayline::connect("memory:").await.unwrap();
    let queues = futures_util::future::join_all(
        ["late", "paused", "unhandled", "well"].map(|name| open(&backend, name)),
    )
    .await;
    let dashboard = Dashboard::new(Access::everyone(Role::Viewer)).workers(backend.clone());
    let silent = Trouble::is_away(&open(&backend, "silent").await);
    let site = queues.iter().cloned().chain([silent]).fold(dashboard, Dashboard::queue);
    let site = site.router().unwrap();
    let minute_ago = std::time::SystemTime::now() - Duration::from_secs(60);
    for queue in &queues[..3] {
        let draft = queue.message(&Bytes::from_static(b"1")).id("a").due_at(minute_ago);
        assert!(draft.send().await.unwrap().is_accepted());
    }
    queues[1].pause().await.unwrap();
    let start = tokio::time::Instant::now();
    let page = get(&site, "/queues").await.status(200).has("<title>(3) Queues - ").has("trouble-");
    assert!(start.elapsed() < Duration::from_secs(3), "one time limit of a queue that is silent");
    let page = page.has("1 of 5 queues cannot be read, 2 have no listed worker, 1 is stopped with");
    let order: Vec<_> = ["silent", "late", "unhandled", "paused", "well"]
        .map(|name| page.text().find(&format!("data-part=\"row {name}\"")).unwrap())
        .to_vec();
    assert!(order.is_sorted(), "{order:?}");
    get(&site, "/queue?queue=late")
        .await
        .status(200)
        .has("No listed process has workers for this queue.");
}

#[tokio::test]
async fn a_thousand_queues_have_pages() {
    let connection = delayline::connect("memory:").await.unwrap();
    let mut dashboard = Dashboard::new(Access::everyone(Role::Viewer));
    for number in 0..1_000 {
        dashboard = dashboard.queue(open(&connection, &format!("queue-{number:03}")).await);
    }
    let site = dashboard.router().unwrap();
    let page = get(&site, "/queues?page=5").await.status(200).has("All 1000 queues keep up.");
    page.has("queue?queue=queue-999").lacks("queue?queue=queue-799").has("page=1\"");
    // There were more queues a moment ago.
    get(&site, "/queues?page=6").await.status(200).has("queue?queue=queue-999");
}

#[tokio::test]
async fn a_dashboard_without_queues_says_so() {
    let site = Dashboard::new(Access::everyone(Role::Viewer)).router().unwrap();
    get(&site, "/queues").await.status(200).has("There are no queues here.");
}

#[tokio::test]
async fn a_name_stands_for_one_queue() {
    let orders = orders().await;
    let dashboard = Dashboard::new(Access::everyone(Role::Viewer));
    let error = dashboard.queue(orders.clone()).queue(orders).router().unwrap_err();
    assert_eq!(error, BuildError::Twice { name: "orders".to_owned() });
}

#[tokio::test]
async fn a_queue_leads_to_its_messages() {
    let orders = orders().await;
    send_later(&orders, "order-1", 90).await;
    let site = site(&orders, Role::Viewer);
    let page = get(&site, "/queue?queue=orders").await.status(200);
    page.has("messages?state=scheduled&amp;queue=orders").has("\"dead?queue=orders\"");
    let page = get(&site, "/messages?state=scheduled&queue=orders").await.status(200);
    page.has("message?queue=orders&amp;id=order-1").has("in 1 min").has(" UTC</time>");
    get(&site, "/messages?state=ready&queue=orders").await.status(200).has("There are none.");
    let none = get(&site, "/messages?state=leased&queue=orders").await.status(200);
    none.has("There are none.").lacks("Leases: ");
    get(&site, "/messages?queue=orders").await.status(200).has("order-1");
}

/// Where the first link of the picture leads that begins like this.
fn step<'a>(page: &'a str, begins: &str) -> &'a str {
    let (_, picture) = page.split_once("class=\"field\"").unwrap();
    let (_, rest) = picture.split_once(&format!("<a href=\"{begins}?queue=orders&amp;")).unwrap();
    rest.split('"').next().unwrap()
}

#[tokio::test]
async fn a_queue_shows_what_falls_due() {
    let orders = orders().await;
    send(&orders, "order-0", "1").await;
    for n in 0..1_234 {
        send_later(&orders, &format!("order-{}", n + 1), 7_200).await;
    }
    let site = site(&orders, Role::Viewer);
    for (span, due, later) in [("1h", "0", "1,234"), ("6h", "1,234", "0"), ("31d", "1,234", "0")] {
        let page = get(&site, &format!("/queue?queue=orders&span={span}")).await.status(200);
        let page = page.has(&format!("<strong>{due}</strong> fall due, {later} later."));
        assert_eq!(page.text().contains("class=\"due\""), later == "0", "{span}");
    }
    let page = get(&site, "/queue?queue=orders").await.has("\n1,234 fall due</title>");
    let to =
        format!("/messages?queue=orders&{}", step(page.text(), "messages").replace("&amp;", "&"));
    get(&site, &to).await.status(200).has("<strong>1,234</strong>").has(">order-1<");
}

#[tokio::test]
async fn a_queue_shows_what_was_delivered_and_how_late() {
    let orders = orders().await;
    let site = site(&orders, Role::Viewer);
    let nothing = "Nothing happened, and nothing falls due.";
    get(&site, "/queue?queue=orders").await.status(200).has(nothing).lacks("class=\"hit\" href");
    let_die(&orders, &["a", "b", "c"], "no").await;
    let page = get(&site, "/queue?queue=orders").await.status(200).lacks(nothing);
    let page = page.has("<strong>3</strong> delivered, 0 acked, 3 failed").has("class=\"failed\"");
    let page =
        page.has("3 sent, 3 delivered, 0 acked, 3 failed, 3 died\n0 waiting\nlate: 50 % below ");
    let to = format!("/dead?queue=orders&{}", step(page.text(), "dead").replace("&amp;", "&"));
    get(&site, &to).await.status(200).has("id=a\"").has("id=c\"");
    get(&site, "/queues").await.status(200).has("0 scheduled, 0 ready, 0 leased, 3 dead");
}

#[tokio::test]
async fn long_lists_have_pages() {
    let orders = orders().await;
    for n in 0..70 {
        send_later(&orders, &format!("order-{n:02}"), 100 + n).await;
    }
    let site = site(&orders, Role::Viewer);
    let first = get(&site, "/messages?queue=orders&state=scheduled").await.status(200);
    let first = first.has(">order-49<").lacks(">order-50<").lacks("First page");
    let (_, rest) = first.text().split_once(r#"rel="next" href=""#).unwrap();
    let next = rest.split('"').next().unwrap().replace("&amp;", "&");
    let second = get(&site, &format!("/{next}")).await.status(200);
    second.lacks(">order-49<").has(">order-50<").has(">order-69<").has("First page");
}

#[tokio::test]
async fn a_message_is_shown_with_all_that_is_known() {
    let orders = orders().await;
    let draft = orders.message(&Bytes::from_static(br#"{"total":9}"#)).id("order-1");
    let draft = draft.due_in(Duration::from_millis(3_599_900)).priority(Priority::High);
    let draft = draft.header("shop", "9").header("bytes", &b"\xff\x00"[..]);
    assert!(draft.send().await.unwrap().is_accepted());
    let site = site(&orders, Role::Operator);
    let page = get(&site, "/message?queue=orders&id=order-1").await.status(200);
    let page = page.has("It is due in 59 min ").has("high").has("0/20").has("0/5").has("0xff00");
    let page = page.has("{\n  &quot;total&quot;: 9\n}").has("Run now").has("Cancel...");
    page.lacks("Redrive").lacks("Delete");
    let page = get(&site, "/message?queue=orders&id=order-1&as=hex").await.status(200);
    page.has("00000000  7b 22 74 6f 74 61 6c 22  3a 39 7d");
    let file = get(&site, "/content?queue=orders&id=order-1").await.status(200);
    assert_eq!((file.text(), file.header("content-type")), (r#"{"total":9}"#, OCTETS));
    assert!(file.header("content-disposition").starts_with("attachment"));
}

#[tokio::test]
async fn a_message_shows_its_latest_attempts() {
    let orders = orders().await;
    let site = site(&orders, Role::Viewer);
    let draft = orders.message(&Bytes::from_static(b"1")).id("order-1").max_failures(9);
    assert!(draft.send().await.unwrap().is_accepted());
    get(&site, "/message?queue=orders&id=order-1").await.status(200).lacks("failed\"");
    let worker = Worker::builder(orders.clone()).until_empty(true).build().unwrap();
    let handler = async |job: Job<Bytes>| {
        let error = format!("<failure> {}", job.failures() + 1);
        Ok::<_, std::io::Error>(Outcome::retry_in(Duration::ZERO, error))
    };
    worker.run(handler).await;

    let uri = "/api/v1/queues/orders/messages/order-1";
    let json = get(&site, uri).await.status(200).json();
    let document = get(&site, "/api/v1/openapi.json").await.json();
    let schema = document.pointer("/components/schemas/Message").unwrap();
    assert!(permits(&document, schema, &json), "{json}");
    let attempts = json["attempts"].as_array().unwrap();
    let errors: Vec<_> = attempts.iter().map(|it| it["error"].as_str().unwrap()).collect();
    let expected: Vec<_> = (2..=9).map(|n| format!("<failure> {n}")).collect();
    assert_eq!(errors, expected);
    assert!(attempts.iter().all(|it| it["outcome"] == "failed"), "{json}");
    let page = get(&site, "/message?queue=orders&id=order-1").await.status(200);
    let (_, shown) = page.text().split_once("The latest 8 attempts that did").unwrap();
    let shown: Vec<_> =
        shown.split("&lt;failure&gt; ").skip(1).take(8).map(|it| &it[..1]).collect();
    assert_eq!(shown, ["2", "3", "4", "5", "6", "7", "8", "9"], "in the order of the life");
}

#[tokio::test]
async fn what_is_gone_is_told_apart_from_what_never_was() {
    let orders = orders().await;
    send(&orders, "order-1", "1").await;
    orders.cancel("order-1").await.unwrap();
    let site = site(&orders, Role::Operator);
    get(&site, "/message?queue=orders&id=order-1").await.status(200).has("It was cancelled.");
    get(&site, "/message?queue=orders&id=order-2").await.status(200).has("does not know it");
    get(&site, "/content?queue=orders&id=order-1").await.status(404);
}

#[tokio::test]
async fn a_check_looks_at_every_message() {
    let orders = orders().await;
    for n in 0..250 {
        send_later(&orders, &n.to_string(), 60).await;
    }
    let site = site(&orders, Role::Operator);
    let page = get(&site, "/check?queue=orders").await.status(200);
    page.has("250 messages examined, nothing is wrong.").lacks("Continue").lacks("Repair");
    let page = get(&site, "/check?queue=orders&after=0:0:0").await.status(200);
    page.has("250 messages examined");
    get(&site, "/check?queue=orders&after=0:0").await.status(400);
    // More than the calls of one click.
    let sent = orders.send_many((0..9_800).map(|_| orders.message(&Bytes::new()))).await;
    assert!(sent.iter().all(Result::is_ok));
    let page = get(&site, "/check?queue=orders").await.status(200);
    page.has("10,000 messages examined, nothing is wrong so far.").has("Continue");
}

#[tokio::test]
async fn a_list_is_not_led_astray() {
    let site = site(&orders().await, Role::Admin);
    for (uri, status) in [
        ("/queue", 404),
        ("/queue?queue=absent", 404),
        ("/messages?queue=orders&state=acked", 400),
        ("/messages?queue=orders&state=ready&after=dead", 400),
        ("/messages?queue=orders&after=x", 400),
        ("/dead?queue=orders&after=ready", 400),
        ("/message?queue=orders", 400),
        ("/message?queue=orders&id=", 400),
        ("/nowhere", 404),
        ("/pause?queue=orders", 405),
    ] {
        get(&site, uri).await.status(status).has("All queues");
    }
}

#[tokio::test]
async fn the_router_can_be_mounted_anywhere() {
    let orders = orders().await;
    let dashboard = || site(&orders, Role::Viewer);
    let mounts = [
        Router::new().nest("/admin/q", dashboard()),
        Router::new().nest("/admin", Router::new().nest("/q", dashboard())),
        Router::new().nest_service("/admin/q", dashboard()),
    ];
    for mount in mounts {
        let bare = get(&mount, "/admin/q").await.status(307);
        assert_eq!(bare.header("location"), "q/queues");
        let page = get(&mount, "/admin/q/queues").await.status(200);
        // No link leads anywhere but to a page next to it.
        for (_, rest) in page.text().match_indices("href=\"").map(|it| page.text().split_at(it.0)) {
            let link = rest.trim_start_matches("href=\"").split('"').next().unwrap();
            assert!(!link.starts_with('/') && !link.contains(".."), "{link}");
        }
        let (_, rest) = page.text().split_once(r#"rel="stylesheet" href=""#).unwrap();
        let style = rest.split('"').next().unwrap();
        let sheet = get(&mount, &format!("/admin/q/{style}")).await.status(200);
        assert!(sheet.header("cache-control").contains("immutable"));
        get(&mount, "/admin/q/queue?queue=orders").await.status(200);
        get(&mount, "/admin/q/api/v1/queues/orders").await.status(200);
        get(&mount, "/admin/q/nowhere").await.status(404);
    }
    let mount = Router::new().nest("/admin/q", dashboard());
    post(&mount, "/admin/q", "").await.status(405).has("href=\"q/queues\"").has("href=\"q/style-");
    for (below, up) in [("nowhere", ""), ("no/where/", "../../"), ("queue/x", "../")] {
        for site in [&mount, &Router::new().nest_service("/admin/q", dashboard())] {
            let page = get(site, &format!("/admin/q/{below}")).await.status(404);
            page.has(&format!("href=\"{up}queues\"")).has(&format!("href=\"{up}style-"));
        }
    }
    let service = Router::new().nest_service("/admin/q", dashboard());
    assert_eq!(get(&service, "/admin/q/").await.status(307).header("location"), "queues");
    assert_eq!(get(&dashboard(), "/").await.status(307).header("location"), "queues");
}

const OCTETS: &str = "application/octet-stream";
