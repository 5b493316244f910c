//! What bounds a handler, and what a caller may put in place of the defaults, in virtual time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::Faulty;
use delayline::worker::CancelReason;
use delayline::{Job, Queue, Worker};
use tokio::time::sleep;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_hangs_does_not_keep_its_message_for_ever() {
    let backend = Faulty::new();
    let queue: Queue<u64> = Queue::new(backend.clone());
    queue.send(&1).await.unwrap();
    let reports = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&reports);
    let worker = Worker::builder(queue)
        .concurrency(2)
        .lease(ms(3_000))
        .max_lease_age(ms(10_000))
        .on_stuck(ms(12_000), move |stuck| {
            log.lock().unwrap().push((stuck.epoch, stuck.running, stuck.cancel_reason));
            panic!("a hook that panics ends nothing");
        })
        .build()
        .unwrap();
    let handle = worker.handle();
    let summary = worker
        .run(move |job: Job<u64>| {
            let handle = handle.clone();
            async move {
                if job.epoch() == 1 {
                    sleep(ms(1_000_000)).await;
                }
                assert_eq!((job.crashes(), job.failures()), (1, 0));
                handle.stop(ms(0));
                Ok::<(), &str>(())
            }
        })
        .await;
    assert_eq!((summary.acked, summary.lost), (1, 1));
    // Ten seconds of beats, one lease, and the end of a worker with a handler that hangs.
    assert!(backend.elapsed() >= ms(12_000) && backend.elapsed() <= ms(19_000));
    let reports = reports.lock().unwrap();
    assert_eq!(*reports, [(1, ms(12_000), Some(CancelReason::LeaseTooOld))]);
}

#[tokio::test(start_paused = true)]
async fn a_function_says_how_long_a_failed_message_waits() {
    let backend = Faulty::new();
    let queue: Queue<u64> = Queue::new(backend.clone());
    queue.send(&1).await.unwrap();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&asked);
    let worker = Worker::builder(queue).until_empty(true).retry_with(move |failures, error| {
        log.lock().unwrap().push((failures, error.to_owned()));
        ms(7_000)
    });
    let summary = worker
        .build()
        .unwrap()
        .run(|job: Job<u64>| async move { if job.failures() < 2 { Err("no") } else { Ok(()) } })
        .await;
    assert_eq!((summary.acked, summary.failed), (1, 2));
    assert!(backend.elapsed() >= ms(14_000) && backend.elapsed() <= ms(14_020));
    assert_eq!(*asked.lock().unwrap(), [(1, "no".to_owned()), (2, "no".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn the_function_is_not_asked_about_failures_that_are_not_retried() {
    let backend = Faulty::new();
    let queue: Queue<u64> = Queue::new(backend.clone());
    let _ = queue.message(&1).id("last").max_failures(2).send().await.unwrap();
    let _ = queue.message(&2).id("cancelled").send().await.unwrap();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&asked);
    let worker = Worker::builder(queue.clone()).lease(ms(3_000)).until_empty(true);
    let worker = worker.retry_with(move |failures, error| {
        log.lock().unwrap().push((failures, error.to_owned()));
        ms(1_000)
    });
    let summary = worker
        .build()
        .unwrap()
        .run(move |job: Job<u64>| {
            let queue = queue.clone();
            async move {
                if job.id().to_string() == "cancelled" {
                    queue.cancel("cancelled").await.unwrap();
                    job.cancellation().cancelled().await;
                }
                Err::<(), _>("no")
            }
        })
        .await;
    assert_eq!((summary.failed, summary.dead, summary.cancelled), (2, 1, 1));
    assert_eq!(*asked.lock().unwrap(), [(1, "no".to_owned())]);
}
