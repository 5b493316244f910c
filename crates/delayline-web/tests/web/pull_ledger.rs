//! Clients that go away at any moment: a ledger shows that nothing is lost.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use delayline::codec::Raw;
use delayline_web::{Role, Router};
use serde_json::{Value, json};
use tokio::time::timeout;
use tower::ServiceExt as _;

use crate::pull::{item, post};
use crate::support::{Raws, orders, send, site};

const MESSAGES: u64 = 400;

/// What clients know of the messages.
#[derive(Default)]
struct Ledger {
    held: Mutex<HashSet<String>>,
    acked: Mutex<HashSet<String>>,
    gone: AtomicU64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn clients_that_vanish_lose_nothing_and_hold_nothing() {
    vanish(orders().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn clients_that_vanish_hold_nothing_in_any_shard() {
    let connection = delayline::connect("memory:").await.unwrap();
    vanish(connection.queue("orders").shards(3).await.unwrap().codec(Raw)).await;
}

async fn vanish(orders: Raws) {
    let site = site(&orders, Role::Worker);
    let ledger = Arc::new(Ledger::default());
    let clients: Vec<_> = (1..=8_u64)
        .map(|seed| tokio::spawn(client(site.clone(), Arc::clone(&ledger), seed * 0x9e37_79b9)))
        .collect();
    for number in 0..MESSAGES {
        send(&orders, &format!("m{number}"), "x").await;
    }
    for client in clients {
        // No lease expires within the test: one that stays would hold its message permanently.
        timeout(Duration::from_secs(120), client).await.expect("a lease has stayed").unwrap();
    }
    assert!(ledger.gone.load(Ordering::SeqCst) > 100);
    let stats = orders.stats().await.unwrap();
    assert_eq!((stats.totals.acked, stats.leased, stats.ready), (MESSAGES, 0, 0));
    assert_eq!((stats.totals.crashed, stats.totals.failed, stats.dead), (0, 0, 0));
    assert_eq!(stats.totals.delivered(), stats.totals.acked + stats.totals.released);
}

async fn client(site: Router, ledger: Arc<Ledger>, mut seed: u64) {
    let mut claims = 0;
    while u64::try_from(ledger.acked.lock().unwrap().len()).unwrap() < MESSAGES {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        claims += 1;
        // Some claims are repeated.
        let body = json!({
            "max": seed % 5 + 1, "wait": format!("{}ms", seed % 50), "lease": "1h",
            "consumer": format!("c{seed}"), "claim_id": format!("{claims}"),
        });
        let request = || {
            let request = Request::post("/api/v1/queues/orders/claim");
            let request = request.header("content-type", "application/json");
            site.clone().oneshot(request.body(Body::from(body.to_string())).unwrap())
        };
        match seed % 4 {
            0 => {
                let _ = timeout(Duration::from_micros(seed % 2_000), request()).await;
                ledger.gone.fetch_add(1, Ordering::SeqCst);
            }
            1 => {
                drop(request().await.unwrap());
                ledger.gone.fetch_add(1, Ordering::SeqCst);
            }
            2 => {
                // The first answer is lost, and the claim is repeated meanwhile.
                let lost = tokio::spawn(request());
                handle(&site, &ledger, &body, seed).await;
                lost.abort();
                drop(lost.await);
            }
            _ => handle(&site, &ledger, &body, seed).await,
        }
    }
}

/// Claims, and acks or releases the messages, which it must hold alone.
async fn handle(site: &Router, ledger: &Ledger, body: &Value, seed: u64) {
    let claimed = post(site, "claim", body).await.status(200).json();
    let deliveries = claimed["deliveries"].as_array().unwrap();
    let ids: Vec<String> = deliveries.iter().map(|it| it["id"].to_string()).collect();
    for id in &ids {
        assert!(ledger.held.lock().unwrap().insert(id.clone()), "{id} is leased twice");
        assert!(!ledger.acked.lock().unwrap().contains(id), "{id} is acked, and leased again");
    }
    tokio::task::yield_now().await;
    let outcome = if seed.is_multiple_of(3) { "release" } else { "ack" };
    for id in &ids {
        if outcome == "ack" {
            ledger.acked.lock().unwrap().insert(id.clone());
        }
        ledger.held.lock().unwrap().remove(id);
    }
    let how = json!({ "outcome": outcome });
    let items: Vec<Value> = deliveries.iter().map(|it| item(it, &how)).collect();
    if !items.is_empty() {
        let settled =
            post(site, "settle", &json!({ "settlements": items })).await.status(200).json();
        for result in settled["results"].as_array().unwrap() {
            assert_eq!(result["outcome"], "settled", "{result}");
        }
    }
}
