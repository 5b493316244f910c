//! Who may do what, and from where.

use axum::http::header;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use delayline_web::{Access, Credential, Dashboard, Role, Router, Visitor};
use serde_json::json;

use crate::support::{JSON, ask, call, get, let_die, open, orders, post, send, site};
use crate::trouble::{ADDRESS, Trouble};

const VIEWED: [&str; 6] = [
    "/queues",
    "/queue?queue=orders",
    "/messages?queue=orders&state=ready",
    "/message?queue=orders&id=order-1",
    "/message?queue=orders&id=bad-1",
    "/dead?queue=orders",
];

/// Actions, and the role that each needs.
const ACTIONS: [(&str, Role); 8] = [
    ("/pause?queue=orders", Role::Operator),
    ("/resume?queue=orders", Role::Operator),
    ("/limits?queue=orders", Role::Operator),
    ("/cancel?queue=orders&id=order-1", Role::Operator),
    ("/reschedule?queue=orders&id=order-1", Role::Operator),
    ("/redrive?queue=orders&id=bad-1", Role::Operator),
    ("/purge?queue=orders&id=bad-1", Role::Admin),
    ("/repair?queue=orders", Role::Admin),
];

#[tokio::test]
async fn a_viewer_looks_and_does_nothing() {
    let orders = orders().await;
    let_die(&orders, &["bad-1"], "no").await;
    send(&orders, "order-1", "hunter2").await;
    let site = site(&orders, Role::Viewer);
    for uri in VIEWED {
        let page = get(&site, uri).await.status(200).lacks("hunter2");
        page.lacks(r#"method="post""#).lacks("Pause").lacks("class=\"button\"");
    }
    get(&site, "/content?queue=orders&id=order-1").await.status(403);
    get(&site, "/check?queue=orders").await.status(403);
    for (uri, _) in ACTIONS {
        let fields = if uri.contains("pause") || uri.contains("resume") { "" } else { "sure=yes" };
        post(&site, uri, fields).await.status(403).has("nothing was done");
    }
    let message = call(&site, "GET", "/queues/orders/messages/order-1", "").await.status(200);
    assert!(message.json().get("payload").is_none());
    let before = orders.stats().await.unwrap();
    assert_eq!((before.ready, before.dead, before.paused), (1, 1, false));
}

#[tokio::test]
async fn an_operator_does_what_can_be_undone() {
    let orders = orders().await;
    let_die(&orders, &["bad-1"], "no").await;
    send(&orders, "order-1", "hunter2").await;
    let site = site(&orders, Role::Operator);
    get(&site, "/message?queue=orders&id=order-1").await.status(200).has("hunter2");
    for (uri, needs) in ACTIONS {
        let answer = post(&site, uri, "sure=yes&when=0s").await;
        assert_eq!(answer.status == 403, needs == Role::Admin, "{uri}: {answer:?}");
    }
}

#[tokio::test]
async fn contents_may_be_for_others() {
    let orders = orders().await;
    send(&orders, "order-1", "hunter2").await;
    for (role, least, shown) in [
        (Role::Viewer, Role::Viewer, true),
        (Role::Operator, Role::Admin, false),
        (Role::Admin, Role::Admin, true),
    ] {
        let dashboard = Dashboard::new(Access::everyone(role)).contents_for(least);
        let site = dashboard.queue(orders.clone()).router().unwrap();
        let page = get(&site, "/message?queue=orders&id=order-1").await.status(200);
        assert_eq!(page.text().contains("hunter2"), shown, "{role:?} {least:?}");
        let file = get(&site, "/content?queue=orders&id=order-1").await;
        assert_eq!(file.status == 200, shown);
    }
}

#[tokio::test]
async fn redacted_messages_are_redacted_everywhere() {
    let orders = orders().await;
    let_die(&orders, &["bad-1"], "hunter2").await;
    let draft = orders.message(&"hunter2".into()).id("order-1").header("password", "hunter2");
    assert!(draft.send().await.unwrap().is_accepted());
    let dashboard = Dashboard::new(Access::everyone(Role::Admin)).redact(|queue, message| {
        assert_eq!(queue, "orders");
        message.payload = "(hidden)".into();
        message.headers = delayline::message::Headers::new();
        message.info.last_error = message.info.last_error.take().map(|_| "(hidden)".to_owned());
        message.info.first_error = None;
    });
    let site = dashboard.queue(orders.clone()).router().unwrap();
    for uri in [
        "/message?queue=orders&id=order-1",
        "/content?queue=orders&id=order-1",
        "/api/v1/queues/orders/messages/order-1",
        "/messages?queue=orders&state=ready",
        "/message?queue=orders&id=bad-1",
        "/dead?queue=orders",
        "/api/v1/queues/orders/dead",
    ] {
        get(&site, uri).await.status(200).lacks("hunter2");
    }
    get(&site, "/content?queue=orders&id=order-1").await.has("(hidden)");
}

fn guarded(queue: &crate::support::Raws) -> Router {
    let access = Access::credentials([
        Credential::bearer("robot", "t0ken", Role::Viewer),
        Credential::basic("anna", "secret", Role::Operator),
    ]);
    Dashboard::new(access).queue(queue.clone()).router().unwrap()
}

#[tokio::test]
async fn nobody_comes_in_without_a_credential() {
    let orders = orders().await;
    let site = guarded(&orders);
    for uri in VIEWED.into_iter().chain(["/workers", "/metrics", "/api/v1/queues", "/nowhere"]) {
        let answer = get(&site, uri).await.status(401);
        let asked: Vec<_> = answer.headers.get_all(header::WWW_AUTHENTICATE).iter().collect();
        assert_eq!(asked.len(), 2, "{uri}");
        assert!(!answer.text().contains("orders"), "{uri}: {}", answer.text());
    }
    // Nor do visitors without a login learn what a request may carry.
    for uri in ["/queue?stauts=dead", "/live?x", "/metrics?x", "/api/v1/queues?x"] {
        let answer = get(&site, uri).await.status(401);
        assert!(!answer.text().contains("may have"), "{uri}: {}", answer.text());
    }
    call(&site, "POST", "/queues/orders/pause", "{}").await.status(401);
    let problem = get(&site, "/api/v1/queues").await;
    assert_eq!(problem.header("content-type"), "application/problem+json");
    get(&site, "/health").await.status(200);
    let with =
        async |value: &str| ask(&site, "GET", "/queues", &[("authorization", value)], "").await;
    with("Bearer t0ken").await.status(200).has("robot, viewer");
    let anna = format!("Basic {}", STANDARD.encode("anna:secret"));
    with(&anna).await.status(200).has("anna, operator");
    with("Bearer t0ken2").await.status(401);
}

#[tokio::test]
async fn a_resolver_decides() {
    let orders = orders().await;
    let access = Access::resolver(|request| {
        let user = request.headers.get("x-user")?.to_str().ok()?;
        Some(Visitor::new(user, Role::Viewer))
    });
    let site = Dashboard::new(access).queue(orders).router().unwrap();
    get(&site, "/queues").await.status(403).lacks("orders");
    let page = ask(&site, "GET", "/queues", &[("x-user", "<b>")], "").await;
    page.status(200).has("&lt;b&gt;, viewer");
}

#[tokio::test]
async fn only_operators_see_what_the_server_says() {
    let orders = orders().await;
    let ids: Vec<String> = (0..250).map(|n| format!("bad-{n}")).collect();
    let_die(&orders, &ids, "no").await;
    let visitors = Access::resolver(|request| {
        let role = if request.headers.contains_key("x-operator") { "operator" } else { "viewer" };
        let is = if role == "operator" { Role::Operator } else { Role::Viewer };
        Some(Visitor::new(role, is))
    });
    // Enough for a job to start.
    let queue = Trouble::refuses_after(4, &orders);
    let site = Dashboard::new(visitors).queue(queue).router().unwrap();
    let by = async |method: &str, uri: &str, operator: bool, body: &str| {
        let headers = [JSON, ("x-operator", "1")];
        ask(&site, method, uri, &headers[..1 + usize::from(operator)], body).await
    };
    let jobs = "/api/v1/queues/orders/dead/jobs";
    let started = by("POST", jobs, true, r#"{"action": "count"}"#).await.status(202).json();
    let job = format!("{jobs}/{}", started["id"].as_str().unwrap());
    while by("GET", &job, true, "").await.json()["state"] == "running" {
        tokio::task::yield_now().await;
    }
    for uri in [
        "/queues",
        "/queue?queue=orders",
        "/messages?queue=orders&state=ready",
        "/message?queue=orders&id=bad-1",
        "/dead?queue=orders",
        "/job?queue=orders",
        "/api/v1/queues/orders",
        "/api/v1/queues/orders/messages",
        &job,
    ] {
        by("GET", uri, false, "").await.has("access rules").lacks(ADDRESS);
        by("GET", uri, true, "").await.has("access rules").has(ADDRESS);
    }
}

#[tokio::test]
async fn forged_requests_do_nothing() {
    let orders = orders().await;
    let site = site(&orders, Role::Admin);
    let host = ("host", "queues.example");
    let forged: [&[(&str, &str)]; 7] = [
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site")],
        &[("sec-fetch-site", "cross-site"), ("origin", "http://queues.example")],
        &[("origin", "http://evil.example")],
        &[("origin", "null")],
        &[("origin", "http://queues.example:81")],
        &[("origin", "http://evil.example"), ("x-forwarded-host", "evil.example")],
    ];
    for headers in forged {
        for uri in ["/pause?queue=orders", "/api/v1/queues/orders/pause"] {
            let headers = [&[host], headers].concat();
            let answer = ask(&site, "POST", uri, &headers, "").await.status(403);
            let kind =
                if uri.starts_with("/api/") { "application/problem+json" } else { "text/html" };
            assert!(answer.header("content-type").starts_with(kind), "{uri}: {headers:?}");
            assert_eq!(answer.header("x-frame-options"), "DENY");
            answer.has("another site");
        }
    }
    assert!(!orders.stats().await.unwrap().paused);
    // A browser on the page itself, an old one, and a program.
    let honest: [&[(&str, &str)]; 3] =
        [&[("sec-fetch-site", "same-origin")], &[("origin", "http://queues.example")], &[]];
    for headers in honest {
        let headers = [&[host], headers].concat();
        ask(&site, "POST", "/pause?queue=orders", &headers, "").await.status(303);
    }
}

#[tokio::test]
async fn browsers_are_told_to_be_strict() {
    let site = site(&orders().await, Role::Viewer);
    for uri in ["/", "/queues", "/nowhere", "/api/v1/queues", "/health", "/metrics"] {
        let answer = get(&site, uri).await;
        let policy = answer.header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{uri}");
        assert!(policy.contains("frame-ancestors 'none'"));
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
        assert_eq!(answer.header("cache-control"), "no-store", "{uri}");
        assert_eq!(answer.header("set-cookie"), "");
    }
}

#[tokio::test]
async fn workers_see_no_lists_and_limited_tokens_one_queue() {
    let connection = delayline::connect("memory:").await.unwrap();
    let (orders, texts) = (open(&connection, "orders").await, open(&connection, "texts").await);
    send(&orders, "a", "hunter2").await;
    send(&texts, "b", "hunter2").await;
    let access = Access::credentials([
        Credential::bearer("worker", "t1", Role::Worker),
        Credential::bearer("limited", "t2", Role::Worker).only_queues(["texts"]),
        Credential::bearer("shop", "t3", Role::Operator).only_queues(["texts"]),
    ]);
    let dashboard = Dashboard::new(access).queue(orders.clone()).queue(texts);
    let site = dashboard.router().unwrap();
    let by = async |token: &str, method: &str, path: &str| {
        let body = match method {
            "GET" => "",
            _ if path.ends_with("claim") => r#"{"wait": "0s"}"#,
            _ => r#"{"payload": 1}"#,
        };
        let login = format!("Bearer {token}");
        ask(&site, method, path, &[JSON, ("authorization", &login)], body).await
    };
    let messages = "/api/v1/queues/texts/messages";
    for path in ["/queues", "/queue?queue=orders", "/metrics", "/live", "/api/v1/queues", messages]
    {
        by("t1", "GET", path).await.status(403).lacks("hunter2");
    }
    by("t1", "GET", messages).await.status(403).has("needs the role viewer");
    by("t1", "POST", messages).await.status(403).has("needs the role operator");
    let searches = "/api/v1/queues/texts/searches";
    by("t1", "POST", searches).await.status(403).has("needs the role operator");
    let open = Dashboard::new(Access::everyone(Role::Worker)).queue(orders.clone());
    let open = open.contents_for(Role::Viewer).router().unwrap();
    let refused = call(&open, "POST", "/queues/orders/searches", "{}").await.status(403);
    refused.has("needs the role viewer");
    by("t3", "POST", "/api/v1/queues/texts/claim").await.status(403).has("needs the role worker");
    let claim = async |token: &str, queue: &str| {
        by(token, "POST", &format!("/api/v1/queues/{queue}/claim")).await.status.as_u16()
    };
    assert_eq!((claim("t2", "orders").await, claim("t2", "texts").await), (404, 200));
    assert_eq!(by("t3", "GET", "/api/v1/queues").await.json()["queues"], json!(["texts"]));
    by("t3", "GET", "/queues").await.status(200).lacks("queue=orders");
    by("t3", "GET", "/queue?queue=orders").await.status(404);
    by("t3", "GET", "/metrics").await.status(200).lacks("orders");
    by("t3", "POST", "/api/v1/queues/orders/messages").await.status(404);
    by("t3", "POST", messages).await.status(201);
    assert_eq!(orders.stats().await.unwrap().totals.delivered(), 0);
}
