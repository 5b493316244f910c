//! Failovers under load. What every replica that may be promoted has confirmed is not lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use delayline_core::{
    At, Backend, Claim, ClaimId, ConsumerName, Durability, Error, ErrorClass, ErrorKind, Millis,
    Op, Reply,
};
use delayline_test_server::{Cluster, Sentinels, Server};
use tokio::task::JoinSet;

use super::{Connect, PATIENCE, QUEUE, enqueue, enqueue_patiently, has, open, options, until};

const TASKS: usize = 16;

/// Enqueues from many tasks until `stop`. Returns the acknowledged messages.
struct Load {
    stop: Arc<AtomicBool>,
    tasks: JoinSet<Vec<String>>,
}

impl Load {
    fn start(queue: &Arc<impl Backend + 'static>, durability: Durability) -> Self {
        let (stop, mut tasks) = (Arc::new(AtomicBool::new(false)), JoinSet::new());
        for task in 0..TASKS {
            let (queue, stop) = (Arc::clone(queue), Arc::clone(&stop));
            tasks.spawn(async move {
                let mut acknowledged = Vec::new();
                for number in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let text = format!("message-{task}-{number}");
                    match enqueue(&*queue, &text, durability).await {
                        Ok(_) => acknowledged.push(text),
                        Err(error) => {
                            assert_ne!(error.class(), ErrorClass::Rejected, "{error}");
                            tokio::time::sleep(Duration::from_millis(20)).await;
                        }
                    }
                }
                acknowledged
            });
        }
        Self { stop, tasks }
    }

    async fn stop(mut self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        let mut acknowledged = Vec::new();
        while let Some(texts) = self.tasks.join_next().await {
            acknowledged.extend(texts.unwrap());
        }
        acknowledged
    }
}

/// How many messages the server has.
fn count(server: &Server) -> i64 {
    match server.command(&["HLEN", &format!("delayline:{{{QUEUE}}}:records")]) {
        delayline_test_server::Reply::Int(count) => count,
        other => panic!("{other:?}"),
    }
}

pub async fn what_all_replicas_confirmed_survives_a_killed_primary<C: Connect>() {
    let sentinels = Sentinels::builder().replicas(2).start();
    let queue = Arc::new(open::<C>(&options(&sentinels.url())).await);
    let load = Load::start(&queue, Durability::Replicas(2));
    let primary = sentinels.primary();
    until("there are messages", || count(primary) > 200).await;
    primary.kill();
    // Only one replica is left, so nothing is confirmed by two any more.
    let is_replaced = || !std::ptr::eq(sentinels.primary(), primary);
    until("another server is the primary", is_replaced).await;
    enqueue_patiently(&*queue, "after", Durability::Replicas(1)).await;
    let acknowledged = load.stop().await;
    assert!(acknowledged.len() >= 100, "{}", acknowledged.len());
    for text in &acknowledged {
        assert!(has(&*queue, text).await, "{text} was acknowledged");
    }
}

/// A primary that was frozen acknowledges the calls in its sockets when it resumes, and loses them.
pub async fn what_all_replicas_confirmed_survives_a_frozen_primary<C: Connect>() {
    let cluster = Cluster::builder().replicas(1).start();
    let slot = match cluster.nodes()[0].command(&["CLUSTER", "KEYSLOT", QUEUE]) {
        delayline_test_server::Reply::Int(slot) => u16::try_from(slot).unwrap(),
        other => panic!("{other:?}"),
    };
    let primary = cluster.owner(&cluster.nodes()[0], slot);
    let witness = cluster.nodes().iter().find(|node| !std::ptr::eq(*node, primary)).unwrap();
    let queue = Arc::new(open::<C>(&options(&cluster.url())).await);
    let load = Load::start(&queue, Durability::Replicas(1));
    until("there are messages", || count(primary) > 200).await;
    primary.pause();
    let is_replaced = || !std::ptr::eq(cluster.owner(witness, slot), primary);
    until("another node serves the slot", is_replaced).await;
    primary.resume();
    // The old primary is the new one's replica before long, and confirms.
    enqueue_patiently(&*queue, "after", Durability::Replicas(1)).await;
    let acknowledged = load.stop().await;
    assert!(acknowledged.len() >= 100, "{}", acknowledged.len());
    for text in &acknowledged {
        assert!(has(&*queue, text).await, "{text} was acknowledged");
    }
}

/// Claims one message, and returns its id and epoch.
async fn claim(
    queue: &impl Backend,
    number: u8,
    durability: Durability,
) -> Result<Option<(String, u64)>, Error> {
    let consumer = ConsumerName::new("tester").unwrap();
    let lease = Millis::try_from(Duration::from_secs(5)).unwrap();
    let claim = Claim::new(consumer, ClaimId::from_bytes([number; ClaimId::BYTES]), 1, lease);
    let applied = queue.apply_durably(At::Server, &Op::Claim(claim), durability).await?;
    let Reply::Claim(claimed) = applied.reply else { panic!("{:?}", applied.reply) };
    let mut deliveries = claimed.deliveries.into_iter();
    let delivery = deliveries.next().map(|it| (it.message.info.id.to_string(), it.lease.epoch));
    Ok(delivery)
}

/// An epoch is a fencing token only if its claim is confirmed. The control shows what happens to
/// others.
pub async fn a_confirmed_claim_keeps_its_epoch_across_a_failover<C: Connect>() {
    let sentinels = Sentinels::start();
    let queue = open::<C>(&options(&sentinels.url())).await;
    let [primary, replica] = sentinels.servers() else { panic!("two servers") };
    for text in ["confirmed", "lost"] {
        enqueue_patiently(&queue, text, Durability::Replicas(1)).await;
    }
    let first = claim(&queue, 1, Durability::Replicas(1)).await.unwrap();
    assert_eq!(first, Some(("confirmed".to_owned(), 1)));
    // It receives nothing more from its primary, not even data on the way.
    replica.pause();
    primary.command(&["CLIENT", "KILL", "TYPE", "replica"]);
    let second = claim(&queue, 2, Durability::None).await.unwrap();
    assert_eq!(second, Some(("lost".to_owned(), 1)));
    let error = claim(&queue, 2, Durability::Replicas(1)).await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Unconfirmed, "{error}");
    primary.kill();
    replica.resume();
    until("the replica is the primary", || std::ptr::eq(sentinels.primary(), replica)).await;
    let (begin, mut epochs) = (Instant::now(), BTreeMap::new());
    for number in 3.. {
        if epochs.len() == 2 {
            break;
        }
        assert!(begin.elapsed() < PATIENCE, "{epochs:?}");
        match claim(&queue, number, Durability::None).await {
            Ok(Some((id, epoch))) => drop(epochs.entry(id).or_insert(epoch)),
            // The lease has not expired, or the failover has not ended.
            Ok(None) | Err(_) => tokio::time::sleep(Duration::from_millis(500)).await,
        }
    }
    let expected = [("confirmed".to_owned(), 2), ("lost".to_owned(), 1)];
    assert_eq!(epochs, BTreeMap::from(expected), "the lost one is given again");
}
