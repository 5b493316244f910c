//! Claims that come while polls of other clients wait.

use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use delayline_web::{Access, Dashboard, Role, Visitor};
use serde_json::json;
use tokio::time::{sleep, timeout};
use tower::ServiceExt as _;

use crate::pull::{claim, polls, post, take};
use crate::support::{orders, send, send_later, site};
use crate::trouble::Counted;

#[tokio::test(start_paused = true)]
async fn a_bad_claim_ends_no_poll_of_others() {
    let (counted, orders) = Counted::on(&orders().await);
    let site = site(&orders, Role::Worker);
    let waiting = polls(&site, 2, &counted).await;
    for lease in ["0s", "2 days"] {
        let bad = json!({"wait": "1s", "lease": lease});
        post(&site, "claim", &bad).await.status(400).has("the lease in ms");
    }
    for (id, poll) in ["a", "b"].into_iter().zip(waiting) {
        send(&orders, id, "x").await;
        assert_eq!(poll.await.unwrap()["deliveries"][0]["id"], id);
    }
}

#[tokio::test(start_paused = true)]
async fn a_repeated_claim_is_answered_although_polls_wait() {
    let (counted, orders) = Counted::on(&orders().await);
    let site = site(&orders, Role::Worker);
    send(&orders, "a", "x").await;
    let body = json!({"wait": "1s", "consumer": "c", "claim_id": "1", "lease": "1h"});
    let first = claim(&site, body.clone()).await;
    let waiting = polls(&site, 1, &counted).await;
    let again = claim(&site, body).await;
    assert_eq!(again["deliveries"][0]["token"], first["deliveries"][0]["token"]);
    assert!(!waiting[0].is_finished());
}

#[tokio::test]
async fn claims_without_a_consumer_do_not_share_one() {
    let (counted, orders) = Counted::on(&orders().await);
    let visitor = Visitor::new("v".repeat(100), Role::Worker);
    let access = Access::resolver(move |_| Some(visitor.clone()));
    let site = Dashboard::new(access).queue(orders.clone()).router().unwrap();
    for _ in 0..20 {
        take(&site, 1).await;
    }
    assert_eq!(counted.consumers.lock().unwrap().len(), 20);
}

#[tokio::test(start_paused = true)]
async fn the_last_poll_leaves_the_next_message_to_others() {
    let (counted, orders) = Counted::on(&orders().await);
    let site = site(&orders, Role::Worker);
    let waiting = polls(&site, 1, &counted).await;
    // It takes the only hint.
    send_later(&orders, "soon", 2).await;
    sleep(Duration::from_secs(1)).await;
    waiting[0].abort();
    let hint = orders.backend().wait(Duration::from_secs(60)).await;
    assert!(hint.unwrap(), "other consumers do not learn of it");
}

#[tokio::test(start_paused = true)]
async fn polls_fail_if_the_queue_panics_and_later_ones_are_served() {
    let (counted, orders) = Counted::on(&orders().await);
    let site = site(&orders, Role::Worker);
    let poll = || {
        let site = site.clone();
        tokio::spawn(async move { post(&site, "claim", &json!({"wait": "7s"})).await })
    };
    let failing = poll();
    sleep(Duration::from_secs(1)).await;
    *counted.panics.lock().unwrap() = "claim";
    let failed = timeout(Duration::from_secs(60), failing).await.expect("it waits for ever");
    failed.unwrap().status(504);
    *counted.panics.lock().unwrap() = "";
    let later = poll();
    sleep(Duration::from_secs(1)).await;
    send(&orders, "a", "x").await;
    assert_eq!(later.await.unwrap().status(200).json()["deliveries"][0]["id"], "a");
}

#[tokio::test]
async fn a_claim_whose_release_panics_can_be_repeated() {
    let (counted, orders) = Counted::on(&orders().await);
    let site = site(&orders, Role::Worker);
    send(&orders, "a", "x").await;
    *counted.panics.lock().unwrap() = "settle";
    let body = json!({"wait": "0s", "consumer": "c", "claim_id": "1"});
    let request = Request::post("/api/v1/queues/orders/claim");
    let request = request.header("content-type", "application/json");
    drop(site.clone().oneshot(request.body(Body::from(body.to_string())).unwrap()).await.unwrap());
    let again = timeout(Duration::from_secs(60), claim(&site, body)).await.expect("it waits");
    assert_eq!(again["deliveries"][0]["id"], "a");
}
