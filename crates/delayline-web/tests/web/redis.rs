//! The same on a real server, also while it is down.

use std::time::Duration;

use delayline::Connect;
use delayline_test_server::Server;
use delayline_web::Role;
use serde_json::json;

use crate::support::{call, get, let_die, open, orders, post, send, send_later, site};
use crate::trouble::Trouble;

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
    let gone = async {
        while get(&site, "/queues").await.status(200).has("orders").text().contains("scheduled,") {}
    };
    tokio::time::timeout(Duration::from_secs(60), gone).await.expect("it says so");
    get(&site, "/health").await.status(503);
    let page = get(&site, "/queue?queue=orders").await;
    assert!(page.status.is_server_error(), "{page:?}");
    page.has("cannot be reached").has("All queues");
    let problem = call(&site, "GET", "/queues/orders", "").await;
    assert!(problem.json()["class"].is_string() && problem.status.is_server_error());

    server.restart();
    let there = async { while get(&site, "/queue?queue=orders").await.status != 200 {} };
    tokio::time::timeout(Duration::from_secs(60), there).await.expect("it is back");
    get(&site, "/queues").await.has("1 scheduled, 3 ready, 0 leased, 0 dead");
}

#[tokio::test]
async fn a_send_that_may_be_a_second_message_is_not_to_be_repeated() {
    let site = site(&Trouble::is_silent(&orders().await), Role::Operator);
    let message = r#"{"id": "a", "payload": 7, "reuse_finished_id": true}"#;
    let problem = call(&site, "POST", "/queues/orders/messages", message).await.status(504);
    problem.has("it may be a second message").lacks("use the id");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_send_that_fails_tells_the_id_to_repeat_it_under() {
    let server = Server::start();
    let connection = Connect::new(&server.url()).unwrap().connect().await.unwrap();
    let site = site(&open(&connection, "orders").await, Role::Operator);
    server.kill();
    let path = "/queues/orders/messages";
    let problem = call(&site, "POST", path, r#"{"payload": 7}"#).await;
    assert!(problem.status.is_server_error(), "{problem:?}");
    let one = problem.has("to send it again, use the id given here").json();
    let problem = call(&site, "POST", path, r#"[{"payload": 8}, {"id": "a", "payload": 9}]"#).await;
    assert!(problem.status.is_server_error(), "{problem:?}");
    let many = problem.has("under the ids in `results`").json();
    assert_eq!(many["results"][1]["id"], "a");
    let document = get(&site, "/api/v1/openapi.json").await.json();
    let required = document["components"]["schemas"]["Sent"]["required"].as_array().unwrap();
    for failed in [&one, &many["results"][0], &many["results"][1]] {
        assert!(required.iter().all(|it| failed.get(it.as_str().unwrap()).is_some()), "{failed}");
        let known = (&failed["outcome"], &failed["accepted"]);
        assert_eq!(known, (&"failed".into(), &false.into()), "{failed}");
        assert!(failed["class"].is_string() && failed["detail"].is_string(), "{failed}");
    }
    assert_eq!(many["class"], many["results"][0]["class"]);

    server.restart();
    for (failed, payload) in [(&one, 7), (&many["results"][0], 8)] {
        let message = json!({"id": failed["id"], "payload": payload}).to_string();
        let again =
            async { while !call(&site, "POST", path, &message).await.status.is_success() {} };
        tokio::time::timeout(Duration::from_secs(60), again).await.expect("it is back");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_settlement_that_fails_says_whether_it_was_executed() {
    let server = Server::start();
    let connection = Connect::new(&server.url()).unwrap().connect().await.unwrap();
    let orders = open(&connection, "orders").await;
    let [operator, worker] =
        [Role::Operator | Role::Worker, Role::Worker.into()].map(|rights| site(&orders, rights));
    let sent = call(&operator, "POST", "/queues/orders/messages", r#"{"payload": 7}"#).await;
    assert!(sent.status.is_success(), "{sent:?}");
    let claimed = call(&operator, "POST", "/queues/orders/claim", r#"{"max": 1}"#).await.json();
    let [id, token] = ["id", "token"].map(|name| claimed["deliveries"][0][name].clone());
    server.kill();
    let body = json!({"settlements": [{"id": id, "token": token, "outcome": "ack"}]}).to_string();
    // Only an operator sees the details, which may name the server.
    for (site, has_details) in [(&operator, true), (&worker, false)] {
        let problem = call(site, "POST", "/queues/orders/settle", &body).await;
        assert!(problem.status.is_server_error(), "{problem:?}");
        let problem = problem.json();
        let failed = &problem["results"][0];
        assert_eq!((&failed["outcome"], &failed["class"]), (&"failed".into(), &problem["class"]));
        assert!(problem["class"].is_string(), "{problem}");
        assert_eq!(failed["detail"].as_str().unwrap().contains(": "), has_details, "{problem}");
    }
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
    page.has("1 fault repaired.").has("missing record").lacks("stopped here");
    get(&site, "/check?queue=orders").await.status(200).has("nothing is wrong");
    get(&site, "/queues").await.has("2 scheduled, 0 ready, 0 leased, 1 dead");
}
