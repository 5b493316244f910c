//! Requests to the dashboard and its HTTP API.

use axum::body::{Body, to_bytes};
use axum::http::{Method, Request, StatusCode};
use axum::response::Response;
use delayline::codec::Raw;
use delayline::{Bytes, Queue};
use delayline_web::{Access, Dashboard, Role};
use tower::ServiceExt as _;

/// Reads the bytes as a request: a byte for method and type of the content, a line with path and
/// query, and the body. Sends it to a dashboard whose queue has a message.
///
/// # Panics
///
/// The router panics, or blames itself for a bad request; an error of the API is not described; a
/// page has an element of its visitor's.
pub fn web(data: &[u8]) {
    let Some((&kind, rest)) = data.split_first() else { return };
    let mut parts = rest.splitn(2, |&byte| byte == b'\n');
    let (line, body) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let Ok(uri) = std::str::from_utf8(line) else { return };
    let request = Request::builder()
        .method(METHODS[usize::from(kind) % METHODS.len()].clone())
        .uri(uri)
        .header("content-type", TYPES[usize::from(kind) / METHODS.len() % TYPES.len()]);
    let Ok(request) = request.body(Body::from(body.to_vec())) else { return };
    // Events of `/live` end after minutes, which pass at once here.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("no runtime").block_on(answer(request));
}

async fn answer(request: Request<Body>) {
    let connection = delayline::connect("memory:").await.expect("no connection");
    let queue = connection.queue("orders").await.expect("no queue");
    let queue: Queue<Bytes, Raw> = queue.codec(Raw);
    let sent = queue.message(&Bytes::from_static(b"payload")).id("order-1").send().await;
    assert!(sent.expect("not sent").is_accepted());
    let dashboard = Dashboard::new(Access::everyone(Role::Admin)).queue(queue);
    let router = dashboard.router().expect("no router");
    let is_api = request.uri().path().starts_with("/api/");
    let Ok(response) = router.oneshot(request).await;
    check(response, is_api).await;
}

async fn check(response: Response, is_api: bool) {
    let (head, body) = response.into_parts();
    let text = to_bytes(body, MOST_BYTES).await.expect("an answer that is too long");
    let text = String::from_utf8_lossy(&text);
    let is_own_fault = head.status.is_server_error() && head.status != StatusCode::NOT_IMPLEMENTED;
    assert!(!is_own_fault, "{}: {text}", head.status);
    let media_type = head.headers.get("content-type").map_or(&b""[..], |value| value.as_bytes());
    if is_api && head.status.is_client_error() {
        assert_eq!(media_type, b"application/problem+json", "{}: {text}", head.status);
        assert!(text.contains(&format!("\"status\":{}", head.status.as_u16())), "{text}");
    }
    if media_type.starts_with(b"text/html") {
        assert_eq!(text.matches("<script").count(), 1, "{text}");
        assert!(!text.contains("<img"), "{text}");
    }
}

const METHODS: [Method; 5] =
    [Method::GET, Method::POST, Method::DELETE, Method::PATCH, Method::PUT];

const TYPES: [&str; 4] =
    ["application/json", "application/x-ndjson", "application/x-www-form-urlencoded", "text/plain"];

const MOST_BYTES: usize = 1 << 20;
