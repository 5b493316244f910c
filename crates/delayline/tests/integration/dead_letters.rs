//! Redriving dead letters while they die again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::support::{Fault, Faulty};
use async_trait::async_trait;
use delayline::admin::Redriven;
use delayline::backend::{At, Backend, Op, Reply, Wakeup};
use delayline::backend::{Millis, NewMessage};
use delayline::message::MessageState;
use delayline::{Error, Job, Outcome, Queue, Timestamp, Worker};
use delayline_core::{Applied, Claim, ClaimId, Outcome as Settle, Settlement};
use delayline_memory::MemoryBackend;
use tokio::time::timeout;

/// More than two pages.
const LETTERS: u64 = 250;

/// Its messages die at once whenever they are redriven, and its clock moves by `step` each time.
#[derive(Debug)]
struct Hopeless {
    inner: MemoryBackend,
    now_ms: AtomicU64,
    step: i64,
    redriven: AtomicU64,
}

impl Hopeless {
    async fn with_letters(step: i64) -> Arc<Self> {
        let now_ms = AtomicU64::new(1_800_000_000_000);
        let inner = MemoryBackend::new();
        let backend = Arc::new(Self { inner, now_ms, step, redriven: AtomicU64::new(0) });
        let message = |n: u64| NewMessage::new(n.to_string().try_into().unwrap(), "");
        backend.direct(&Op::Enqueue((0..LETTERS).map(message).collect())).await;
        backend.let_die(0).await;
        backend.move_clock(3_600_000);
        backend
    }

    fn move_clock(&self, ms: i64) {
        let moved = self.now_ms.load(Ordering::Relaxed).checked_add_signed(ms).unwrap();
        self.now_ms.store(moved, Ordering::Relaxed);
    }

    async fn direct(&self, op: &Op) -> Applied {
        let now = Timestamp::from_ms(self.now_ms.load(Ordering::Relaxed)).unwrap();
        self.inner.apply(At::Fixed(now), op).await.unwrap()
    }

    /// Claims ready messages, and lets them die when the clock has moved.
    async fn let_die(&self, step: i64) {
        let claim_id = ClaimId::from_bytes(unused_bytes());
        let (consumer, lease) = ("w".try_into().unwrap(), Millis::saturating(60_000));
        let claim = Op::Claim(Claim::new(consumer, claim_id, 1_000, lease));
        let Reply::Claim(claimed) = self.direct(&claim).await.reply else { panic!() };
        self.move_clock(step);
        let outcome = Settle::Reject { error: "hopeless".to_owned() };
        let settle = |delivery: delayline_core::Delivery| {
            Settlement::new(delivery.message.info.id, delivery.lease, outcome.clone())
        };
        self.direct(&Op::Settle(claimed.deliveries.into_iter().map(settle).collect())).await;
    }
}

fn unused_bytes() -> [u8; 16] {
    *uuid::Uuid::new_v4().as_bytes()
}

#[async_trait]
impl Backend for Hopeless {
    async fn apply(&self, _at: At, op: &Op) -> Result<Applied, delayline_core::Error> {
        let applied = self.direct(op).await;
        if let Reply::Redrive(results) = &applied.reply {
            let done = results.iter().filter(|result| matches!(result, Redriven::Done { .. }));
            let count = u64::try_from(done.count()).unwrap();
            let total = self.redriven.fetch_add(count, Ordering::Relaxed) + count;
            assert!(total <= 2 * LETTERS, "it does not end");
            self.let_die(self.step).await;
        }
        Ok(applied)
    }
}

#[async_trait]
impl Wakeup for Hopeless {
    async fn wait(&self, _timeout: Duration) -> Result<bool, delayline_core::Error> {
        Ok(false)
    }
}

#[tokio::test]
async fn redriving_everything_ends_although_everything_dies_again() {
    // Also if the server's clock stands still or steps back, so that new deaths look old.
    for step in [1, 0, -1, -7_200_000] {
        let backend = Hopeless::with_letters(step).await;
        let queue: Queue<u64> = Queue::new(backend.clone());
        assert_eq!(queue.redrive_all().await.unwrap(), LETTERS, "{step}");
        assert_eq!(backend.redriven.load(Ordering::Relaxed), LETTERS, "{step}");
        assert_eq!(queue.stats().await.unwrap().dead, LETTERS);
    }
}

#[tokio::test(start_paused = true)]
async fn redriving_everything_ends_beside_a_worker_that_always_fails() {
    let backend = Faulty::with_plan(|op| match op {
        // Time enough for the worker.
        Op::Redrive(_) => Fault::SlowReply,
        _ => Fault::None,
    });
    let queue: Queue<u64> = Queue::new(backend.clone());
    let drafts = (0..LETTERS).map(|n| queue.message(&n).max_failures(1));
    for sent in queue.send_many(drafts).await {
        let _ = sent.unwrap();
    }
    let build = || Worker::builder(queue.clone()).concurrency(100);
    let always_fails = async |_: Job<u64>| Err::<Outcome, _>("broken");
    let summary = build().until_empty(true).build().unwrap().run(always_fails).await;
    assert_eq!(summary.dead, LETTERS);
    let worker = build().build().unwrap();
    let handle = worker.handle();
    let working = tokio::spawn(worker.run(always_fails));
    let redriven = timeout(Duration::from_secs(60), queue.redrive_all()).await;
    assert_eq!(redriven.expect("it does not end").unwrap(), LETTERS);
    handle.stop(Duration::ZERO);
    assert_eq!(working.await.unwrap().dead, LETTERS, "each died once more");
}

#[tokio::test]
async fn dead_letters_are_those_of_one_moment() -> Result<(), Error> {
    let backend = Hopeless::with_letters(1).await;
    let queue: Queue<u64> = Queue::new(backend.clone());
    let mut letters = queue.dead_letters().await?;
    let now = queue.server_time().await?;
    assert_eq!(letters.until(), Some(now));
    assert_eq!(queue.list(delayline::admin::Listed::Dead).until(), None);
    backend.move_clock(1);
    // Another client purges a letter, and a new one takes its place.
    queue.purge("0").await?;
    backend.direct(&Op::Enqueue(vec![NewMessage::new("late".try_into().unwrap(), "")])).await;
    backend.let_die(0).await;
    let mut seen = 0;
    while let Some(page) = letters.next_page().await? {
        for letter in page {
            let MessageState::Dead { since, .. } = letter.state else { panic!("{letter:?}") };
            assert!(since <= now, "{letter:?}");
            seen += 1;
        }
    }
    assert_eq!(seen, LETTERS - 1);
    Ok(())
}

#[cfg(feature = "testing")]
#[tokio::test]
async fn a_listing_of_dead_letters_can_be_filtered() {
    use delayline::admin::{DeadLetterFilter, Listed};
    use delayline::message::DeathReason::{MaxFailures, Rejected};

    let test = delayline::testing::TestConnection::new();
    let letters = test.queue::<u64>("letters");
    let queue = letters.queue().clone();
    // One a minute; a third is rejected, the others fail with one of two errors.
    let start = test.now();
    let at = |minute: u64| start + Duration::from_secs(60 * minute);
    for n in 0..300 {
        let _ = queue.message(&n).id(n.to_string()).max_failures(1).send().await.unwrap();
        let handler = async |job: Job<u64>| match job.payload() % 3 {
            0 => Ok(Outcome::reject("not a number")),
            1 => Err("timed out after 3 s"),
            _ => Err("refused"),
        };
        let _ = test.workers().add(&letters, handler).drain_due().await;
        test.advance(Duration::from_secs(60));
    }
    let found = async |filter: DeadLetterFilter| {
        let mut all = Vec::new();
        let mut listing = queue.dead_letters().await.unwrap().matching(filter.clone());
        while let Some(page) = listing.next_page().await.unwrap() {
            assert!(!page.is_empty());
            assert!(page.iter().all(|letter| filter.matches(letter)));
            all.extend(page.into_iter().map(|it| it.id.to_string().parse::<u64>().unwrap()));
        }
        all
    };
    let all = DeadLetterFilter::new();
    assert!(all.is_empty());
    assert_eq!(found(all.clone()).await, (0..300).collect::<Vec<_>>());
    let of = |keep: fn(&u64) -> bool| (0..300).filter(keep).collect::<Vec<_>>();
    assert_eq!(found(all.clone().reason(Rejected)).await, of(|n| n % 3 == 0));
    assert_eq!(found(all.clone().reason(Rejected).reason(MaxFailures)).await, of(|_| true));
    assert_eq!(found(all.clone().error_contains("timed out")).await, of(|n| n % 3 == 1));
    let window = all.clone().died_since(at(100)).died_before(at(250));
    assert_eq!(found(window.clone()).await, (100..250).collect::<Vec<_>>());
    assert_eq!(found(all.clone().error_like("timed out after 9 s")).await, of(|n| n % 3 == 1));
    assert_eq!(found(all.clone().error_like("timed out")).await, of(|_| false));
    let both = window.clone().reason(MaxFailures).error_contains("refused");
    assert_eq!(found(both).await, of(|n| (100..250).contains(n) && n % 3 == 2));
    assert_eq!(found(all.clone().died_before(at(0))).await, [0; 0]);
    assert_eq!(found(all.died_since(at(1_000))).await, [0; 0]);

    let mut others = queue.list(Listed::Scheduled).matching(window);
    assert_eq!(others.next_page().await.unwrap(), None);
}
