//! What visitors did stands in the log.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use delayline_web::{Access, ClientAddress, Credential, Dashboard, Role, Visitor};
use tower::ServiceExt as _;

use crate::support::{
    JSON, ask, call, exchange, get, let_die, orders, post, send, send_later, site,
};
use crate::trouble::Trouble;

/// The lines of the log.
#[derive(Clone, Default)]
pub struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    /// The log of all tests of this program, whose actions are other visitors'.
    pub fn all() -> &'static Self {
        static LINES: OnceLock<Lines> = OnceLock::new();
        LINES.get_or_init(|| {
            let lines = Self::default();
            let writer = lines.clone();
            tracing_subscriber::fmt()
                .with_ansi(false)
                .with_max_level(tracing::Level::DEBUG)
                .with_writer(move || writer.clone())
                .init();
            lines
        })
    }

    /// All of it.
    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// What a visitor did, a line for each.
    pub fn of(&self, visitor: &str) -> Vec<String> {
        let field = format!("visitor={visitor} ");
        self.text().lines().filter(|line| line.contains(&field)).map(str::to_owned).collect()
    }
}

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn every_action_leaves_a_line() {
    let lines = Lines::all();
    let orders = orders().await;
    send(&orders, "order-1", "hunter2").await;
    let access = Access::resolver(|_| Some(Visitor::new("anna\n", Role::Admin)));
    let site = Dashboard::new(access).queue(orders).router().unwrap();
    post(&site, "/pause?queue=orders", "").await.status(303);
    post(&site, "/cancel?queue=orders&id=order-1", "sure=yes").await.status(303);
    post(&site, "/repair?queue=orders", "sure=yes").await.status(200);
    post(&site, "/send?queue=orders", "id=a&payload=hunter2").await.leads_to();
    let two = r#"{"ids": ["b", "c"], "delay": "5m"}"#;
    call(&site, "POST", "/queues/orders/dead/redrive", two).await.status(200);
    let audit = lines.of(r"anna\n");
    let actions = ["pause", "cancel", "repair", "send", "redrive"];
    assert_eq!(audit.len(), actions.len(), "{audit:?}");
    for (line, action) in audit.iter().zip(actions) {
        assert!(line.contains("INFO delayline_web::audit") && line.contains(action), "{line}");
        assert!(line.contains(r#"queue="orders""#) && !line.contains("hunter2"), "{line}");
    }
    assert!(audit[1].contains("order-1") && audit[1].contains("cancelled 1"), "{}", audit[1]);
    for (line, fields) in [
        (0, r#"messages=0 outcome="done" undo="resume""#),
        (1, r#"messages=1 id="order-1" outcome="#),
        (3, r#"messages=1 id="a" outcome="created""#),
        (4, r#"messages=2 outcome="#),
    ] {
        assert!(audit[line].contains(fields), "{}", audit[line]);
    }
    assert!(audit[2].contains(r#"outcome="repaired 0""#), "{}", audit[2]);
    for limits in [r#"{"leased": 3}"#, r#"{"leased": null, "hold": "30m"}"#] {
        call(&site, "POST", "/queues/orders/limits", limits).await.status(200);
    }
    // The body of a request that takes the second change back.
    let audit = lines.of(r"anna\n");
    let (_, undo) = audit[6].split_once("undo=").unwrap();
    let undo: String = serde_json::from_str(undo).unwrap();
    assert!(undo.contains(r#""hold":null"#) && undo.contains(r#""leased":3"#), "{undo}");
    call(&site, "POST", "/queues/orders/limits", &undo)
        .await
        .status(200)
        .has("\"held_until\":null");
    // The queue is paused already, so there is nothing to undo.
    post(&site, "/pause?queue=orders", "").await.status(303);
    let last = lines.of(r"anna\n").pop().unwrap();
    assert!(last.contains("pause") && !last.contains("undo"), "{last}");
}

#[tokio::test]
async fn refused_requests_leave_a_line() {
    let lines = Lines::all();
    let access = Access::resolver(|_| Some(Visitor::new("emil", Role::Viewer)));
    let site = Dashboard::new(access).queue(orders().await).router().unwrap();
    post(&site, "/purge?queue=orders&id=bad-1", "sure=yes").await.status(403);
    call(&site, "POST", "/queues/orders/messages", "{}").await.status(403);
    get(&site, "/queues").await.status(200);
    get(&site, "/nowhere").await.status(404);
    let forged = [("sec-fetch-site", "cross-site")];
    ask(&site, "POST", "/pause?queue=from-evil", &forged, "").await.status(403);
    let told = lines.of("emil");
    assert_eq!(told.len(), 2, "{told:?}");
    for (line, request) in told
        .iter()
        .zip(["POST /purge?queue=orders&id=bad-1", "POST /api/v1/queues/orders/messages"])
    {
        assert!(line.contains("WARN delayline_web::audit") && line.contains(request), "{line}");
        assert!(line.contains("needs the role"), "{line}");
    }
    let forged = lines.of("unknown");
    assert!(forged.iter().any(|line| line.contains("from-evil")), "{forged:?}");
}

#[tokio::test(start_paused = true)]
async fn failed_logins_leave_a_line_without_secrets_and_are_slowed() {
    let lines = Lines::all();
    let access = Access::credentials([Credential::basic("frieda", "secret", Role::Viewer)]);
    let site = Dashboard::new(access).queue(orders().await).router().unwrap();
    let login = async |user: &str, password: &str, address: [u8; 4]| {
        let login = STANDARD.encode(format!("{user}:{password}"));
        let request = Request::get("/queues").header("authorization", format!("Basic {login}"));
        let request = request.extension(ClientAddress(address.into())).body(Body::empty());
        exchange(&site, request.unwrap()).await
    };
    let (evil, other) = ([192, 0, 2, 66], [192, 0, 2, 7]);
    login("frieda", "hunter2", evil).await.status(401);
    let told = lines.of("frieda");
    assert_eq!(told.len(), 1, "{told:?}");
    login("my-pa55word", "", evil).await.status(401);
    assert_eq!(lines.of("frieda"), told);
    for part in ["WARN delayline_web::audit", r#"action="login""#, r#"address="192.0.2.66""#] {
        assert!(told[0].contains(part), "{told:?}");
    }
    assert!(!lines.text().contains("hunter2") && !lines.text().contains("my-pa55word"));

    let passwords: Vec<String> = (0..200).map(|n| format!("guess-{n}")).collect();
    let guesses = passwords.iter().map(|guess| login("frieda", guess, evil));
    let guesses = futures_util::future::join_all(guesses).await;
    let looked_at = guesses.iter().filter(|answer| answer.status == 401).count();
    assert!(looked_at < 20, "{looked_at}");
    assert!(guesses.iter().filter(|answer| answer.status == 429).count() == 200 - looked_at);
    // Somewhere else, and after a while here too, the right one is let in at once.
    let begin = tokio::time::Instant::now();
    login("frieda", "secret", other).await.status(200);
    tokio::time::advance(Duration::from_secs(60)).await;
    login("frieda", "secret", evil).await.status(200);
    assert!(begin.elapsed() <= Duration::from_secs(61));
}

#[tokio::test]
async fn jobs_are_logged_with_their_orders_and_who_stops_them() {
    let lines = Lines::all();
    let orders = orders().await;
    let_die(&orders, &["a", "b", "c"], "the bank is down").await;
    let access = Access::resolver(|request| {
        Some(Visitor::new(request.headers.get("x-user")?.to_str().ok()?, Role::Admin))
    });
    let site = Dashboard::new(access).queue(orders).router().unwrap();
    let by = async |user: &str, method: &str, path: &str, body: &str| {
        let uri = format!("/api/v1{path}");
        ask(&site, method, &uri, &[JSON, ("x-user", user)], body).await.status(202)
    };
    let jobs = "/queues/orders/dead/jobs";
    let order = r#"{"action": "purge", "error": "bank", "rate": 1, "limit": 2}"#;
    let job = by("gustav", "POST", jobs, order).await.json()["id"].as_str().unwrap().to_owned();
    by("helga", "DELETE", &format!("{jobs}/{job}"), "").await;
    let started = lines.of("gustav");
    let id = format!("job={job:?}");
    for part in [r#"action="purge_matching""#, r#"filter="error=bank""#, "rate=1", "limit=2", &id] {
        assert!(started[0].contains(part), "{part}: {started:?}");
    }
    let stopped = lines.of("helga");
    assert!(stopped.len() == 1 && stopped[0].contains(r#"action="stop_job""#), "{stopped:?}");
    assert!(stopped[0].contains(&id) && stopped[0].contains("asked to stop"), "{stopped:?}");
}

#[tokio::test]
async fn an_action_leaves_a_line_though_its_client_has_gone() {
    let lines = Lines::all();
    let (orders, api) = (orders().await, "/api/v1/queues/orders");
    send_later(&orders, "order-1", 60).await;
    let (trouble, slow) = Trouble::holds_replies(&orders);
    let access = Access::resolver(|request| {
        Some(Visitor::new(request.headers.get("x-user")?.to_str().ok()?, Role::Admin))
    });
    let site = Dashboard::new(access).queue(slow).router().unwrap();
    let message = r#"{"id": "order-2", "payload": 1}"#;
    for (n, (uri, body, action)) in [
        ("/pause?queue=orders".to_owned(), "", "pause"),
        ("/cancel?queue=orders&id=order-1".to_owned(), "sure=yes", "cancel"),
        ("/repair?queue=orders".to_owned(), "sure=yes", "repair"),
        (format!("{api}/resume"), "", "resume"),
        (format!("{api}/messages"), message, "send"),
    ]
    .into_iter()
    .enumerate()
    {
        let visitor = format!("gone-{n}");
        let request = Request::post(&uri).header("x-user", &visitor);
        let kinds = ["application/x-www-form-urlencoded", "application/json"];
        let request = request.header("content-type", kinds[usize::from(body == message)]);
        let request = request.body(Body::from(body)).unwrap();
        let answer = tokio::spawn(site.clone().oneshot(request));
        trouble.executed().await;
        // As a server does when the connection ends.
        answer.abort();
        assert!(answer.await.unwrap_err().is_cancelled(), "{uri}");
        trouble.release();
        let told = async {
            while lines.of(&visitor).is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), told).await.expect(&uri);
        let audit = lines.of(&visitor);
        assert!(audit.len() == 1 && audit[0].contains(&format!("{action:?}")), "{audit:?}");
    }
    let stats = orders.stats().await.unwrap();
    assert_eq!((stats.totals.cancelled, stats.ready, stats.paused), (1, 1, false));
}

#[tokio::test]
async fn a_repair_that_stops_says_how_far_it_came() {
    let lines = Lines::all();
    let orders = orders().await;
    for n in 0..150 {
        send(&orders, &format!("order-{n}"), "x").await;
    }
    let access = Access::resolver(|_| Some(Visitor::new("carla", Role::Admin)));
    let weak = Trouble::refuses_after(1, &orders);
    let site = Dashboard::new(access).queue(weak).router().unwrap();
    let page = post(&site, "/repair?queue=orders", "sure=yes").await.status(502);
    let page = page.has("100 messages examined").has("The repair stopped here: ");
    let page = page.has("access rules").has("after=").lacks("Nothing was changed");
    drop(page);
    let audit = lines.of("carla");
    assert!(audit.len() == 1 && audit[0].contains("repaired 0, then: "), "{audit:?}");
}

#[tokio::test]
async fn a_check_that_stops_says_how_far_it_came() {
    let orders = orders().await;
    let ids: Vec<String> = (0..150).map(|n| format!("bad-{n}")).collect();
    let_die(&orders, &ids, "no").await;
    let site = site(&Trouble::refuses_after(1, &orders), Role::Operator);
    let page = get(&site, "/check?queue=orders").await.status(502);
    page.has("100 messages examined").has("The check stopped here: ").has("after=");
    // Not even the first step.
    let page = get(&site, "/check?queue=orders").await.status(502);
    page.has("The server refused").lacks("stopped here").lacks("cannot be reached");
}
