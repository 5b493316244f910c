//! Requests to the SQS endpoint.

use axum::body::{Body, to_bytes};
use axum::http::{Method, Request};
use delayline_sqs::{Access, AccessKey, Sqs};
use delayline_web::Role;
use tower::ServiceExt as _;

/// Reads the bytes as a request: a byte for protocol and users, a line with the action and the
/// signature, a line with path and query, and the body. Sends it to an endpoint whose queue has a
/// message.
///
/// # Panics
///
/// The router panics, or blames itself for a bad request; a signature is accepted that was made
/// without the secret; an error has no name.
pub fn sqs(data: &[u8]) {
    let Some((&kind, rest)) = data.split_first() else { return };
    let mut parts = rest.splitn(3, |&byte| byte == b'\n');
    let mut next = || parts.next().unwrap_or_default();
    let (head, line, body) = (next(), next(), next().to_vec());
    let Ok(uri) = std::str::from_utf8(line) else { return };
    let method = if kind & 4 == 0 { Method::POST } else { Method::GET };
    let mut request = Request::builder().method(method).uri(uri).header("host", "localhost");
    if kind & 1 == 0 {
        request = request.header("x-amz-target", head);
    }
    let has_users = kind & 2 != 0;
    if has_users {
        request = request.header("authorization", head).header("x-amz-date", "20260102T030405Z");
    }
    let Ok(request) = request.body(Body::from(body)) else { return };
    // Receives wait for seconds, which pass at once here.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("no runtime").block_on(answer(request, has_users));
}

async fn answer(request: Request<Body>, has_users: bool) {
    let connection = delayline::connect("memory:").await.expect("no connection");
    let queue = connection.queue::<str>("orders").await.expect("no queue");
    queue.send("payload").await.expect("not sent");
    let access = if has_users {
        Access::keys([AccessKey::new("anna", "a secret", Role::Admin | Role::Worker)])
    } else {
        Access::everyone(Role::Admin | Role::Worker)
    };
    let router = Sqs::new(connection, access).router().await.expect("no router");
    let is_json = request.headers().contains_key("x-amz-target");
    let Ok(response) = router.oneshot(request).await;
    let (head, body) = response.into_parts();
    let text = to_bytes(body, MOST_BYTES).await.expect("an answer that is too long");
    let text = String::from_utf8(text.to_vec()).expect("an answer that is no text");
    assert!(!head.status.is_server_error(), "{}: {text}", head.status);
    assert!(!has_users || head.status.is_client_error(), "{}: {text}", head.status);
    if head.status.is_client_error() {
        let name = if is_json { "\"__type\":\"com.amazon" } else { "<Code>" };
        assert!(text.contains(name), "{}: {text}", head.status);
    }
}

const MOST_BYTES: usize = 1 << 20;
