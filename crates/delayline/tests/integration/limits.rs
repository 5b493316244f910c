//! Limits of a queue, over all its workers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::Faulty;
use delayline::admin::{Explanation, Limits, Rate, SetLimits};
use delayline::{Error, ErrorKind, Job, Outcome, Queue, Worker};
use tokio::time::{Instant, sleep};

const SECOND: Duration = Duration::from_secs(1);

async fn send(queue: &Queue<u64>, count: u64) {
    for n in 0..count {
        let _ = queue.message(&n).id(format!("m{n}")).send().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_holds_its_queue() {
    for follows in [false, true] {
        let queue: Queue<u64> = Queue::new(Faulty::new());
        send(&queue, 2).await;
        let started = Instant::now();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let worker =
            Worker::builder(queue.clone()).concurrency(1).until_empty(true).build().unwrap();
        let (notes, next) = (Arc::clone(&seen), queue.clone());
        worker
            .run(move |job: Job<u64>| {
                let (notes, next) = (Arc::clone(&notes), next.clone());
                async move {
                    notes.lock().unwrap().push((*job.payload(), started.elapsed().as_secs()));
                    if *job.payload() > 0 || job.epoch() > 1 {
                        return Ok(Outcome::Ack);
                    }
                    let held = Outcome::Snooze(SECOND).hold_queue(30 * SECOND);
                    if follows { held.then([next.message(&7).id("next")]) } else { Ok(held) }
                }
            })
            .await;
        let mut seen = seen.lock().unwrap().clone();
        seen.sort_unstable();
        // Whatever was due waited for the end of the hold.
        let mut all = vec![(0, 0), (0, 30), (1, 30)];
        all.extend(follows.then_some((7, 30)));
        assert_eq!(seen, all);
    }
}

#[tokio::test(start_paused = true)]
async fn a_rate_is_kept_and_used() {
    let queue: Queue<u64> = Queue::new(Faulty::new());
    queue.set_limits(SetLimits::new().rate(Rate::per_second(50, 5))).await.unwrap();
    send(&queue, 500).await;
    let worker = Worker::builder(queue.clone()).concurrency(20).until_empty(true).build().unwrap();
    let started = Instant::now();
    let summary = worker.run(|_: Job<u64>| async { Ok::<_, Error>(()) }).await;
    assert_eq!(summary.acked, 500);
    // 495 after the burst, 50 a second.
    let took = started.elapsed().as_secs_f64();
    assert!((9.9..10.3).contains(&took), "{took} s");
}

#[tokio::test(start_paused = true)]
async fn an_explanation_names_the_limit() {
    let queue: Queue<u64> = Queue::new(Faulty::new());
    send(&queue, 2).await;
    let why = async || queue.explain("m1").await.unwrap();
    queue.set_limits(SetLimits::new().hold_for(30 * SECOND)).await.unwrap();
    sleep(10 * SECOND).await;
    let held = why().await;
    assert_eq!(held.to_string(), "It has been due for 10.0 s, but the queue is held for 20.0 s.");
    assert_eq!(held.name(), "held");
    queue.set_limits(SetLimits::new().end_hold().rate(Rate::per_minute(1, 1))).await.unwrap();
    let worker = Worker::builder(queue.clone()).concurrency(1).build().unwrap();
    let handle = worker.handle();
    let running = tokio::spawn(worker.run(|_: Job<u64>| async {
        sleep(100 * SECOND).await;
        Ok::<_, Error>(())
    }));
    sleep(SECOND).await;
    let told = why().await;
    assert_eq!(told.name(), "rate_limited", "{told}");
    queue.set_limits(SetLimits::new().leased(1)).await.unwrap();
    let told = why().await;
    assert!(matches!(told, Explanation::AllLeased { leased: 1, most: 1, .. }), "{told}");
    assert!(told.to_string().contains("1 of 1 are leased"), "{told}");
    handle.stop(Duration::ZERO);
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn limits_out_of_range_are_refused_and_named() {
    let queue: Queue<u64> = Queue::new(Faulty::new());
    let error = queue.set_limits(SetLimits::new().leased(0)).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Invalid(_)), "{error}");
    assert!(error.to_string().contains("the limit of leased messages"), "{error}");
    assert_eq!(queue.limits().await.unwrap(), Limits::default());
    assert!(queue.set_limits(SetLimits::new().leased(2)).await.unwrap());
    assert!(!queue.set_limits(SetLimits::new().leased(2)).await.unwrap());
}
