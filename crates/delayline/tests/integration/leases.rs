//! A worker's leases and its end, in virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::support::{Fault, Faulty};
use delayline::backend::{Found, Op};
use delayline::events::EventKind;
use delayline::worker::{CancelReason, Summary, WorkerBuilder};
use delayline::{Cancelled, Job, Queue, Worker};
use tokio::time::{Instant, sleep, timeout};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

async fn one_message(backend: &Arc<Faulty>) -> Queue<u64> {
    let queue: Queue<u64> = Queue::new(backend.clone());
    assert!(queue.message(&1).id("a").send().await.unwrap().is_accepted());
    queue
}

fn worker(queue: &Queue<u64>) -> WorkerBuilder<u64> {
    Worker::builder(queue.clone()).lease(ms(3_000))
}

/// Fails with the reason why the token fired.
async fn wait_for_token(job: Job<u64>) -> Result<(), String> {
    job.cancellation().cancelled().await;
    Err(format!("{:?}", job.cancel_reason().unwrap()))
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_lease_ran_out_on_its_way_is_given_back_and_told_of() {
    let slow = Arc::new(AtomicU32::new(5));
    let left = Arc::clone(&slow);
    let backend = Faulty::with_plan(move |op| match op {
        Op::Claim(_)
            if left
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1))
                .is_ok() =>
        {
            Fault::SlowReply
        }
        _ => Fault::None,
    });
    let queue = one_message(&backend).await;
    let mut events = queue.events();
    let summary = worker(&queue)
        .lease(ms(80))
        .until_empty(true)
        .build()
        .unwrap()
        .run(|job: Job<u64>| async move {
            assert_eq!((job.info().failures, job.info().crashes), (0, 0));
            Ok::<(), &str>(())
        })
        .await;
    assert_eq!((summary.acked, summary.released), (1, 5));
    let not_started = std::iter::from_fn(|| events.try_next())
        .filter(|event| match event.kind {
            EventKind::NotStarted { lease, round_trip } => {
                lease == ms(80) && round_trip >= ms(100) && event.id.to_string() == "a"
            }
            _ => false,
        })
        .count();
    assert_eq!(not_started, 5);
}

#[tokio::test(start_paused = true)]
async fn a_running_handler_keeps_its_lease() {
    let backend = Faulty::new();
    let queue = one_message(&backend).await;
    for n in 2..=5 {
        queue.send(&n).await.unwrap();
    }
    let worker = worker(&queue).until_empty(true).build().unwrap();
    let summary = worker
        .run(|job: Job<u64>| async move {
            assert_eq!(job.epoch(), 1);
            sleep(ms(100_000)).await;
            assert!(!job.cancellation().is_cancelled());
            Ok::<(), &str>(())
        })
        .await;
    assert_eq!((summary.acked, summary.lost), (5, 0));
    let beats = backend.sent("extend");
    assert!((95..=101).contains(&beats.len()), "all five together, every second: {}", beats.len());
}

#[tokio::test(start_paused = true)]
async fn an_ack_still_counts_while_nobody_has_taken_the_message_back() {
    let backend = Faulty::new();
    let queue = one_message(&backend).await;
    let worker = worker(&queue).until_empty(true).build().unwrap();
    let cut = backend.clone();
    let summary = worker
        .run(move |job: Job<u64>| {
            let cut = cut.clone();
            async move {
                cut.set_plan(|_| Fault::LostRequest);
                sleep(ms(10_000)).await;
                cut.set_plan(|_| Fault::None);
                assert_eq!(job.cancel_reason(), Some(CancelReason::LeaseLost));
                Ok::<(), &str>(())
            }
        })
        .await;
    assert_eq!((summary.acked, summary.lost), (1, 0));
}

/// Cancels the message that a worker with the default lease handles. Returns after how long its
/// handler learns of it.
async fn cancelled_after(worker: WorkerBuilder<u64>, canceller: &Queue<u64>) -> Duration {
    let worker = worker.lease(ms(30_000)).until_empty(true).build().unwrap();
    let running = tokio::spawn(worker.run(wait_for_token));
    sleep(ms(1_000)).await;
    let start = Instant::now();
    assert_eq!(canceller.cancel("a").await.unwrap(), Cancelled::InFlight);
    assert_eq!(running.await.unwrap().cancelled, 1);
    start.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_cancel_of_this_process_is_told_at_once() {
    let backend = Faulty::new();
    let queue = one_message(&backend).await;
    let relative = queue.clone().patience(ms(1_000));
    let took = cancelled_after(Worker::builder(queue), &relative).await;
    assert!(took <= ms(20), "{took:?}");

    let connection = delayline::connect("memory:").await.unwrap();
    let queue: Queue<u64> = connection.queue("numbers").await.unwrap();
    assert!(queue.message(&1).id("a").send().await.unwrap().is_accepted());
    let other: Queue<u64> = connection.clone().queue("numbers").await.unwrap();
    // The memory goes by the real clock, and this one stands still.
    let took = cancelled_after(Worker::builder(queue), &other).await;
    assert!(took <= ms(20), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_cancel_of_another_process_is_told_within_a_bound() {
    for (bound, expected) in [(None, ms(10_000)), (Some(ms(500)), ms(500))] {
        let backend = Faulty::new();
        let queue = one_message(&backend).await;
        let mut worker = Worker::builder(queue);
        if let Some(bound) = bound {
            worker = worker.cancel_within(bound);
        }
        let stranger: Queue<u64> = Queue::new(backend.clone());
        let took = cancelled_after(worker, &stranger).await;
        assert!(took <= expected + ms(20), "{took:?}");
        assert!(bound.is_some() || took > ms(8_000), "{took:?}");
    }
    let queue = one_message(&Faulty::new()).await;
    assert!(Worker::builder(queue).cancel_within(ms(9)).build().is_err());
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_a_message_comes_back_when_its_lease_has_run_out_and_not_before() {
    let backend = Faulty::new();
    let queue = one_message(&backend).await;
    let dying = worker(&queue).build().unwrap();
    let forever = |_: Job<u64>| async {
        sleep(ms(1_000_000)).await;
        Ok::<(), &str>(())
    };
    let _ = timeout(ms(10_500), dying.run(forever)).await;
    let dropped_at = backend.elapsed();
    let beats = backend.sent("extend").len();
    let seen = backend.clone();
    let summary = worker(&queue)
        .until_empty(true)
        .build()
        .unwrap()
        .run(move |job: Job<u64>| {
            let since = seen.elapsed() - dropped_at;
            assert_eq!((job.crashes(), job.epoch(), job.attempt()), (1, 2, 2));
            assert!(since >= ms(2_000) && since <= ms(3_010), "{since:?}");
            async { Ok::<(), &str>(()) }
        })
        .await;
    assert_eq!((summary.acked, summary.failed), (1, 0));
    assert_eq!(backend.sent("extend").len(), beats, "a dropped handler's heart has stopped");
}

#[tokio::test(start_paused = true)]
async fn a_gentle_stop_waits_for_handlers_and_claims_nothing_more() {
    let backend = Faulty::new();
    let queue = one_message(&backend).await;
    let worker = worker(&queue).stop_grace(ms(60_000)).build().unwrap();
    let running = tokio::spawn(worker.run_until(sleep(ms(1_000)), |_| async {
        sleep(ms(30_000)).await;
        Ok::<(), &str>(())
    }));
    sleep(ms(2_000)).await;
    queue.send(&2).await.unwrap();
    let summary = running.await.unwrap();
    assert_eq!((summary.acked, summary.unsettled), (1, 0));
    assert_eq!(backend.stats().await.ready, 1);
    assert!(backend.elapsed() < ms(30_100), "it does not use up its grace");
}

#[tokio::test(start_paused = true)]
async fn handlers_are_told_to_stop_and_then_dropped() {
    let backend = Faulty::new();
    let queue = one_message(&backend).await;
    assert!(queue.message(&2).id("b").send().await.unwrap().is_accepted());
    let worker = worker(&queue).build().unwrap();
    let handle = worker.handle();
    let running = tokio::spawn(worker.run(|job: Job<u64>| async move {
        if *job.payload() == 1 {
            return wait_for_token(job).await;
        }
        sleep(ms(1_000_000)).await;
        Ok(())
    }));
    sleep(ms(1_000)).await;
    handle.stop(ms(600_000));
    sleep(ms(1_000)).await;
    handle.stop(ms(1_000));
    handle.stop(ms(600_000));
    let summary: Summary = running.await.unwrap();
    assert_eq!((summary.released, summary.failed, summary.unsettled), (2, 0, 0));
    assert!(backend.elapsed() <= ms(8_010), "{:?}", backend.elapsed());
    for id in ["a", "b"] {
        let Found::Live(message) = backend.found(id).await else { panic!("{id} is gone") };
        assert_eq!((message.info.failures, message.info.last_error), (0, None), "{id}");
    }
}
