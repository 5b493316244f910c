//! Messages that wait for others, over HTTP and on pages.

use delayline::Bytes;
use delayline_web::{Access, Dashboard, Role, Visitor};
use serde_json::json;

use crate::pull::{item, post, settle, take};
use crate::support::{get, open, orders, site};

#[tokio::test]
async fn a_waiting_message_is_sent_explained_and_claimed() {
    let orders = orders().await;
    let site = site(&orders, Role::Operator | Role::Worker);
    let waits = json!({"id": "w", "payload": "all", "after": ["a", "b"], "on_failure": "deliver",
        "wait_at_most": "2h"});
    let messages = json!([waits, {"id": "a", "payload": "1", "wakes": "w", "keep_result": "1h"}]);
    post(&site, "messages", &messages).await.status(200);
    let shown = get(&site, "/api/v1/queues/orders/messages/w").await.json();
    assert_eq!((&shown["payload"], &shown["after"][1]), (&json!("all"), &json!({"id": "b"})));
    assert_eq!(
        (&shown["on_failure"], &shown["wait_at_most"]),
        (&json!("deliver"), &json!("7200000ms"))
    );
    let explained = get(&site, "/api/v1/queues/orders/messages/w/explain").await.json();
    assert_eq!(explained["why"], "waiting");
    let words = explained["explanation"].as_str().unwrap();
    assert!(words.starts_with("It waits for 2 of 2 messages."), "{words}");

    // Only the member can be claimed.
    let taken = take(&site, 10).await;
    assert_eq!(taken.iter().map(|it| &it["id"]).collect::<Vec<_>>(), ["a"]);
    let ack = json!({"outcome": "ack", "result": "one", "keep_result": "1h"});
    settle(&site, &[item(&taken[0], &ack)]).await;
    let page = get(&site, "/message?queue=orders&id=w").await.status(200);
    page.has("1 of 2 messages have ended").has("unknown: not sent yet");
    let second = json!({"id": "b", "payload": "2", "wakes": "w"});
    post(&site, "messages", &second).await.status(201);
    let page = get(&site, "/message?queue=orders&id=b").await.status(200);
    page.has("When it has ended, it wakes");
    let taken = take(&site, 1).await;
    settle(&site, &[item(&taken[0], &json!({"outcome": "reject", "error": "no"}))]).await;
    let all = loop {
        if let Some(all) = take(&site, 1).await.pop() {
            break all;
        }
    };
    let ended = json!([
        {"id": "a", "state": "acked", "result": "one"},
        {"id": "b", "state": "dead", "reason": "rejected"},
    ]);
    assert_eq!(all["payload"], "all");
    assert_eq!(all["members"], json!({"why": "all_ended", "ended": ended}));
}

/// A late wake-up makes it due, as a reschedule does.
#[tokio::test]
async fn a_message_that_has_waited_is_snoozed_as_another_server_was_told() {
    let connection = delayline::connect("memory:").await.unwrap();
    let queues = [open(&connection, "orders").await, open(&connection, "orders").await];
    let [first, second] = queues.each_ref().map(|it| site(it, Role::Operator | Role::Worker));
    let waits = json!({"id": "w", "payload": "x", "after": ["a", "b"], "on_failure": "deliver"});
    let messages = json!([{"id": "a", "payload": "x"}, waits]);
    post(&first, "messages", &messages).await.status(200);
    queues[0].cancel("a").await.unwrap();
    let taken = take(&first, 1).await;
    assert_eq!(taken[0]["members"]["why"], "failure");
    let snooze = json!({"outcome": "snooze", "delay": "10m", "hold_group": "1ms"});
    settle(&second, &[item(&taken[0], &snooze)]).await;
    post(&second, "messages/w/reschedule", &json!({"delay": "0s"})).await.status(200);
    assert!(take(&second, 1).await.is_empty());
}

#[tokio::test]
async fn only_queues_that_the_visitor_knows_can_be_waited_for() {
    let orders = orders().await;
    let visitor = Visitor::new("v", Role::Operator | Role::Worker).only_queues(["orders"]);
    let access = Access::resolver(move |_| Some(visitor.clone()));
    let site = Dashboard::new(access).queue(orders.clone()).router().unwrap();
    let other = json!({"queue": "secret", "id": "a"});
    let itself = json!({"queue": "orders", "id": "w"});
    let crafted = json!({"delayline-waits-for": "1 0 1 wait"});
    let moved = json!({"delayline-waits-since": "0 1"});
    // A message move task of the SQS endpoint would send it there.
    let dead = json!({"delayline-sqs": r#"{"q":"secret"}"#});
    let listed = json!({"delayline-sqs": r#"[{},null,null,null,"secret"]"#});
    for (message, reason) in [
        (json!({"id": "w", "payload": "1", "after": [other]}), "no queue secret here"),
        (json!({"id": "w", "payload": "1", "wakes": other}), "no queue secret here"),
        (json!({"id": "w", "payload": "1", "headers": crafted}), "is set by Delayline alone"),
        (json!({"id": "w", "payload": "1", "headers": moved}), "is set by Delayline alone"),
        (json!({"id": "w", "payload": "1", "headers": dead}), "a queue that does not exist"),
        (json!({"id": "w", "payload": "1", "headers": listed}), "is no JSON object"),
        (json!({"id": "w", "payload": "1", "after": ["w"]}), "would wait for itself"),
        (json!({"id": "w", "payload": "1", "after": [itself]}), "would wait for itself"),
        (json!({"id": "w", "payload": "1", "after": [7]}), "a member must be an id"),
        (json!({"id": "w", "payload": "1", "on_failure": "wait"}), "for messages with after"),
    ] {
        post(&site, "messages", &message).await.status(400).has(reason);
    }
    assert_eq!(orders.stats().await.unwrap().totals.enqueued, 0);
}

#[tokio::test]
async fn messages_of_queues_that_the_visitor_does_not_know_are_not_named() {
    let connection = delayline::connect("memory:").await.unwrap();
    let (orders, secret) = (open(&connection, "orders").await, open(&connection, "secret").await);
    let draft = |id: &str| orders.message(&Bytes::from_static(b"x")).id(id);
    let hidden = secret.member("hunter2").unwrap();
    let members = [hidden.clone(), orders.member("a").unwrap()];
    assert!(draft("waits").after(members).send().await.unwrap().is_accepted());
    let wakes = draft("wakes").wakes(hidden).header("shop", "9").send();
    assert!(wakes.await.unwrap().is_accepted());
    let origin = r#"{"q":"secret","r":1}"#;
    assert!(draft("dead").header("delayline-sqs", origin).send().await.unwrap().is_accepted());
    let message = "/api/v1/queues/orders/messages";
    let open = Dashboard::new(Access::everyone(Role::Operator)).queue(orders.clone());
    let open = open.router().unwrap();
    for id in ["waits", "wakes", "dead"] {
        get(&open, &format!("{message}/{id}")).await.status(200).has("secret");
    }
    let visitor = Visitor::new("v", Role::Operator | Role::Worker).only_queues(["orders"]);
    let access = Access::resolver(move |_| Some(visitor.clone()));
    let site = Dashboard::new(access).queue(orders.clone()).queue(secret).router().unwrap();
    for id in ["waits", "wakes", "dead"] {
        for uri in [format!("{message}/{id}"), format!("/message?queue=orders&id={id}")] {
            get(&site, &uri).await.status(200).lacks("secret").lacks("hunter2");
        }
    }
    let waits = get(&site, &format!("{message}/waits")).await.json();
    assert_eq!(waits["after"], json!([{"id": "a"}]));
    let wakes = get(&site, &format!("{message}/wakes")).await.json();
    assert_eq!(wakes["headers"], json!({"shop": "9"}));
    let taken = take(&site, 10).await;
    let headers: Vec<_> = taken.iter().map(|it| &it["headers"]).collect();
    assert_eq!(headers, [&json!({"shop": "9"}), &json!({"delayline-sqs": r#"{"r":1}"#})]);
}
