//! Queues that were found on the server, not added by name.

use std::time::Duration;

use delayline::{Connect, Connection};
use delayline_test_server::{Reply, Server};
use delayline_web::{Access, Dashboard, Role, Router};
use futures_util::future::join_all;

use crate::support::{call, get, open, post, send};

fn site(connection: &Connection) -> Router {
    Dashboard::new(Access::everyone(Role::Operator)).discover(connection.clone()).router().unwrap()
}

#[tokio::test(start_paused = true)]
async fn queues_are_found_and_new_ones_appear_within_a_minute() {
    let connection = delayline::connect("memory:").await.unwrap();
    let site = site(&connection);
    let page = get(&site, "/queues").await.status(200).has("There are no queues here.");
    page.has("The list of queues was read 0 ms ago");
    let orders = open(&connection, "orders").await;
    send(&orders, "order-1", "1").await;
    get(&site, "/queues").await.status(200).lacks("queue?queue=orders");
    get(&site, "/queue?queue=orders").await.status(404);
    tokio::time::advance(Duration::from_secs(61)).await;
    get(&site, "/queues").await.status(200).has("queue?queue=orders").has("1 ready");
    get(&site, "/queue?queue=orders").await.status(200).has("1 ready");
    get(&site, "/metrics").await.status(200).has(r#"delayline_queue_up{queue="orders"} 1"#);
    let metrics = get(&site, "/metrics").await.status(200);
    drop(metrics.has("\ndelayline_discovery_complete 1\n"));
    let list = call(&site, "GET", "/queues", "").await.status(200).json();
    let expected = serde_json::json!({
        "queues": ["orders"], "age_seconds": 0, "complete": true, "failure": null
    });
    assert_eq!(list, expected);
    post(&site, "/pause?queue=orders", "").await.leads_to();
    assert!(orders.stats().await.unwrap().paused);
    get(&site, "/health").await.status(200);
    // The first message of a queue makes it.
    let send = async |name: &str, body: &str| {
        call(&site, "POST", &format!("/queues/{name}/messages"), body).await
    };
    send("fresh", r#"{"payload": 1, "delay": "soon"}"#).await.status(400);
    send("fresh%20", r#"{"payload": 1}"#).await.status(400);
    call(&site, "GET", "/queues/fresh", "").await.status(404);
    send("fresh", r#"{"payload": 1}"#).await.status(201);
    let fresh = call(&site, "GET", "/queues/fresh", "").await.status(200).json();
    assert_eq!(fresh["ready"], 1);
    get(&site, "/queues").await.status(200).has("queue?queue=fresh");
    call(&site, "POST", "/queues/misspelt/pause", "").await.status(404);
    // So do its limits, if the client says so.
    let limit = async |body| call(&site, "POST", "/queues/calls/limits", body).await;
    limit(r#"{"leased": 3}"#).await.status(404);
    limit(r#"{"leased": 3, "create": true}"#).await.status(200);
    let calls = call(&site, "GET", "/queues/calls", "").await.status(200).json();
    assert_eq!(calls["limits"]["leased"], 3);
    for wrong in ["a%20b", "", "%00", "absent", "%3Cscript%3E"] {
        get(&site, &format!("/queue?queue={wrong}")).await.status(404).lacks("<script>");
        call(&site, "GET", &format!("/queues/{wrong}"), "").await.status(404);
    }
}

#[tokio::test]
async fn the_api_finds_a_queue_that_is_not_in_the_list_yet() {
    let server = Server::start();
    for url in ["memory:", &server.url()] {
        let connection = Connect::new(url).unwrap().connect().await.unwrap();
        let site = site(&connection);
        get(&site, "/queues").await.status(200);
        send(&open(&connection, "orders").await, "order-1", "1").await;
        call(&site, "DELETE", "/queues/misspelt/messages/order-1", "").await.status(404);
        call(&site, "DELETE", "/queues/orders/messages/order-1", "").await.status(200);
        assert_eq!(connection.queues().await.unwrap(), ["orders".parse().unwrap()]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_was_added_stays_and_too_many_are_counted() {
    let connection = delayline::connect("memory:").await.unwrap();
    let elsewhere = delayline::connect("memory:").await.unwrap();
    let mine = open(&elsewhere, "zzz").await;
    send(&mine, "order-1", "1").await;
    for number in 0..1_003 {
        open(&connection, &format!("queue-{number:04}")).await;
    }
    open(&connection, "zzz").await;
    let dashboard = Dashboard::new(Access::everyone(Role::Viewer)).queue(mine);
    let site = dashboard.discover(connection).router().unwrap();
    let page = get(&site, "/queues?page=5").await.status(200);
    let page = page.has("queue?queue=queue-0999").lacks("queue-1000");
    page.has("At most 1000 queues are looked for, and 3 more were found.");
    get(&site, "/queue?queue=zzz").await.status(200).has("1 ready");
    let list = call(&site, "GET", "/queues", "").await.status(200).json();
    assert_eq!(
        (list["queues"].as_array().unwrap().len(), &list["complete"]),
        (1_001, &false.into())
    );
    // The page says that the list is incomplete, and how old it is.
    tokio::time::advance(Duration::from_secs(30)).await;
    let metrics = get(&site, "/metrics").await.status(200);
    let metrics = metrics.has("\ndelayline_discovery_complete 0\n");
    drop(metrics.has("\ndelayline_discovery_age_seconds 30\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_page_loads_each_script_once() {
    let server = Server::start();
    let connection = Connect::new(&server.url()).unwrap().connect().await.unwrap();
    for number in 0..40 {
        send(&open(&connection, &format!("queue-{number}")).await, "a", "1").await;
    }
    server.command(&["SCRIPT", "FLUSH"]);
    server.command(&["CONFIG", "RESETSTAT"]);
    get(&site(&connection), "/queues").await.status(200).has("queue?queue=queue-39");
    // Get, stats, history and forecast.
    assert!(server.info("commandstats", "cmdstat_eval").starts_with("calls=4,"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_queues_cannot_be_opened_is_not_ready() {
    let server = Server::start();
    let connection = Connect::new(&server.url()).unwrap().connect().await.unwrap();
    server.command(&["SET", "delayline:{future}:control", &"x".repeat(100)]);
    let site = site(&connection);
    get(&site, "/ready").await.status(503).has("no queue can be opened");
    send(&open(&connection, "orders").await, "order-1", "1").await;
    get(&self::site(&connection), "/ready").await.status(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repair_of_many_entries_in_one_place_can_be_continued() {
    let server = Server::start();
    let connection = Connect::new(&server.url()).unwrap().connect().await.unwrap();
    send(&open(&connection, "orders").await, "order-1", "1").await;
    for n in 0..250 {
        let stray = format!("12345678stray-{n}");
        server.command(&["ZADD", "delayline:{orders}:index", "1e18", &stray]);
    }
    let admin = Dashboard::new(Access::everyone(Role::Admin)).discover(connection);
    let page = post(&admin.router().unwrap(), "/repair?queue=orders", "sure=yes").await;
    page.status(200).has("200 faults repaired").has("Continue");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_visitors_cost_one_search_and_a_server_that_is_away_is_told() {
    let server = Server::builder().append_only("always").start();
    let connection = Connect::new(&server.url()).unwrap().connect().await.unwrap();
    let scans = || match server.command(&["INFO", "commandstats"]) {
        Reply::BulkString(text) => {
            let text = String::from_utf8(text).unwrap();
            let calls = text.split_once("cmdstat_scan:calls=").map(|(_, rest)| rest.to_owned());
            calls.map_or(0, |it| it.split(',').next().unwrap().parse::<u64>().unwrap())
        }
        other => panic!("{other:?}"),
    };
    send(&open(&connection, "orders").await, "order-1", "1").await;
    let busy = site(&connection);
    for answer in join_all((0..50).map(|_| get(&busy, "/queues"))).await {
        answer.status(200).has("queue?queue=orders");
    }
    get(&busy, "/metrics").await.status(200).has(r#"{queue="orders"} 1"#);
    assert_eq!(scans(), 1);

    // A dashboard that begins while the server is down, and one that knows its queues.
    server.kill();
    let late = site(&connection);
    get(&late, "/health").await.status(503);
    get(&late, "/ready").await.status(503).has("cannot be listed");
    let metrics = get(&late, "/metrics").await.status(200);
    let metrics = metrics.has("\ndelayline_discovery_complete 0\n");
    drop(metrics.lacks("\ndelayline_discovery_age_seconds "));
    let told = async {
        while !get(&late, "/queues").await.status(200).text().contains("cannot be listed") {}
    };
    tokio::time::timeout(Duration::from_secs(60), told).await.expect("it says so");
    let list = call(&late, "GET", "/queues", "").await.status(200).json();
    assert!(list["failure"].is_string() && list["complete"] == false, "{list}");
    get(&busy, "/queues").await.status(200).has("queue?queue=orders");
    // Where the server is, operators see.
    let viewed = Dashboard::new(Access::everyone(Role::Viewer)).discover(connection.clone());
    let viewed = viewed.router().unwrap();
    let told = async {
        while !get(&viewed, "/queues").await.status(200).text().contains("cannot be listed") {}
    };
    tokio::time::timeout(Duration::from_secs(60), told).await.expect("it says so");
    assert!(list["failure"].as_str().unwrap().contains("redis.sock"), "{list}");
    get(&late, "/queues").await.has("redis.sock");
    get(&viewed, "/queues").await.has("cannot be listed").lacks("redis.sock");
    call(&viewed, "GET", "/queues", "").await.has("cannot be reached").lacks("redis.sock");

    server.restart();
    let there = async { while get(&late, "/queue?queue=orders").await.status != 200 {} };
    tokio::time::timeout(Duration::from_secs(60), there).await.expect("it is back");
    get(&late, "/queues").await.status(200).has("1 ready").lacks("cannot be listed");
    get(&late, "/health").await.status(200);
}
