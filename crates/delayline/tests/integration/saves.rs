//! What handlers save with their messages, in virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::support::Faulty;
use delayline::backend::{Found, Millis, Op, Reply};
use delayline::limits::MAX_CHECKPOINT_BYTES;
use delayline::message::Progress;
use delayline::worker::WorkerBuilder;
use delayline::{ErrorKind, Job, MessageId, Outcome, Queue, Worker};
use delayline_core::{Claim, ClaimId, ConsumerName, Message};
use tokio::time::{sleep, timeout};

async fn one_message(backend: &Arc<Faulty>) -> Queue<u64> {
    let queue: Queue<u64> = Queue::new(backend.clone());
    assert!(queue.message(&1).id("a").send().await.unwrap().is_accepted());
    queue
}

fn worker(queue: &Queue<u64>) -> WorkerBuilder<u64> {
    Worker::builder(queue.clone()).lease(Duration::from_secs(3))
}

async fn live(backend: &Faulty) -> Message {
    match backend.direct(Op::Get(vec![MessageId::try_from("a").unwrap()])).await {
        Reply::Get(mut found) => match found.remove(0) {
            Found::Live(message) => *message,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

/// Handles 30 pages of a second each, from the checkpoint on, and returns the first.
async fn crawl(job: &Job<u64>) -> u32 {
    let first = job.saved::<u32>().unwrap().unwrap_or(0);
    for page in first..30 {
        sleep(Duration::from_secs(1)).await;
        job.save(&(page + 1)).unwrap();
        job.progress(f64::from(page + 1) / 30.0, format!("page {} of 30", page + 1));
    }
    first
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_the_handler_goes_on_at_its_checkpoint() {
    let backend = Faulty::new();
    let queue = one_message(&backend).await;
    let crawling = worker(&queue).build().unwrap().run(|job: Job<u64>| async move {
        crawl(&job).await;
        Ok::<(), String>(())
    });
    // The process dies after twelve and a half pages.
    assert!(timeout(Duration::from_millis(12_500), crawling).await.is_err());
    let info = queue.get("a").await.unwrap().info().unwrap().clone();
    assert_eq!(info.progress, Some(Progress::new(0.4, "page 12 of 30")));

    let first = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&first);
    let worker = worker(&queue).until_empty(true).build().unwrap();
    let summary = worker
        .run(move |job: Job<u64>| {
            let seen = Arc::clone(&seen);
            async move {
                assert_eq!(job.crashes(), 1);
                seen.store(crawl(&job).await, Ordering::SeqCst);
                Ok::<(), String>(())
            }
        })
        .await;
    assert_eq!((summary.acked, first.load(Ordering::SeqCst)), (1, 12));
}

#[tokio::test(start_paused = true)]
async fn the_holder_of_an_old_lease_overwrites_nothing() {
    let backend = Faulty::new();
    let queue = one_message(&backend).await;
    let at_once = Arc::clone(&backend);
    let worker =
        worker(&queue).max_lease_age(Duration::from_secs(2)).concurrency(1).build().unwrap();
    let handle = worker.handle();
    let summary = worker
        .run(move |job: Job<u64>| {
            let (backend, handle) = (Arc::clone(&at_once), handle.clone());
            async move {
                job.save("old").unwrap();
                // The lease expires, and another worker claims and saves.
                sleep(Duration::from_secs(10)).await;
                let thief = ConsumerName::new("thief").unwrap();
                let (claim_id, lease) =
                    (ClaimId::from_bytes([9; 16]), Millis::new(60_000).unwrap());
                let claim = Claim::new(thief, claim_id, 1, lease);
                let Reply::Claim(claimed) = backend.direct(Op::Claim(claim)).await else {
                    panic!("not the reply to a claim")
                };
                assert_eq!(
                    claimed.deliveries[0].message.checkpoint.as_deref(),
                    Some(&b"\"old\""[..])
                );
                job.save("late").unwrap();
                handle.stop(Duration::ZERO);
                sleep(Duration::from_secs(2)).await;
                Ok::<_, String>(Outcome::retry("late"))
            }
        })
        .await;
    assert_eq!((summary.acked, summary.failed), (0, 0));
    assert_eq!(live(&backend).await.checkpoint.as_deref(), Some(&b"\"old\""[..]));
}

#[tokio::test(start_paused = true)]
async fn saves_are_merged_and_the_last_one_goes_with_the_outcome() {
    let backend = Faulty::new();
    let queue = one_message(&backend).await;
    let worker = worker(&queue).build().unwrap();
    let handle = worker.handle();
    let _ = worker
        .run(move |job: Job<u64>| {
            let handle = handle.clone();
            async move {
                for n in 0..5_000_u32 {
                    job.save(&n).unwrap();
                    sleep(Duration::from_millis(1)).await;
                }
                job.progress(2.0, "\u{e9}".repeat(200));
                handle.stop(Duration::from_secs(1));
                Ok::<_, String>(Outcome::Snooze(Duration::from_secs(60)))
            }
        })
        .await;
    let saves = backend.sent("extend").into_iter().filter(|(_, op)| match op {
        Op::Extend(extend) => !extend.saves.is_empty(),
        _ => false,
    });
    let saves = saves.count();
    assert!((5..=7).contains(&saves), "{saves} extensions saved something");
    let message = live(&backend).await;
    assert_eq!(message.checkpoint.as_deref(), Some(&b"4999"[..]));
    assert_eq!(message.info.progress, Some(Progress::new(1.0, "\u{e9}".repeat(128))));
}

#[tokio::test]
async fn what_cannot_be_saved_or_read_is_refused() {
    let connection = delayline::connect("memory:").await.unwrap();
    let queue: Queue<u64> = connection.queue("numbers").await.unwrap();
    assert!(queue.message(&1).id("a").send().await.unwrap().is_accepted());
    let worker = Worker::builder(queue.clone()).until_empty(true).build().unwrap();
    let summary = worker
        .run(|job: Job<u64>| async move {
            if job.failures() == 0 {
                job.save_bytes(vec![b'1'; MAX_CHECKPOINT_BYTES]).unwrap();
                let refused = job.save_bytes(vec![b'2'; MAX_CHECKPOINT_BYTES + 1]).unwrap_err();
                assert!(matches!(refused.kind(), ErrorKind::Invalid(_)));
                let text = "the checkpoint is 4097 bytes long; at most 4096 are allowed";
                assert_eq!(refused.to_string(), text);
                let unfit = std::collections::BTreeMap::from([((1, 2), 3)]);
                assert!(matches!(job.save(&unfit).unwrap_err().kind(), ErrorKind::Encode));
                return Ok(Outcome::retry_in(Duration::ZERO, "again"));
            }
            let kept = job.saved_bytes().unwrap();
            assert_eq!((kept.len(), kept[0]), (MAX_CHECKPOINT_BYTES, b'1'));
            assert!(matches!(job.saved::<u8>().unwrap_err().kind(), ErrorKind::Decode));
            Ok::<_, String>(Outcome::Ack)
        })
        .await;
    assert_eq!((summary.failed, summary.acked), (1, 1));
}
