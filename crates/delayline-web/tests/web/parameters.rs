//! The parameters in URLs, and the bodies of requests.

use delayline::Found;
use delayline_web::Role;
use serde_json::json;

use crate::support::{ask, call, get, orders, send, send_later, site};

const MESSAGES: &str = "/api/v1/queues/orders/messages";

#[tokio::test]
async fn what_would_be_ignored_is_refused() {
    let orders = orders().await;
    let site = site(&orders, Role::Admin | Role::Worker);
    let refused = async |method: &str, uri: &str, kind: &str, body: &str, why: &str| {
        let answer = ask(&site, method, uri, &[("content-type", kind)], body).await;
        let answer = answer.status(400);
        let text = answer.text().replace("&quot;", "\"");
        assert!(text.replace("\\\"", "\"").contains(why), "{method} {uri} {body}: {text}");
        let is_problem = answer.header("content-type") == "application/problem+json";
        assert_eq!(is_problem, uri.starts_with("/api/"), "{uri}");
    };
    let (json, form) = ("application/json", "application/x-www-form-urlencoded");
    for (method, path, may) in [
        ("GET", MESSAGES, "state, after, limit"),
        ("HEAD", MESSAGES, "state, after, limit"),
        ("POST", MESSAGES, "none"),
        ("POST", "/api/v1/queues/orders/settle", "none"),
        ("DELETE", "/api/v1/queues/orders/messages/a", "none"),
        ("GET", "/api/v1/openapi.json", "none"),
        ("GET", "/queue", "queue, span, note, done, rest, live"),
        ("POST", "/zone", "none"),
        ("POST", "/pause", "queue"),
        ("GET", "/live", "queue, job, since, rows, name, page"),
        ("GET", "/queues", "name, page, note, done, rest, live"),
        ("GET", "/metrics", "none"),
        ("GET", "/health", "none"),
        ("GET", "/ready", "none"),
    ] {
        let why = format!("the URL has the unknown parameter \"stauts\"; it may have {may}");
        let why = if method == "HEAD" { "" } else { &why };
        refused(method, &format!("{path}?stauts=dead"), json, "", why).await;
        if !["DELETE", "HEAD"].contains(&method) && !path.ends_with("a") && may != "none" {
            let name = may.split(',').next().unwrap();
            let twice = format!("the URL has `{name}` more than once");
            refused(method, &format!("{path}?{name}=x&{name}=x"), json, "", &twice).await;
        }
    }
    for (method, uri) in [
        ("POST", "/api/v1/queues/orders/pause"),
        ("POST", "/api/v1/queues/orders/resume"),
        ("DELETE", "/api/v1/queues/orders/messages/a"),
        ("GET", "/api/v1/queues/orders"),
        ("POST", "/pause?queue=orders"),
        ("GET", "/queues"),
        ("GET", "/metrics"),
    ] {
        refused(method, uri, json, "{}", "this request takes no body").await;
    }
    let api = |path: &str| format!("/api/v1/queues/orders/{path}");
    let twice = |name| format!("the field \"{name}\" appears more than once");
    for (path, body, why) in [
        (
            "limits",
            r#"{"rate": {"count": 1, "count": 2, "per_ms": 1, "burst": 1}}"#,
            twice("count"),
        ),
        ("extend", r#"{"leases": [{"id": "a", "id": "b"}]}"#, twice("id")),
        ("dead/purge", r#"{"ids": [], "ids": []}"#, twice("ids")),
        ("messages", r#"{"payload": 1, "headers": {}, "headers": {}}"#, twice("headers")),
        ("limits", r#"{"laesed": 1}"#, "the body has the unknown member \"laesed\"".to_owned()),
        ("limits", r#"{"rate": {"x": 1}}"#, "rate has the unknown member \"x\"".to_owned()),
    ] {
        refused("POST", &api(path), json, body, &why).await;
    }
    for (path, body, why) in [
        ("/zone", "zoen=UTC", "the form has the unknown field \"zoen\"; it may have back, zone"),
        ("/zone", "zone=UTC&zone=UTC", "the form has `zone` more than once"),
        ("/send?queue=orders", "id=a&payload=%ff", "`payload` must be text in UTF-8"),
        ("/send?queue=orders", "id=a&when=1s&when=2s", "`when` is given more than once"),
        ("/bulk?queue=orders", "queue=texts&action=count", "name different queues"),
    ] {
        refused("POST", path, form, body, why).await;
    }
    let paused = orders.stats().await.unwrap().paused;
    assert!(!paused && matches!(orders.get("a").await, Ok(Found::Unknown)));
    get(&site, &format!("{MESSAGES}?limit=1&after=&state=dead")).await.status(200);
}

#[tokio::test]
async fn bodies_have_one_type_and_no_encoding() {
    let orders = orders().await;
    let site = site(&orders, Role::Admin | Role::Worker);
    let (json, form) = ("application/json", "application/x-www-form-urlencoded");
    let status = async |uri: &str, headers: &[(&str, &str)], body: &str| {
        ask(&site, "POST", uri, headers, body).await.status.as_u16()
    };
    let limits = "/api/v1/queues/orders/limits";
    for (uri, kind, body) in [
        (limits, json, r#"{"leased": null}"#),
        (MESSAGES, json, r#"{"payload": 1}"#),
        ("/api/v1/queues/orders/claim", json, r#"{"wait": "0s"}"#),
        ("/zone", form, "zone=UTC"),
    ] {
        let kind = ("content-type", kind);
        for headers in [
            &[][..],
            &[("content-type", "text/plain")],
            &[("content-type", if kind.1 == json { form } else { json })],
            &[("content-type", "application/json; charset=utf-16")],
            &[kind, kind],
            &[kind, ("content-encoding", "gzip")],
            &[kind, ("content-encoding", "identity"), ("content-encoding", "br")],
        ] {
            assert_eq!(status(uri, headers, body).await, 415, "{uri} {headers:?}");
        }
        for charset in ["Charset=\"UTF-8\"", "charset=utf8"] {
            let utf_8 = format!("{}; {charset}", kind.1.to_uppercase());
            let fine = [("content-type", &utf_8[..]), ("content-encoding", "identity")];
            assert!(status(uri, &fine, body).await < 400, "{uri} {charset}");
        }
        if kind.1 == json {
            let marked = format!("\u{feff}{body}");
            assert!(status(uri, &[kind], &marked).await < 300, "{uri}");
            assert_eq!(status(uri, &[kind], &format!("\u{feff}{marked}")).await, 400, "{uri}");
        }
    }
    let lines = [("content-type", "application/x-ndjson")];
    assert_eq!(status(MESSAGES, &lines, "\u{feff}{\"payload\": 1}\n").await, 200);
    // Without a body, there is nothing that could have a type.
    assert_eq!(status("/api/v1/queues/orders/pause", &[], "").await, 200);
}

#[tokio::test]
async fn a_forecast_counts_what_falls_due() {
    let orders = orders().await;
    send(&orders, "now", "1").await;
    send_later(&orders, "later", 7_200).await;
    let site = site(&orders, Role::Viewer);
    let forecast = async |query: &str, status| {
        call(&site, "GET", &format!("/queues/orders/forecast{query}"), "")
            .await
            .status(status)
            .json()
    };
    let value = forecast("?within=1h,%203h", 200).await;
    let due = json!([{"within_ms": 3_600_000, "count": 0}, {"within_ms": 10_800_000, "count": 1}]);
    assert_eq!(value, json!({"queue": "orders", "ready": 1, "due": due, "later": 0}));
    assert_eq!(forecast("", 200).await["due"].as_array().unwrap().len(), 6);
    for (query, said) in [
        ("?within=soon", "\"soon\" is not a duration"),
        ("?within=2h,1h", "must be longer than the one before"),
        ("?within=40000+days", "3155760000000"),
        (&format!("?within={}", "1h,".repeat(101)), "is not a duration"),
    ] {
        let problem = forecast(query, 400).await;
        assert!(problem["detail"].as_str().unwrap().contains(said), "{problem}");
    }
}
