//! Requests of consumers that need more than one operation.

use delayline_web::Role;
use serde_json::{Value, json};

use crate::pull::{item, post, settle, take};
use crate::support::{call, orders, send, site};
use crate::trouble::Trouble;

#[tokio::test]
async fn items_that_do_not_fit_in_one_operation_are_all_done() {
    let orders = orders().await;
    let worker = site(&orders, Role::Worker);
    for id in ["a", "b"] {
        send(&orders, id, "x").await;
    }
    let taken = take(&worker, 2).await;
    // The same message follows both.
    let ack = json!({"outcome": "ack", "messages": [{"id": "summary", "payload": 1}]});
    let acks: Vec<Value> = taken.iter().map(|it| item(it, &ack)).collect();
    let settled = settle(&worker, &acks).await;
    let sent: Vec<_> = settled.iter().map(|it| &it["messages"][0]["outcome"]).collect();
    assert_eq!(sent, ["created", "duplicate"], "{settled:?}");
    // More messages than one operation has.
    let token = &taken[0]["token"];
    let unknown = (0..600).map(|n| {
        let messages = json!([{"id": format!("next-{n}"), "payload": 1}]);
        json!({"id": n.to_string(), "token": token, "outcome": "ack", "messages": messages})
    });
    assert_eq!(settle(&worker, &unknown.collect::<Vec<_>>()).await[599]["outcome"], "missing");

    let summary = take(&worker, 1).await.remove(0);
    let update = r#"{"id": "summary", "payload": 2, "update": "replace"}"#;
    let operator = site(&orders, Role::Operator);
    let sent = call(&operator, "POST", "/queues/orders/messages", update).await.status(200).json();
    assert_eq!((&sent["outcome"], &sent["state"]), (&json!("following"), &json!("leased")));
    let lease = item(&summary, &json!({"checkpoint": "x"}));
    let twice = json!({"leases": [lease, lease]});
    let extended = post(&worker, "extend", &twice).await.status(200).json();
    assert_eq!(extended["results"][1]["outcome"], "extended", "{extended}");
    // The second operation is refused.
    let refusing = site(&Trouble::refuses_after(1, &orders), Role::Worker);
    let problem = post(&refusing, "extend", &twice).await.status(502).json();
    let outcomes = [0, 1].map(|index| &problem["results"][index]["outcome"]);
    assert_eq!(outcomes, ["extended", "failed"], "{problem}");
    assert_eq!(problem["class"], "ambiguous");
}
