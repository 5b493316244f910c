//! What the description says of consumers' requests and answers, and of the history.

use std::time::Duration;

use delayline_web::Role;
use serde_json::{Value, json};

use crate::api::permits;
use crate::pull::{claim, item, post};
use crate::support::{get, orders, send, site};

/// The description permits no refused request, and each answer has exactly the members that it
/// describes.
#[tokio::test]
async fn requests_and_answers_are_as_described() {
    let orders = orders().await;
    let site = site(&orders, Role::Operator | Role::Worker);
    let document = get(&site, "/api/v1/openapi.json").await.json();
    let schema = |path: &str, place: &str| {
        let operation = &document["paths"][format!("/queues/{{queue}}/{path}")]["post"];
        operation.pointer(&format!("{place}/content/application~1json/schema")).unwrap().clone()
    };
    let draft = orders.message(&"x".into()).id("a").group("t").keep_result(Duration::from_secs(60));
    assert!(draft.send().await.unwrap().is_accepted());
    for id in ["b", "c"] {
        send(&orders, id, "\u{fffd}").await;
    }
    let raw = delayline::Bytes::from_static(b"\xff");
    let draft = orders.message(&raw).id(raw.clone());
    assert!(draft.send().await.unwrap().is_accepted());
    let claimed = claim(&site, json!({"max": 10, "wait": "0s"})).await;
    let taken = claimed["deliveries"].as_array().unwrap().clone();
    assert_eq!((taken.len(), taken[3]["payload_base64"].as_str()), (4, Some("/w==")));
    let token = &taken[1]["token"];
    let one = |more: Value| json!({"settlements": [item(&taken[1], &more)]});
    let no_lease = json!({"settlements": [{"id": "x", "outcome": "ack"}]});
    let update = json!({"payload": 1, "id": "e", "update": "replace"});
    let follow = json!([{"payload": 1, "id": "d", "delay": "1h"}, {"payload": 2}]);
    let kept = json!({"outcome": "ack", "result": 1, "keep_result": "1m", "messages": follow});
    let saving = |more: Value| json!({"leases": [item(&taken[1], &more)]});
    let bytes = json!([{"id_base64": "/w==", "token": taken[3]["token"]}]);
    for (path, body, accepted) in [
        ("claim", json!({}), true),
        ("claim", json!({"max": 1000, "lease": "1m", "wait": "0s", "consumer": "c"}), true),
        ("claim", json!({"consumer": "c", "claim_id": "1"}), true),
        ("claim", json!({"claim_id": "1"}), false),
        ("claim", json!({"consumer": "c", "claim_id": ""}), false),
        ("claim", json!({"max": 0}), false),
        ("claim", json!({"max": 1001}), false),
        ("claim", json!({"lease": 30}), false),
        ("claim", json!({"lease_seconds": 30}), false),
        ("settle", json!({}), false),
        ("settle", json!({"settlements": []}), false),
        ("settle", json!({"settlements": [], "x": 1}), false),
        ("settle", no_lease, false),
        ("settle", one(json!({})), false),
        ("settle", one(json!({"outcome": "done"})), false),
        (
            "settle",
            one(json!({"outcome": "retry", "delay": "1s", "at": "2030-01-01T00:00:00Z"})),
            false,
        ),
        ("settle", one(json!({"outcome": "ack", "result": 1})), false),
        ("settle", one(json!({"outcome": "ack", "keep_result": "1m"})), false),
        ("settle", one(json!({"outcome": "reject", "result": 1, "keep_result": "1m"})), false),
        ("settle", one(json!({"outcome": "ack", "delay": "1s"})), false),
        ("settle", one(json!({"outcome": "release", "at": "2030-01-01T00:00:00Z"})), false),
        ("settle", one(json!({"outcome": "release", "error": "no"})), false),
        ("settle", one(json!({"outcome": "snooze"})), false),
        ("settle", one(json!({"outcome": "ack", "messages": [update]})), false),
        ("settle", one(json!({"outcome": "ack", "x": 1})), false),
        ("settle", one(json!({"outcome": "ack", "messages": [{"id": "e"}]})), false),
        ("settle", json!({"settlements": [item(&taken[0], &kept)]}), true),
        (
            "settle",
            one(json!({"outcome": "retry", "error": "no", "at": "2030-01-01T00:00:00Z"})),
            true,
        ),
        ("settle", json!({"settlements": [{"id": "b", "token": token, "outcome": "ack"}]}), true),
        ("settle", json!({"settlements": [item(&taken[2], &json!({"outcome": "reject"}))]}), true),
        ("extend", json!({ "leases": bytes, "lease": "1m" }), true),
        ("settle", one(json!({"outcome": "release", "checkpoint": 1})), false),
        ("settle", one(json!({"outcome": "release", "progress": 2})), false),
        ("settle", one(json!({"outcome": "release", "progress_text": "x"})), false),
        ("extend", saving(json!({"progress": 0.4, "progress_text": "x"})), true),
        ("extend", saving(json!({"checkpoint": "x"})), true),
        ("extend", saving(json!({"checkpoint_base64": "/w=="})), true),
        ("extend", saving(json!({"checkpoint": "x", "checkpoint_base64": "/w=="})), false),
        ("extend", json!({"leases": [{"id": "b", "token": token}]}), true),
        ("extend", json!({"leases": [{"id": "b"}]}), false),
        ("extend", json!({"leases": [{"token": token}]}), false),
        ("extend", json!({"leases": []}), false),
        ("extend", json!({}), false),
    ] {
        let request = schema(path, "/requestBody");
        assert_eq!(permits(&document, &request, &body), accepted, "{path}: {body}");
        let stopped = body.get("wait").is_some() || path != "claim" || !accepted;
        let mut body = body.clone();
        if !stopped {
            body["wait"] = json!("0s");
        }
        let answer = post(&site, path, &body).await;
        assert_eq!(answer.status != 400, accepted, "{path}: {body}: {}", answer.text());
        if accepted {
            let answer = answer.status(200).json();
            let described = schema(path, "/responses/200");
            assert!(permits(&document, &described, &answer), "{path}: {answer}");
        }
    }
    assert!(permits(&document, &schema("claim", "/responses/200"), &claimed), "{claimed}");
    assert!(taken.iter().all(|it| permits(
        &document,
        &document["components"]["schemas"]["Delivery"],
        it
    )));
}

#[tokio::test]
async fn each_member_of_a_history_is_described() {
    let site = site(&orders().await, Role::Viewer);
    let document = get(&site, "/api/v1/openapi.json").await.json();
    let points = "/components/schemas/History/properties/points/items/properties";
    let described = document.pointer(points).unwrap().as_object().unwrap();
    let history = get(&site, "/api/v1/queues/orders/history").await.status(200).json();
    for name in history["points"][0].as_object().unwrap().keys() {
        assert!(described.contains_key(name), "{name}");
    }
}
