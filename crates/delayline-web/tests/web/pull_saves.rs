//! What consumers over HTTP save with their messages.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use delayline_web::Role;
use serde_json::{Value, json};

use crate::pull::{item, post, settle, take};
use crate::support::{call, get, orders, send, site};

#[tokio::test]
async fn a_delivery_has_what_an_earlier_attempt_has_saved() {
    let orders = orders().await;
    let site = site(&orders, Role::Admin | Role::Worker);
    send(&orders, "a", "payload").await;
    let first = take(&site, 1).await.remove(0);
    assert_eq!((first.get("checkpoint"), first.get("progress")), (None, None));
    let save = json!({"progress": 0.4, "progress_text": "page 12 of 30", "checkpoint": "p12"});
    let extend = |more: &Value| json!({"leases": [item(&first, more)]});
    post(&site, "extend", &extend(&save)).await.status(200);
    // A part that is not saved stays.
    post(&site, "extend", &extend(&json!({"progress": 0.5}))).await.status(200);

    let shown = get(&site, "/api/v1/queues/orders/messages/a").await.status(200).json();
    assert_eq!(shown["progress"], json!({"done": 0.5, "text": ""}));
    assert_eq!(shown["checkpoint"], "p12");
    let page = get(&site, "/message?queue=orders&id=a").await.text().to_owned();
    assert!(page.contains(r#"max="1000" value="500""#) && page.contains("p12"), "{page}");
    let workers = get(&site, "/workers").await.text().to_owned();
    assert!(workers.contains(r#"max="1000" value="500""#), "{workers}");
    let viewer = crate::support::site(&orders, Role::Viewer);
    let open = get(&viewer, "/api/v1/queues/orders/messages/a").await.status(200).json();
    assert_eq!((&open["progress"]["done"], open.get("checkpoint")), (&json!(0.5), None));
    let page = get(&viewer, "/message?queue=orders&id=a").await.text().to_owned();
    assert!(!page.contains("p12"), "{page}");

    let bytes = STANDARD.encode(b"\xff");
    let released = json!({"outcome": "release", "checkpoint_base64": bytes});
    settle(&site, &[item(&first, &released)]).await;
    // The lease has ended: it saves nothing.
    let late = post(&site, "extend", &extend(&json!({"checkpoint": "late"}))).await.json();
    assert_eq!(late["results"][0]["outcome"], "stale");
    let second = take(&site, 1).await.remove(0);
    assert_eq!((second.get("checkpoint"), &second["checkpoint_base64"]), (None, &json!(bytes)));
    assert_eq!(second["progress"]["done"], 0.5);

    // What cannot be saved or read is refused, not left out.
    let deep = format!(r#""checkpoint": {}{}"#, "[".repeat(200), "]".repeat(200));
    for (wrong, why) in [
        (r#""progress": 1.5"#, "from 0 to 1"),
        (r#""checkpoint": "\ud83d""#, "checkpoint must be a string"),
        (r#""progress": 1e999"#, "progress is a number"),
        (&deep, "checkpoint must be a string"),
    ] {
        let of = format!(r#"{{"id": "a", "token": {}, {wrong}"#, second["token"]);
        let extend = format!(r#"{{"leases": [{of}}}]}}"#);
        let settle = format!(r#"{{"settlements": [{of}, "outcome": "release"}}]}}"#);
        for (path, body) in [("extend", extend), ("settle", settle)] {
            let path = format!("/queues/orders/{path}");
            call(&site, "POST", &path, &body).await.status(400).has(why);
        }
    }
}
