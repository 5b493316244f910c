//! Claims that come while polls of other clients wait.

use delayline_web::{Access, Dashboard, Role, Visitor};
use serde_json::json;

use crate::pull::{Counted, claim, polls, post, site, take};
use crate::support::{orders, send};

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
