//! The parameters in URLs of the HTTP API.

use delayline::Found;
use delayline_web::Role;
use serde_json::json;

use crate::support::{call, orders, send, send_later, site};

const MESSAGES: &str = "/queues/orders/messages";

#[tokio::test]
async fn a_misspelt_or_repeated_parameter_is_refused() {
    let orders = orders().await;
    let site = site(&orders, Role::Operator);
    let refused = async |method: &str, url: &str, body: &str| {
        let problem = call(&site, method, &format!("{MESSAGES}{url}"), body).await.status(400);
        problem.json()["detail"].as_str().unwrap().to_owned()
    };
    let may = r#"the URL may only have the parameters ["state", "after", "limit"]"#;
    assert_eq!(refused("GET", "?stauts=dead", "").await, may);
    assert_eq!(refused("GET", "?limit=1&limit=2", "").await, "the URL has `limit` more than once");
    let none = "the URL may have no parameters";
    assert_eq!(refused("POST", "?delay=5s", r#"{"id": "a", "payload": 1}"#).await, none);
    assert_eq!(refused("DELETE", "/a?reason=old", "").await, none);
    assert!(matches!(orders.get("a").await, Ok(Found::Unknown)));
    call(&site, "GET", &format!("{MESSAGES}?limit=1&after=&state=dead"), "").await.status(200);
    call(&site, "HEAD", &format!("{MESSAGES}?limit=1"), "").await.status(200);
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
