//! Primaries that are lost while polls wait: a ledger of ids shows that nothing is lost, and that
//! only one holder can settle a message.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use delayline::codec::Raw;
use delayline::{Bytes, Connect, Durability, Queue};
use delayline_test_server::{Cluster, Sentinels, Server, until};
use delayline_web::{Access, Dashboard, Role, Router};
use serde_json::{Value, json};

use crate::pull::item;
use crate::support::{call, get};

const CLIENTS: u64 = 24;
/// Messages that are sent before the primary is lost.
const BEFORE: u64 = 150;
const MESSAGES: u64 = 400;

/// What clients know of the messages.
#[derive(Default)]
struct Ledger {
    /// The tokens of each message that were answered as settled.
    settled: Mutex<BTreeMap<String, BTreeSet<String>>>,
    /// The leases that each message was delivered under.
    leases: Mutex<BTreeMap<String, BTreeSet<String>>>,
    /// Requests that were answered with an error that may be repeated.
    interrupted: AtomicU64,
    ends: AtomicBool,
}

impl Ledger {
    fn settled(&self) -> u64 {
        self.settled.lock().unwrap().len().try_into().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn polls_behind_sentinels_outlast_a_killed_primary() {
    let sentinels = Sentinels::builder().replicas(2).start();
    let primary = sentinels.primary();
    lose(&sentinels.url(), "orders", async || {
        primary.kill();
        until("another server is the primary", || !std::ptr::eq(sentinels.primary(), primary))
            .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn polls_on_a_cluster_outlast_a_killed_primary() {
    let cluster = Cluster::builder().replicas(1).start();
    let [first, witness, ..] = cluster.nodes() else { panic!("six nodes") };
    let owner = |name: &str| cluster.owner(first, cluster.slot(name));
    let mut names = (0..).map(|number| format!("orders-{number}"));
    let name = names.find(|name| std::ptr::eq(owner(name), first)).unwrap();
    let slot = cluster.slot(&name);
    lose(&cluster.url_of(&[witness]), &name, async || {
        first.kill();
        let is_replaced = || !std::ptr::eq(cluster.owner(witness, slot), first);
        until("another node has the slots", is_replaced).await;
        // It becomes the replica that confirms.
        first.restart();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn polls_outlast_a_restarted_server() {
    let server = Server::builder().append_only("always").start();
    let queue = open(&server.url(), "orders").await;
    lose_of(&queue, "orders", async || {
        server.kill();
        server.restart();
    })
    .await;
}

async fn open(url: &str, name: &str) -> Queue<Bytes, Raw> {
    let connection = Connect::new(url).unwrap().connect().await.unwrap();
    connection.queue(name).await.unwrap().codec(Raw)
}

/// Loses a primary with `lose`. What a replica confirmed is not lost: so are sends and ends.
async fn lose(url: &str, name: &str, lose: impl AsyncFnOnce()) {
    let queue = open(url, name).await;
    let interrupted = lose_of(&queue.durability(Durability::Replicas(1)), name, lose).await;
    assert!(interrupted > 0, "the failover was not felt");
}

/// Returns how many requests had to be repeated.
async fn lose_of(queue: &Queue<Bytes, Raw>, name: &str, lose: impl AsyncFnOnce()) -> u64 {
    let access = Access::everyone(Role::Operator | Role::Worker);
    let site = Dashboard::new(access).queue(queue.clone()).router().unwrap();
    let name = name.to_owned();
    let ledger = Arc::new(Ledger::default());
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| tokio::spawn(client(site.clone(), name.clone(), Arc::clone(&ledger), number)))
        .collect();
    send(&site, &name, 0..BEFORE, &ledger).await;
    wait_for(&ledger, BEFORE).await;
    // All polls wait. Some messages fall due while there is no primary.
    let rest = tokio::spawn({
        let (site, name, ledger) = (site.clone(), name.clone(), Arc::clone(&ledger));
        async move { send(&site, &name, BEFORE..MESSAGES, &ledger).await }
    });
    lose().await;
    rest.await.unwrap();
    wait_for(&ledger, MESSAGES).await;
    ledger.ends.store(true, Ordering::SeqCst);
    for client in clients {
        client.await.unwrap();
    }
    for (id, tokens) in &*ledger.settled.lock().unwrap() {
        assert_eq!(tokens.len(), 1, "{id} was settled under several leases");
    }
    let expected: BTreeSet<String> = (0..MESSAGES).map(|number| format!("m{number}")).collect();
    let settled: BTreeSet<String> = ledger.settled.lock().unwrap().keys().cloned().collect();
    assert_eq!(settled, expected);
    let counts = get(&site, &format!("/api/v1/queues/{name}")).await.status(200).json();
    for state in ["scheduled", "ready", "leased", "dead"] {
        assert_eq!(counts[state], 0, "{counts}");
    }
    ledger.interrupted.load(Ordering::SeqCst)
}

/// Sends messages, each until it is confirmed. Every third is due in two seconds.
async fn send(site: &Router, name: &str, numbers: std::ops::Range<u64>, ledger: &Ledger) {
    let path = format!("/queues/{name}/messages");
    for number in numbers {
        let delay = if number % 3 == 0 { "2s" } else { "0s" };
        let message = json!({
            "id": format!("m{number}"), "payload": number, "delay": delay, "max_crashes": 100,
        });
        patiently(site, &path, &message, ledger).await;
    }
}

/// Claims, repeating each claim until it is answered, and settles what it gets.
async fn client(site: Router, name: String, ledger: Arc<Ledger>, number: u64) {
    let path = |verb: &str| format!("/queues/{name}/{verb}");
    for claims in 0_u64.. {
        if ledger.ends.load(Ordering::SeqCst) {
            return;
        }
        let body = json!({
            "max": number % 3 + 1, "wait": "3s", "lease": "4s",
            "consumer": format!("c{number}"), "claim_id": claims.to_string(),
        });
        let claimed = patiently(&site, &path("claim"), &body, &ledger).await;
        let deliveries = claimed["deliveries"].as_array().unwrap().clone();
        if deliveries.is_empty() {
            continue;
        }
        for delivery in &deliveries {
            let [id, token] = ["id", "token"].map(|name| delivery[name].as_str().unwrap());
            let mut leases = ledger.leases.lock().unwrap();
            // A claim that was granted twice would have the same token for two clients.
            let is_new = leases.entry(id.to_owned()).or_default().insert(token.to_owned());
            assert!(is_new, "two clients have the same lease of {id}");
        }
        let ack = json!({"outcome": "ack"});
        let items: Vec<Value> = deliveries.iter().map(|it| item(it, &ack)).collect();
        let body = json!({ "settlements": items });
        let settled = patiently(&site, &path("settle"), &body, &ledger).await;
        for (delivery, result) in deliveries.iter().zip(settled["results"].as_array().unwrap()) {
            let [id, token] = ["id", "token"].map(|name| delivery[name].as_str().unwrap());
            if ["settled", "already_settled"].iter().any(|it| result["outcome"] == *it) {
                let mut settled = ledger.settled.lock().unwrap();
                settled.entry(id.to_owned()).or_default().insert(token.to_owned());
            }
        }
    }
}

/// Repeats a request until it is answered.
async fn patiently(site: &Router, path: &str, body: &Value, ledger: &Ledger) -> Value {
    let begin = Instant::now();
    loop {
        let answer = call(site, "POST", path, &body.to_string()).await;
        if answer.status.is_success() {
            return answer.json();
        }
        let problem = answer.json();
        let may_be_repeated =
            ["not_executed", "ambiguous"].iter().any(|it| problem["class"] == *it);
        assert!(may_be_repeated, "{path}: {problem}");
        assert!(begin.elapsed() < PATIENCE, "{path}: {problem}");
        ledger.interrupted.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn wait_for(ledger: &Ledger, messages: u64) {
    until("all messages are settled", || ledger.settled() >= messages).await;
}

/// More than any failover takes on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(90);
