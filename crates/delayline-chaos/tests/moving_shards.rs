//! A queue of six shards on a cluster, over both drivers: slots move under load, then primaries are
//! killed and frozen. A ledger has every number that was sent. By name only, because each test
//! takes 20 s:
//!
//! ```sh
//! cargo xtask test -p delayline-chaos --test moving_shards
//! ```

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use delayline::{Connect, Draft, Durability, Enqueued, Error, Job, Queue, RedisClient, Worker};
use delayline_test_server::{Cluster, Server, until_blocking};
use fastrand::Rng;
use tokio::task::{JoinSet, block_in_place};
use tokio::time::{sleep, timeout};

const SHARDS: u32 = 6;
/// Of each program.
const SENDERS: usize = 32;
/// How often slots move.
const MOVES: u32 = 40;
/// How often primaries fail.
const FAILURES: u32 = 5;
/// Longer than any fault: a lease expires only if its holder is gone.
const LEASE: Duration = Duration::from_secs(20);
/// Leases of answers that a failover took away must expire.
const LATEST: Duration = Duration::from_secs(60);

/// What all programs of a test share.
#[derive(Default)]
struct Ledger {
    sent: AtomicU64,
    is_over: AtomicBool,
    /// How often each number was handled.
    handled: Mutex<BTreeMap<u64, usize>>,
}

/// Starts a program: a worker and senders with their own connection, while faults are injected.
async fn start(
    cluster: &Cluster,
    client: RedisClient,
    ledger: &Arc<Ledger>,
    sends: &mut JoinSet<()>,
) -> Queue<u64> {
    let connection = Connect::new(&cluster.url()).unwrap().client(client).connect().await.unwrap();
    let queue: Queue<u64> = connection.queue("orders").shards(SHARDS).await.unwrap();
    let worker = Worker::builder(queue.clone()).concurrency(32).lease(LEASE).build().unwrap();
    let handled = Arc::clone(ledger);
    tokio::spawn(worker.run(move |job: Job<u64>| {
        *handled.handled.lock().unwrap().entry(*job.payload()).or_default() += 1;
        async { Ok::<_, Error>(()) }
    }));
    for _ in 0..SENDERS {
        let (queue, ledger) = (queue.durability(Durability::Replicas(1)), Arc::clone(ledger));
        sends.spawn(async move {
            while !ledger.is_over.load(Ordering::Relaxed) {
                let n = ledger.sent.fetch_add(1, Ordering::Relaxed);
                // Not confirmed by a replica: sent again, which changes nothing if it is stored.
                while draft(&queue, n).send().await.is_err() {
                    sleep(Duration::from_millis(20)).await;
                }
            }
        });
    }
    queue
}

/// A number has one id. Half of them have a group.
fn draft(queue: &Queue<u64>, n: u64) -> Draft {
    let draft = queue.message(&n).id(format!("order-{n}")).max_crashes(1_000);
    if n % 2 == 0 { draft.group(format!("tenant-{}", n % 14)) } else { draft }
}

/// Moves the slot of a shard to another primary, in two halves.
fn move_a_shard(cluster: &Cluster, random: &mut Rng) {
    let slot = cluster.slot(&format!("{{orders#{}}}", random.u32(..SHARDS)));
    let from = cluster.owner(&cluster.nodes()[0], slot);
    let others: Vec<_> = primaries(cluster).filter(|it| it.port() != from.port()).collect();
    let to = others[random.usize(..others.len())];
    cluster.begin_to_move(slot, from, to);
    let keys = cluster.keys(from, slot);
    for half in keys.chunks(keys.len().div_ceil(2).max(1)) {
        cluster.move_keys(from, to, half);
        std::thread::sleep(Duration::from_millis(random.u64(..100)));
    }
    // Calls between the halves may have added keys.
    let rest = cluster.keys(from, slot);
    if !rest.is_empty() {
        cluster.move_keys(from, to, &rest);
    }
    cluster.end_to_move(slot, to);
}

/// Kills a primary, or freezes it until a replica has taken over.
fn strike_a_primary(cluster: &Cluster, random: &mut Rng) {
    let all: Vec<_> = primaries(cluster).collect();
    let victim = all[random.usize(..all.len())];
    let others = || cluster.nodes().iter().filter(|it| it.port() != victim.port());
    let count = || others().filter(|it| role(it) == "master").count();
    if random.bool() {
        victim.kill();
        until_blocking("a replica takes over from a killed primary", || count() == all.len());
        victim.restart();
    } else {
        victim.pause();
        until_blocking("a replica takes over from a frozen primary", || count() == all.len());
        victim.resume();
    }
    // Not before each primary has its replica again, with all that it holds.
    until_blocking("each primary has a replica", || {
        primaries(cluster).count() == all.len()
            && primaries(cluster).all(|it| it.online_replicas() > 0)
    });
}

fn primaries(cluster: &Cluster) -> impl Iterator<Item = &Server> {
    cluster.nodes().iter().filter(|it| role(it) == "master")
}

fn role(server: &Server) -> String {
    server.info("replication", "role")
}

/// Injects faults into a cluster. Returns how often each number was handled.
async fn under_faults(strikes: u32, strike: impl Fn(&Cluster, &mut Rng)) -> BTreeMap<u64, usize> {
    let cluster = block_in_place(|| Cluster::builder().replicas(1).start());
    let (ledger, mut sends) = (Arc::new(Ledger::default()), JoinSet::new());
    let redis = start(&cluster, RedisClient::Redis, &ledger, &mut sends).await;
    let fred = start(&cluster, RedisClient::Fred, &ledger, &mut sends).await;
    let mut random = Rng::with_seed(53);
    for _ in 0..strikes {
        block_in_place(|| strike(&cluster, &mut random));
        sleep(Duration::from_millis(random.u64(50..300))).await;
    }
    ledger.is_over.store(true, Ordering::Relaxed);
    while let Some(sent) = sends.join_next().await {
        sent.unwrap();
    }
    let is_empty = async || loop {
        let stats = redis.stats().await.unwrap();
        if stats.scheduled + stats.ready + stats.leased == 0 {
            break stats;
        }
        sleep(Duration::from_millis(50)).await;
    };
    let stats = timeout(LATEST, is_empty()).await;
    let stats = stats.unwrap_or_else(|_| panic!("after {LATEST:?} messages wait"));
    assert_eq!(stats.dead, 0);

    let sent = ledger.sent.load(Ordering::Relaxed);
    let handled = std::mem::take(&mut *ledger.handled.lock().unwrap());
    let lost: Vec<_> = (0..sent).filter(|n| !handled.contains_key(n)).collect();
    assert_eq!(lost, [0_u64; 0], "of {sent} were sent, and not handled");
    let again = fred.send_many((0..sent).map(|n| draft(&fred, n))).await;
    for (n, again) in again.into_iter().enumerate() {
        let again = again.unwrap().outcome;
        assert!(matches!(again, Enqueued::Duplicate { .. }), "order-{n} was forgotten: {again:?}");
    }
    println!("{sent} messages, {strikes} strikes");
    handled
}

#[tokio::test(flavor = "multi_thread")]
async fn slots_move_and_each_message_is_handled_once() {
    let handled = under_faults(MOVES, move_a_shard).await;
    let twice: Vec<_> = handled.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "handled more than once: {twice:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn primaries_fail_and_no_confirmed_message_is_lost() {
    under_faults(FAILURES, strike_a_primary).await;
}
