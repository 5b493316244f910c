//! Claims that come while polls of other clients wait.

use delayline_web::Role;
use serde_json::json;

use crate::pull::{Counted, polls, post, site};
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
