//! The HTTP API.

use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use delayline::message::Priority;
use delayline::{Bytes, Found, limits};
use delayline_web::{Access, Dashboard, Role, Router};
use serde_json::{Value, json};

use crate::support::{Answer, call, exchange, get, let_die, orders, send, send_later, site};
use crate::trouble::Trouble;

const MESSAGES: &str = "/queues/orders/messages";

async fn send_as(site: &Router, kind: &str, body: impl Into<Body>) -> Answer {
    let request = Request::post(format!("/api/v1{MESSAGES}")).header("content-type", kind);
    exchange(site, request.body(body.into()).unwrap()).await
}

#[tokio::test]
async fn a_message_is_sent_once_however_often() {
    let orders = orders().await;
    let site = site(&orders, Role::Operator);
    let message = r#"{"id": "a/b", "payload": {"total": 9}, "delay": "30m", "group": "shop-9",
        "headers": {"shop": "9"}, "max_failures": 3, "max_crashes": 2, "expires_in": "2h"}"#;
    let sent = call(&site, "POST", MESSAGES, message).await.status(201);
    assert_eq!(sent.header("location"), "messages/a%2Fb");
    assert_eq!(sent.json()["outcome"], "created");
    let again = call(&site, "POST", MESSAGES, message).await.status(200).json();
    assert_eq!(
        again,
        json!({"id": "a/b", "outcome": "duplicate", "state": "scheduled",
        "accepted": true})
    );
    let other = r#"{"id": "a/b", "payload": 1}"#;
    let problem = call(&site, "POST", MESSAGES, other).await.status(409);
    assert_eq!(problem.header("content-type"), "application/problem+json");
    assert_eq!(problem.json()["outcome"], "conflict");
    let Found::Live(stored) = orders.get("a/b").await.unwrap() else { panic!("it is not there") };
    assert_eq!(stored.payload, r#"{"total":9}"#);
    assert_eq!((stored.info.max_failures, stored.info.max_crashes), (3, 2));
    assert_eq!(stored.info.group.as_ref().unwrap().as_str(), "shop-9");
    assert_eq!(stored.headers.get("shop").unwrap(), "9");
    assert!(stored.info.expires_at.is_some());
    let urgent = r#"{"id": "urgent", "payload": 1, "priority": "urgent"}"#;
    call(&site, "POST", MESSAGES, urgent).await.status(201);
    let Found::Live(urgent) = orders.get("urgent").await.unwrap() else {
        panic!("it is not there")
    };
    assert_eq!((urgent.info.priority, urgent.info.group), (Priority::Urgent, None));

    call(&site, "DELETE", &format!("{MESSAGES}/a%2Fb"), "").await.status(200);
    let problem = call(&site, "POST", MESSAGES, message).await.status(409).json();
    assert_eq!((&problem["outcome"], &problem["accepted"]), (&json!("duplicate"), &json!(false)));
    let reused = message.replace(r#""group""#, r#""reuse_finished_id": true, "group""#);
    call(&site, "POST", MESSAGES, &reused).await.status(201);
}

#[tokio::test]
async fn a_send_that_is_refused_is_not_to_be_repeated() {
    let site = site(&Trouble::refuses_after(0, &orders().await), Role::Operator);
    let problem = call(&site, "POST", MESSAGES, r#"{"id": "a", "payload": 7}"#).await;
    let problem = problem.lacks("send it again").json();
    assert_eq!((&problem["class"], &problem["id"]), (&json!("rejected"), &json!("a")));
}

#[tokio::test]
async fn a_message_without_an_id_gets_one() {
    let site = site(&orders().await, Role::Operator);
    let sent = call(&site, "POST", MESSAGES, r#"{"payload": "x"}"#).await.status(201).json();
    let id = sent["id"].as_str().unwrap();
    let found = call(&site, "GET", &format!("{MESSAGES}/{id}"), "").await.status(200).json();
    assert_eq!((&found["payload"], &found["state"]), (&json!("x"), &json!("ready")));
}

#[tokio::test]
async fn many_messages_are_sent_if_all_are_valid() {
    let orders = orders().await;
    let site = site(&orders, Role::Operator);
    let array: Value = (0..1_000).map(|n| json!({"id": format!("m{n}"), "payload": n})).collect();
    let sent = send_as(&site, "application/json; charset=utf-8", array.to_string()).await;
    let results = sent.status(200).json();
    assert_eq!(results["results"].as_array().unwrap().len(), 1_000);
    assert_eq!(results["results"][999]["id"], "m999");
    let lines = "{\"id\": \"a\", \"payload\": 1}\n\r\n{\"id\": \"m1\", \"payload\": 2}";
    let results = send_as(&site, "application/x-ndjson", lines).await.status(200).json();
    let outcomes: Vec<_> = results["results"].as_array().unwrap().iter().collect();
    assert_eq!(
        (&outcomes[0]["outcome"], &outcomes[1]["outcome"]),
        (&json!("created"), &json!("conflict"))
    );
    let lines =
        "\n{\"id\": \"b\", \"payload\": 1}\n \n{\"id\": \"\", \"payload\": \"hunter2\"}\n7\n";
    let problem = send_as(&site, "application/x-ndjson", lines).await.status(400);
    let problem = problem.lacks("hunter2").json();
    let places: Vec<_> =
        problem["errors"].as_array().unwrap().iter().map(|it| it["index"].as_u64()).collect();
    // Blank lines count as well.
    assert_eq!(places, [Some(3), Some(4)]);
    assert_eq!(orders.get("b").await.unwrap(), Found::Unknown);
    assert_eq!(orders.stats().await.unwrap().totals.enqueued, 1_001);
}

#[tokio::test]
async fn wrong_messages_are_problems() {
    let orders = orders().await;
    let site = site(&orders, Role::Operator);
    let many: Value = (0..=limits::MAX_BATCH).map(|n| json!({"payload": n})).collect();
    let many = many.to_string();
    let deep = "[".repeat(100_000);
    for (body, why) in [
        ("", "must be a JSON object"),
        ("{", "the JSON is truncated"),
        ("[]", "there is no message"),
        ("[1", "a JSON object or an array"),
        ("7", "a JSON object or an array"),
        (&deep, "a JSON object or an array"),
        (r#"{"id": "a"}"#, "it has no payload"),
        (&many, "1001 messages in the body; at most 1000"),
    ] {
        let problem = call(&site, "POST", MESSAGES, body).await;
        let shown: String = body.chars().take(60).collect();
        assert_eq!(problem.status, 400, "{shown}: {}", problem.text());
        let detail = problem.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(why), "{shown}: {detail}");
    }
    send_as(&site, "text/plain", "{}").await.status(415);
    send_as(&site, "application/x-www-form-urlencoded", "{}").await.status(415);
    let large = vec![b' '; 8 * 1024 * 1024 + 1];
    send_as(&site, "application/json", large).await.status(413);
    let payload = "x".repeat(limits::MAX_PAYLOAD_BYTES + 1);
    let body = json!({ "payload": payload }).to_string();
    call(&site, "POST", MESSAGES, &body).await.status(400).has("1048577 bytes");
    assert_eq!(orders.stats().await.unwrap().totals.enqueued, 0);
}

#[tokio::test]
async fn a_message_is_found_changed_and_cancelled() {
    let orders = orders().await;
    send_later(&orders, "order-1", 60).await;
    let site = site(&orders, Role::Operator);
    let path = format!("{MESSAGES}/order-1");
    let found = call(&site, "GET", &path, "").await.status(200).json();
    assert_eq!((&found["state"], &found["payload"]), (&json!("scheduled"), &json!("later")));
    let when = format!("{path}/reschedule");
    let done = call(&site, "POST", &when, r#"{"at": "2030-01-31T09:00:00Z"}"#).await.status(200);
    assert_eq!(done.json()["due"], "2030-01-31T09:00:00.000Z");
    for wrong in ["{}", r#"{"delay": 1}"#, r#"{"delay": "x"}"#, r#"{"when": "1s"}"#, "[]"] {
        call(&site, "POST", &when, wrong).await.status(400);
    }
    call(&site, "POST", &when, r#"{"delay": "0s"}"#).await.status(200);
    assert_eq!(orders.stats().await.unwrap().ready, 1);
    for _ in 0..2 {
        let done = call(&site, "DELETE", &path, "").await.status(200).json();
        assert_eq!(done, json!({"id": "order-1", "outcome": "cancelled"}));
    }
    let found = call(&site, "GET", &path, "").await.status(200).json();
    assert_eq!(found, json!({"id": "order-1", "state": "cancelled"}));
    let absent = format!("{MESSAGES}/absent");
    call(&site, "GET", &absent, "").await.status(404);
    let problem = call(&site, "DELETE", &absent, "").await.status(404).json();
    assert_eq!(problem["outcome"], "not_found");
    let problem = call(&site, "POST", &when, r#"{"delay": "1s"}"#).await.status(404).json();
    assert_eq!(problem["outcome"], "not_found");
}

#[tokio::test]
async fn ids_are_any_bytes() {
    let orders = orders().await;
    let id = delayline::MessageId::new(&b"\xff/?#%41\0"[..]).unwrap();
    assert!(orders.message(&"x".into()).id(id).send().await.unwrap().is_accepted());
    let site = site(&orders, Role::Operator);
    let path = format!("{MESSAGES}/%FF%2F%3F%23%2541%00");
    let found = call(&site, "GET", &path, "").await.status(200).json();
    assert_eq!(found["id_base64"], "/y8/IyU0MQA=");
    let page = call(&site, "GET", &format!("{MESSAGES}?state=ready"), "").await.status(200).json();
    assert_eq!(page["messages"][0]["id_base64"], "/y8/IyU0MQA=");
    call(&site, "DELETE", &path, "").await.status(200);
    // These reach the router only from clients that leave paths alone.
    for (id, path) in [(".", "."), ("..", ".."), (".", "%2e"), ("..", "%2E%2E")] {
        send(&orders, id, "x").await;
        let found = call(&site, "GET", &format!("{MESSAGES}/{path}"), "").await.status(200).json();
        assert_eq!(found["id"], id);
    }
}

#[tokio::test]
async fn lists_have_pages() {
    let orders = orders().await;
    for n in 0..7 {
        send(&orders, &format!("order-{n}"), "x").await;
    }
    let site = site(&orders, Role::Viewer);
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let path = format!("{MESSAGES}?state=ready&limit=3{after}");
        let page = call(&site, "GET", &path, "").await.status(200).json();
        let messages = page["messages"].as_array().unwrap();
        assert!(messages.len() <= 3 && messages.iter().all(|it| it.get("payload").is_none()));
        seen.extend(messages.iter().map(|it| it["id"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(seen, (0..7).map(|n| format!("order-{n}")).collect::<Vec<_>>());
    for wrong in ["limit=0", "limit=101", "limit=x", "state=acked", "state=dead&after=ready"] {
        call(&site, "GET", &format!("{MESSAGES}?{wrong}"), "").await.status(400);
    }
}

#[tokio::test]
async fn dead_letters_are_listed_redriven_and_purged() {
    let orders = orders().await;
    let_die(&orders, &["a", "b", "c"], "no").await;
    let site = site(&orders, Role::Admin);
    let page = call(&site, "GET", "/queues/orders/dead?limit=2", "").await.status(200).json();
    assert_eq!(
        (&page["messages"][0]["id"], &page["messages"][0]["reason"]),
        (&json!("a"), &json!("rejected"))
    );
    let body = r#"{"ids": ["a", "x"], "ids_base64": ["Yg=="], "delay": "1h"}"#;
    let done = call(&site, "POST", "/queues/orders/dead/redrive", body).await.status(200).json();
    let outcomes: Vec<_> =
        done["results"].as_array().unwrap().iter().map(|it| it["outcome"].as_str()).collect();
    assert_eq!(outcomes, [Some("redriven"), Some("not_found"), Some("redriven")]);
    assert_eq!(orders.stats().await.unwrap().scheduled, 2);
    let purge = "/queues/orders/dead/purge";
    let done = call(&site, "POST", purge, r#"{"ids": ["c", "a"]}"#).await.status(200).json();
    assert_eq!(
        done,
        json!({"results": [{"id": "c", "outcome": "purged"},
        {"id": "a", "outcome": "not_dead"}]})
    );
    for wrong in [
        "{}",
        r#"{"ids": []}"#,
        r#"{"ids": ["a", "a"]}"#,
        r#"{"ids": "a"}"#,
        r#"{"ids": [1]}"#,
        r#"{"ids_base64": ["?"]}"#,
        r#"{"all": true}"#,
    ] {
        call(&site, "POST", purge, wrong).await.status(400);
    }
}

#[tokio::test]
async fn a_queue_is_counted_paused_and_resumed() {
    let orders = orders().await;
    send(&orders, "order-1", "x").await;
    let site = site(&orders, Role::Operator);
    let names = call(&site, "GET", "/queues", "").await.status(200).json();
    assert_eq!(names, json!({"queues": ["orders"]}));
    for (verb, changed) in [("pause", true), ("pause", false), ("resume", true)] {
        let path = format!("/queues/orders/{verb}");
        let done = call(&site, "POST", &path, "").await.status(200).json();
        assert_eq!(done, json!({"queue": "orders", "paused": verb == "pause", "changed": changed}));
    }
    let stats = call(&site, "GET", "/queues/orders", "").await.status(200).json();
    assert_eq!(
        (&stats["ready"], &stats["paused"], &stats["queue"]),
        (&json!(1), &json!(false), &json!("orders"))
    );
    assert!(stats["at"].as_str().unwrap().ends_with('Z'));
    for path in ["/queues/absent", "/queues/absent/messages", "/queues/absent/messages/x"] {
        let problem = call(&site, "GET", path, "").await.status(404);
        assert_eq!(problem.header("content-type"), "application/problem+json");
    }
}

#[tokio::test]
async fn limits_are_shown_and_changed() {
    let orders = orders().await;
    let site = site(&orders, Role::Operator);
    let limits = "/queues/orders/limits";
    let body = r#"{"leased": 3, "each_group": 2, "in_order": true,
        "rate": {"count": 10, "per_ms": 1000, "burst": 2}, "hold": "1h"}"#;
    let mut told = call(&site, "POST", limits, body).await.status(200).json();
    assert!(told["limits"]["held_until"].take().as_str().unwrap().ends_with('Z'));
    let rate = json!({"count": 10, "per_ms": 1_000, "burst": 2});
    let mut all = json!({"leased": 3, "each_group": 2, "in_order": true, "rate": rate,
        "rate_open_at": null, "held_until": null});
    assert_eq!(told, json!({"queue": "orders", "limits": all, "changed": true}));
    let page = get(&site, "/queue?queue=orders").await.status(200);
    page.has("Held: nothing is delivered until").has("0 of 3 leased").has("At most 10 deliveries");
    let less = r#"{"hold": null, "leased": null, "each_group": null, "in_order": false}"#;
    call(&site, "POST", limits, less).await.status(200);
    (all["leased"], all["each_group"], all["in_order"]) = (json!(null), json!(null), json!(false));
    let stats = call(&site, "GET", "/queues/orders", "").await.status(200).json();
    assert_eq!(stats["limits"], all);
    let steady = r#"{"rate": {"count": 10, "per_ms": 1000}}"#;
    all["rate"]["burst"] = json!(10);
    assert_eq!(call(&site, "POST", limits, steady).await.status(200).json()["limits"], all);
}

#[tokio::test]
async fn a_viewer_reads_only() {
    let orders = orders().await;
    let_die(&orders, &["a"], "no").await;
    let site = site(&orders, Role::Viewer);
    for (method, path) in [
        ("POST", "/queues/orders/messages"),
        ("POST", "/queues/orders/pause"),
        ("POST", "/queues/orders/resume"),
        ("POST", "/queues/orders/limits"),
        ("DELETE", "/queues/orders/messages/a"),
        ("POST", "/queues/orders/messages/a/reschedule"),
        ("POST", "/queues/orders/dead/redrive"),
        ("POST", "/queues/orders/dead/purge"),
        ("POST", "/queues/orders/claim"),
        ("POST", "/queues/orders/settle"),
        ("POST", "/queues/orders/extend"),
    ] {
        let takes_none = method == "DELETE" || path.ends_with("pause") || path.ends_with("resume");
        let body = r#"{"payload": 1, "ids": ["a"], "delay": "1s"}"#;
        let body = if takes_none { "" } else { body };
        call(&site, method, path, body).await.status(403).has("needs the role");
    }
    assert_eq!(orders.stats().await.unwrap().dead, 1);
}

/// Every path of the description exists in the methods that it has there, and in no other one; the
/// crate's own tests see to it that there is no other path.
#[tokio::test]
async fn the_description_is_true() {
    let access = Access::everyone(Role::Admin | Role::Worker);
    let site = Dashboard::new(access).queue(orders().await).router().unwrap();
    let document = get(&site, "/api/v1/openapi.json").await.status(200);
    assert_eq!(document.header("content-type"), "application/json");
    let document = document.json();
    for (path, methods) in document["paths"].as_object().unwrap() {
        let real = path.replace("{queue}", "orders").replace("{id}", "x");
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
            let operation = methods.get(method.to_lowercase());
            let described = operation.is_some();
            // An empty claim would wait for a message.
            let body = if path.ends_with("/claim") { r#"{"wait": "0s"}"# } else { "{}" };
            let takes_one = operation.is_some_and(|it| it.get("requestBody").is_some());
            let body = if takes_one { body } else { "" };
            let answer = call(&site, method, &real, body).await;
            assert_eq!(answer.status != 405, described, "{method} {path}: {}", answer.text());
            if !described {
                assert_eq!(answer.json()["status"], 405, "{method} {path}");
                assert!(answer.header("allow").len() > 2, "{method} {path}");
            }
            if described && answer.status.is_success() {
                let status = answer.status.as_u16().to_string();
                let responses = &methods[&method.to_lowercase()]["responses"];
                assert!(responses.get(&status).is_some(), "{method} {path}: {status}");
            } else {
                assert_eq!(answer.header("content-type"), "application/problem+json");
            }
        }
    }
    let text = document.to_string();
    for (_, rest) in text.match_indices("\"$ref\":\"#").map(|(at, _)| ((), &text[at + 9..])) {
        let pointer = rest.split('"').next().unwrap();
        assert!(document.pointer(pointer).is_some(), "{pointer}");
    }
    call(&site, "GET", "/nowhere", "").await.status(404);
}

/// Whether the schema of a description permits a value, as far as these descriptions need it.
pub fn permits(document: &Value, schema: &Value, value: &Value) -> bool {
    let sub = |schema: &Value| permits(document, schema, value);
    let Some(rules) = schema.as_object() else { return schema == &json!(true) };
    let has = |name: &Value| value.get(name.as_str().unwrap()).is_some();
    let all = |names: &Value| names.as_array().unwrap().iter().all(has);
    let length = value.as_str().map(str::len).or_else(|| value.as_array().map(Vec::len));
    let length = length.unwrap_or_default() as u64;
    let concerns = |rule: &str| match rule {
        "properties" | "additionalProperties" | "required" | "dependentRequired" => {
            value.is_object()
        }
        "items" | "minItems" | "maxItems" | "uniqueItems" => value.is_array(),
        "minLength" | "maxLength" => value.is_string(),
        _ => true,
    };
    let mut concerning = rules.iter().filter(|(rule, _)| concerns(rule));
    concerning.all(|(rule, of)| match rule.as_str() {
        "$ref" => sub(document.pointer(&of.as_str().unwrap()[1..]).unwrap()),
        "type" if of.is_array() => {
            of.as_array().unwrap().iter().any(|kind| sub(&json!({ "type": kind })))
        }
        "type" => match of.as_str().unwrap() {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            "boolean" => value.is_boolean(),
            "null" => value.is_null(),
            other => panic!("{other}"),
        },
        "properties" => of.as_object().unwrap().iter().all(|(name, schema)| {
            value.get(name).is_none_or(|member| permits(document, schema, member))
        }),
        "additionalProperties" if of == &json!(false) => {
            value.as_object().unwrap().keys().all(|name| schema["properties"].get(name).is_some())
        }
        "additionalProperties" => {
            value.as_object().unwrap().values().all(|it| permits(document, of, it))
        }
        "required" => all(of),
        "dependentRequired" => {
            of.as_object().unwrap().iter().all(|(name, others)| !has(&json!(name)) || all(others))
        }
        "oneOf" => of.as_array().unwrap().iter().filter(|it| sub(it)).count() == 1,
        "anyOf" => of.as_array().unwrap().iter().any(sub),
        "not" => !sub(of),
        "if" => schema.get(if sub(of) { "then" } else { "else" }).is_none_or(sub),
        "const" => value == of,
        "enum" => of.as_array().unwrap().contains(value),
        "items" => value.as_array().unwrap().iter().all(|item| permits(document, of, item)),
        "minLength" | "minItems" => length >= of.as_u64().unwrap(),
        "maxLength" | "maxItems" => length <= of.as_u64().unwrap(),
        "uniqueItems" => {
            let items = value.as_array().unwrap();
            items.iter().all(|item| items.iter().filter(|other| *other == item).count() == 1)
        }
        "minimum" => value.as_f64() >= of.as_f64(),
        "maximum" => value.as_f64() <= of.as_f64(),
        "then" | "else" | "description" | "examples" | "default" | "maxProperties" | "pattern"
        | "format" => true,
        other => panic!("{other}"),
    })
}

/// The description permits no request that is refused for its form, and no permitted request is
/// refused.
#[tokio::test]
async fn the_description_permits_what_is_accepted() {
    let orders = orders().await;
    let site = site(&orders, Role::Admin);
    let document = get(&site, "/api/v1/openapi.json").await.json();
    let many: Vec<String> = (0..1_001).map(|number| number.to_string()).collect();
    let long = "x".repeat(129);
    let [sends, redrive, purge, jobs, when] = [
        "/queues/{queue}/messages",
        "/queues/{queue}/dead/redrive",
        "/queues/{queue}/dead/purge",
        "/queues/{queue}/dead/jobs",
        "/queues/{queue}/messages/{id}/reschedule",
    ];
    let at = "2030-01-31T09:00:00Z";
    for (path, body, accepted) in [
        (sends, json!({"payload": 1}), true),
        (sends, json!({"payload": 1, "id": "a", "delay": "1h"}), true),
        (sends, json!({"payload": 1, "at": at, "headers": {"a": "b"}}), true),
        (sends, json!({"payload": 1, "delay": "1h", "at": at}), false),
        (sends, json!([{"payload": 1, "delay": "1h", "at": at}]), false),
        (sends, json!({"payload": 1, "payload_base64": ""}), false),
        (sends, json!({"payload": 1, "id": ""}), false),
        (sends, json!({"payload": 1, "id": long}), false),
        (sends, json!({"payload": 1, "unknown": 1}), false),
        (sends, json!({"payload": 1, "headers": {"a": 1}}), false),
        (sends, json!({"payload": 1, "kind": "order", "at": "1900000000"}), true),
        (sends, json!({"payload": 1, "kind": ""}), false),
        (sends, json!({"payload": 1, "group": "t", "priority": "normal"}), true),
        (sends, json!({"payload": 1, "group": "t", "priority": "low"}), false),
        (sends, json!({"payload": 1, "group": ""}), false),
        (sends, json!({"payload": 1, "group": long}), false),
        (sends, json!([]), false),
        (sends, json!({"payload": 1, "id": "b", "update": "replace"}), true),
        (sends, json!({"payload": 1, "update": "replace"}), false),
        (sends, json!({"payload": 1, "id": "c", "update": "debounce", "at_most": "1h"}), true),
        (sends, json!({"payload": 1, "id": "c", "update": "debounce"}), false),
        (sends, json!({"payload": 1, "id": "c", "update": "coalesce", "at_most": "1h"}), false),
        (sends, json!({"payload": 1, "id": "c", "at_most": "1h"}), false),
        (sends, json!({"payload": 1, "id": "c", "update_token": "0123456789abcdef"}), false),
        (sends, json!({"payload": 1, "id": "d", "throttle": "1h"}), true),
        (sends, json!({"payload": 1, "throttle": "1h"}), false),
        (redrive, json!({"ids": ["a"], "delay": "1h"}), true),
        (redrive, json!({"ids": ["a"], "ids_base64": ["/w=="], "at": at}), true),
        (redrive, json!({"ids": ["a"], "delay": "1h", "at": at}), false),
        (redrive, json!({"ids": []}), false),
        (redrive, json!({}), false),
        (redrive, json!({"ids": [""]}), false),
        (redrive, json!({"ids": ["a", "a"]}), false),
        (purge, json!({"ids_base64": ["/w=="], "ids": []}), true),
        (purge, json!({"ids": [], "ids_base64": []}), false),
        (purge, json!({"ids": [""]}), false),
        (purge, json!({"ids_base64": [""]}), false),
        (purge, json!({"ids": many}), false),
        (purge, json!({"ids": ["a"], "delay": "1h"}), false),
        (when, json!({"delay": "1h"}), true),
        (when, json!({"delay": "1h", "at": at}), false),
        (when, json!({}), false),
        (jobs, json!({"action": "redrive", "delay": "1h"}), true),
        (jobs, json!({"action": "redrive", "delay": "1h", "at": at}), false),
        (jobs, json!({"action": "count", "delay": "1h"}), false),
        (jobs, json!({"action": "purge", "at": at}), false),
        (jobs, json!({"action": "count", "limit": 0}), false),
    ] {
        let schema = &document["paths"][path]["post"]["requestBody"]["content"];
        let schema = &schema["application/json"]["schema"];
        assert_eq!(permits(&document, schema, &body), accepted, "{path}: {body}");
        let path = path.replace("{queue}", "orders").replace("{id}", "x");
        let answer = call(&site, "POST", &path, &body.to_string()).await;
        assert_eq!(answer.status != 400, accepted, "{path}: {body}: {}", answer.text());
    }
}

#[tokio::test]
async fn a_throttled_send_is_told_and_not_accepted() {
    let site = site(&orders().await, Role::Operator);
    let send = async |id: &str, payload: &str| {
        let body = format!(r#"{{"id": "{id}", "payload": "{payload}", "throttle": "1h"}}"#);
        call(&site, "POST", "/queues/orders/messages", &body).await
    };
    let created = send("a", "1").await.status(201).json();
    assert_eq!((&created["outcome"], &created["accepted"]), (&json!("created"), &json!(true)));
    let throttled = send("a", "2").await.status(200).json();
    assert_eq!(
        (&throttled["outcome"], &throttled["accepted"]),
        (&json!("throttled"), &json!(false))
    );
    assert!(throttled["until"].as_str().unwrap().starts_with("20"), "{throttled}");
}

#[tokio::test]
async fn a_history_tells_what_happened() {
    let orders = orders().await;
    send(&orders, "a", "1").await;
    let site = site(&orders, Role::Viewer);
    let history = async |query: &str, status| {
        call(&site, "GET", &format!("/queues/orders/history{query}"), "")
            .await
            .status(status)
            .json()
    };
    for (query, resolution) in
        [("", "minutes"), ("?resolution=minutes", "minutes"), ("?resolution=hours", "hours")]
    {
        let value = history(query, 200).await;
        assert_eq!((&value["queue"], &value["resolution"]), (&json!("orders"), &json!(resolution)));
        let points = value["points"].as_array().unwrap();
        let sent: Vec<_> = points.iter().map(|point| point["enqueued_total"].clone()).collect();
        assert_eq!(sent, [json!(0), json!(1)]);
        assert_eq!(points[1]["lateness"].as_array().unwrap().len(), 16);
    }
    let problem = history("?resolution=days", 400).await;
    assert_eq!(problem["detail"], "`resolution` is minutes or hours");
    call(&site, "GET", "/queues/absent/history", "").await.status(404);
}

#[tokio::test]
async fn the_end_of_a_message_can_be_waited_for() {
    let orders = orders().await;
    let draft = orders.message(&Bytes::from_static(b"7")).id("a");
    let _ = draft.keep_result(Duration::from_secs(60)).send().await.unwrap();
    let site = site(&orders, Role::Operator);
    let progress = async |query: &str, status| {
        let path = format!("{MESSAGES}/{query}");
        call(&site, "GET", &path, "").await.status(status).json()
    };
    assert_eq!(progress("a/progress", 200).await, json!({"id": "a", "state": "pending"}));
    let worker = delayline::Worker::builder(orders.clone()).until_empty(true).build().unwrap();
    let work = worker.run(async |job: delayline::Job<Bytes>| {
        Ok::<_, delayline::Error>(delayline::Outcome::AckWith(job.into_payload()))
    });
    let (ended, _) = tokio::join!(progress("a/progress?wait=20s", 200), work);
    assert_eq!(ended, json!({"id": "a", "state": "acked", "result": "7"}));
    assert_eq!(progress("b/progress", 200).await["state"], "unknown");
    assert_eq!(progress("a/progress?wait=31s", 400).await["detail"], "`wait` is at most 30s");
    progress("a/progress?wait=soon", 400).await;
    // A result is content.
    let viewer = self::site(&orders, Role::Viewer);
    let path = format!("{MESSAGES}/a/progress");
    let seen = call(&viewer, "GET", &path, "").await.status(200).json();
    assert_eq!(seen, json!({"id": "a", "state": "acked"}));
    let redacting = Dashboard::new(Access::everyone(Role::Admin)).redact(|_, _| {});
    let redacting = redacting.queue(orders.clone()).router().unwrap();
    let seen = call(&redacting, "GET", &path, "").await.status(200).json();
    assert_eq!(seen, json!({"id": "a", "state": "acked"}));
}

#[tokio::test]
async fn a_message_is_explained() {
    let orders = orders().await;
    send(&orders, "a", "1").await;
    let site = site(&orders, Role::Viewer);
    let explain = async |id: &str| {
        call(&site, "GET", &format!("{MESSAGES}/{id}/explain"), "").await.status(200).json()
    };
    let ready = explain("a").await;
    assert_eq!((&ready["id"], &ready["why"]), (&json!("a"), &json!("ready")));
    orders.pause().await.unwrap();
    let words = explain("a").await["explanation"].as_str().unwrap().to_owned();
    assert!(words.ends_with("but the queue is paused."), "{words}");
    assert_eq!(explain("b").await["why"], "unknown");
}
