//! Several queues that share their slots, and several workers of one queue, in virtual time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::Faulty;
use delayline::{Job, Outcome, Queue, RetryPolicy, Worker, Workers};
use tokio::time::{Instant, sleep};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

async fn filled(count: u64) -> (Arc<Faulty>, Queue<u64>) {
    let backend = Faulty::new();
    let queue = Queue::new(backend.clone());
    let drafts = (0..count).map(|n| queue.message(&n));
    assert!(queue.send_many(drafts).await.iter().all(Result::is_ok));
    (backend, queue)
}

async fn ok(_: Job<u64>) -> Result<(), &'static str> {
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn each_queue_has_its_own_handler_types_and_policy() {
    let (numbers_backend, numbers) = filled(1).await;
    let texts_backend = Faulty::new();
    let texts: Queue<String> = Queue::new(texts_backend.clone());
    texts.send(&"a".to_owned()).await.unwrap();
    let slow = RetryPolicy::fixed(Duration::from_millis(60_000));
    let quick = RetryPolicy::fixed(Duration::from_millis(1_000));
    let tries = Arc::new(Mutex::new(Vec::new()));
    let (of_number, of_text) = (Arc::clone(&tries), Arc::clone(&tries));
    let start = Instant::now();
    let twice = |failures| if failures == 0 { Err("again") } else { Ok(()) };
    let summary = Workers::sharing(4)
        .unwrap()
        .add(1, Worker::builder(numbers).retry(slow).until_empty(true), move |job: Job<u64>| {
            of_number.lock().unwrap().push(("number", start.elapsed().as_secs()));
            async move { twice(job.failures()) }
        })
        .unwrap()
        .add(1, Worker::builder(texts).retry(quick).until_empty(true), move |job: Job<String>| {
            of_text.lock().unwrap().push(("text", start.elapsed().as_secs()));
            async move { twice(job.failures()).map(|()| Outcome::Ack) }
        })
        .unwrap()
        .run()
        .await;
    assert_eq!((summary.acked, summary.failed), (2, 2));
    let mut tries = tries.lock().unwrap().clone();
    tries.sort_unstable();
    assert_eq!(tries, [("number", 0), ("number", 60), ("text", 0), ("text", 1)]);
    assert_eq!(numbers_backend.stats().await.totals.acked, 1);
    assert_eq!(texts_backend.stats().await.totals.acked, 1);
}

#[tokio::test(start_paused = true)]
async fn slots_are_shared_by_weight_and_a_limit_of_one_queue_holds() {
    let running = Arc::new(AtomicUsize::new(0));
    let mut workers = Workers::sharing(20).unwrap();
    let mut backends = Vec::new();
    let mut most = Vec::new();
    for (weight, limit) in [(1, None), (3, None), (9, Some(2))] {
        let (backend, queue) = filled(1_000).await;
        let mut worker = Worker::builder(queue);
        if let Some(limit) = limit {
            worker = worker.concurrency(limit);
        }
        let (own, peak) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        most.push(Arc::clone(&peak));
        let all = Arc::clone(&running);
        let handler = move |_: Job<u64>| {
            let (own, peak, all) = (Arc::clone(&own), Arc::clone(&peak), Arc::clone(&all));
            async move {
                assert!(all.fetch_add(1, Ordering::SeqCst) < 20);
                peak.fetch_max(own.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                sleep(ms(100)).await;
                own.fetch_sub(1, Ordering::SeqCst);
                all.fetch_sub(1, Ordering::SeqCst);
                Ok::<(), &str>(())
            }
        };
        workers = workers.add(weight, worker, handler).unwrap();
        backends.push(backend);
    }
    let summary = workers.run_until(sleep(ms(5_050))).await;
    assert_eq!((summary.failed, summary.unsettled), (0, 0));
    assert_eq!(most[2].load(Ordering::SeqCst), 2);
    let mut done = Vec::new();
    for backend in &backends {
        done.push(backend.stats().await.totals.acked);
    }
    assert!((90..=104).contains(&done[2]), "{done:?}");
    assert!(done[0] > 150 && done[1].abs_diff(3 * done[0]) < 100, "{done:?}");
}

#[tokio::test(start_paused = true)]
async fn the_longest_grace_counts_and_every_queue_has_to_be_empty() {
    let (_, first) = filled(1).await;
    let (_, second) = filled(1).await;
    let slowly = |_: Job<u64>| async {
        sleep(ms(8_000)).await;
        Ok::<(), &str>(())
    };
    let start = Instant::now();
    let summary = Workers::sharing(4)
        .unwrap()
        .add(1, Worker::builder(first.clone()).stop_grace(ms(1_000)), slowly)
        .unwrap()
        .add(1, Worker::builder(second).stop_grace(ms(10_000)).until_empty(true), ok)
        .unwrap()
        .run_until(sleep(ms(100)))
        .await;
    assert_eq!((summary.acked, summary.unsettled), (2, 0));
    assert!(start.elapsed() >= ms(8_000) && start.elapsed() < ms(8_200), "{:?}", start.elapsed());

    // Without a queue there is nothing to do.
    assert_eq!(Workers::sharing(1).unwrap().run().await.acked, 0);
}

#[test]
fn numbers_outside_of_their_range_are_refused() {
    for handlers in [0, 1_001, usize::MAX] {
        let error = Workers::sharing(handlers).unwrap_err().to_string();
        assert!(error.contains("handlers") && error.contains("1000"), "{error}");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let queue = || Queue::<u64>::new(Faulty::new());
    runtime.block_on(async {
        let add = |weight, worker| Workers::sharing(8).unwrap().add(weight, worker, ok);
        let error = add(0, Worker::builder(queue())).unwrap_err().to_string();
        assert!(error.contains("weight"), "{error}");
        assert!(add(1, Worker::builder(queue()).concurrency(0)).is_err());
        assert!(add(1, Worker::builder(queue()).lease(Duration::ZERO)).is_err());
        assert!(add(u16::MAX, Worker::builder(queue()).concurrency(1_000)).is_ok());
    });
}

#[tokio::test(start_paused = true)]
async fn many_idle_workers_of_one_queue_ask_no_more_than_one() {
    let backend = Faulty::new();
    let queue: Queue<u64> = Queue::new(backend.clone());
    let (mut handles, mut running) = (Vec::new(), Vec::new());
    for _ in 0..20 {
        let worker = Worker::builder(queue.clone()).build().unwrap();
        handles.push(worker.handle());
        running.push(tokio::spawn(worker.run(ok)));
    }
    sleep(ms(10_000)).await;
    let before = backend.sent("claim").len();
    sleep(ms(100_000)).await;
    let claims = backend.sent("claim").len() - before;
    assert!((20..=24).contains(&claims), "{claims} claims in 100 s");
    // They still claim messages whose hints go to other workers.
    let draft = queue.message(&1).due_in(ms(1_500));
    assert!(draft.send().await.unwrap().is_accepted());
    sleep(ms(1_510)).await;
    assert_eq!(backend.stats().await.totals.acked, 1);
    handles.iter().for_each(|handle| handle.stop(Duration::ZERO));
    for running in running {
        assert_eq!(running.await.unwrap().unsettled, 0);
    }
}
