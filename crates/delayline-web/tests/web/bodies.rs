//! Bodies of requests take a bounded amount of memory.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use delayline::Bytes;
use delayline_web::Role;
use futures_util::{StreamExt as _, stream};
use tower::ServiceExt as _;

use crate::support::{call, exchange, orders, site};

const MIB: usize = 1024 * 1024;
const SEND: &str = "/api/v1/queues/orders/messages";
static SPACES: [u8; 16 * 1024] = [b' '; 16 * 1024];

/// A body that does not end, whose bytes are counted as they are read.
fn unfinished(length: usize, read: &Arc<AtomicUsize>) -> Body {
    let read = Arc::clone(read);
    let chunks = stream::repeat_with(move || {
        read.fetch_add(SPACES.len(), Ordering::SeqCst);
        Ok::<_, Infallible>(Bytes::from_static(&SPACES))
    });
    Body::from_stream(chunks.take(length / SPACES.len()).chain(stream::pending()))
}

#[tokio::test(start_paused = true)]
async fn unfinished_bodies_together_take_a_bounded_amount_of_memory() {
    let orders = orders().await;
    let site = site(&orders, Role::Operator);
    let read = Arc::new(AtomicUsize::new(0));
    let hold = |path: &'static str| {
        let request = Request::post(path).header("content-type", "application/json");
        let request = request.body(unfinished(8 * MIB - SPACES.len(), &read)).unwrap();
        tokio::spawn(site.clone().oneshot(request))
    };
    let held: Vec<_> = (0..300).map(|_| hold(SEND)).collect();
    tokio::time::sleep(Duration::from_secs(4)).await;
    let bytes = read.load(Ordering::SeqCst);
    assert!((100 * MIB..160 * MIB).contains(&bytes), "{bytes}");
    // A small body needs no share of the budget; a large one waits and is then refused.
    let small = call(&site, "POST", "/queues/orders/messages", r#"{"payload": 7}"#).await;
    small.status(201);
    let large = Request::post(SEND).header("content-type", "application/json");
    let large = large.body(Body::from(vec![b' '; MIB])).unwrap();
    let answer = exchange(&site, large).await.status(503).has("too many large requests");
    assert_eq!(answer.header("retry-after"), "1");
    for task in held {
        let status = task.await.unwrap().unwrap().status().as_u16();
        assert!([408, 503].contains(&status), "{status}");
    }
    // Requests that gave up have left their places.
    let payload = "x".repeat(MIB - 100);
    let message = format!(r#"{{"payload": "{payload}"}}"#);
    call(&site, "POST", "/queues/orders/messages", &message).await.status(201);
    let before = read.load(Ordering::SeqCst);
    assert_eq!(hold("/api/v1/queues/orders/dead/redrive").await.unwrap().unwrap().status(), 413);
    assert!(read.load(Ordering::SeqCst) - before <= 3 * MIB);
}
