//! The same on a real server, also while it is away.

use std::time::Duration;

use delayline::Connect;
use delayline_test_server::Server;
use delayline_web::Role;

use crate::support::{call, get, let_die, open, post, send, send_later, site};

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_shown_goes_away_and_comes_back() {
    let server = Server::builder().append_only("always").start();
    let connection = Connect::new(&server.url()).unwrap().connect().await.unwrap();
    let orders = open(&connection, "orders").await;
    let_die(&orders, &["bad-1", "bad-2"], "no such shop").await;
    send(&orders, "order-1", "{}").await;
    send_later(&orders, "order-2", 3_600).await;
    let site = site(&orders, Role::Admin);
    let counts = "1 scheduled, 1 ready, 0 leased, 2 dead";
    get(&site, "/queues").await.status(200).has(counts);
    get(&site, "/dead?queue=orders").await.status(200).has("bad-2").has("no such shop");
    get(&site, "/check?queue=orders").await.status(200).has("4 messages examined, nothing");
    post(&site, "/redrive?queue=orders", "scope=page&page=bad-1&page=bad-2").await.leads_to();
    post(&site, "/cancel?queue=orders&id=order-2", "sure=yes").await.leads_to();
    let message = r#"{"id":"order-3","payload":{"total":9},"delay":"1h"}"#;
    call(&site, "POST", "/queues/orders/messages", message).await.status(201);

    server.kill();
    get(&site, "/queues").await.status(200).has("orders").lacks("scheduled,");
    get(&site, "/health").await.status(503);
    let page = get(&site, "/queue?queue=orders").await;
    assert!(page.status.is_server_error(), "{page:?}");
    page.has("cannot be reached").has("All queues");
    let problem = call(&site, "GET", "/queues/orders", "").await;
    assert!(problem.json()["class"].is_string() && problem.status.is_server_error());

    server.restart();
    let there = async { while get(&site, "/queue?queue=orders").await.status != 200 {} };
    tokio::time::timeout(Duration::from_secs(30), there).await.expect("it is back");
    get(&site, "/queues").await.has("1 scheduled, 3 ready, 0 leased, 0 dead");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_queue_is_repaired() {
    let server = Server::start();
    let connection = Connect::new(&server.url()).unwrap().connect().await.unwrap();
    let orders = open(&connection, "orders").await;
    for id in ["order-1", "lost", "order-2"] {
        send_later(&orders, id, 3_600).await;
    }
    server.command(&["HDEL", "delayline:{orders}:records", "lost"]);
    let site = site(&orders, Role::Admin);
    get(&site, "/check?queue=orders").await.status(200).has("2 faults.").has("missing record");
    assert_eq!(orders.stats().await.unwrap().dead, 0);
    let page = post(&site, "/repair?queue=orders", "sure=yes").await.status(200);
    page.has("faults repaired.").has("missing record").lacks("stopped here");
    get(&site, "/check?queue=orders").await.status(200).has("nothing is wrong");
    get(&site, "/queues").await.has("2 scheduled, 0 ready, 0 leased, 1 dead");
}
