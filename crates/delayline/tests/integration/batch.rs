//! A handler of many messages at once, in virtual time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::Faulty;
use delayline::backend::{Found, Op};
use delayline::message::Status;
use delayline::worker::{Outcomes, Summary, WorkerBuilder, batch_handler};
use delayline::{Job, Outcome, Queue, RetryPolicy, Worker};
use tokio::time::{Instant, sleep};

const LINGER: Duration = Duration::from_millis(50);

/// When each batch began, and its messages.
type Batches = Arc<Mutex<Vec<(Duration, Vec<u64>)>>>;

async fn filled(delays_ms: &[u64]) -> (Arc<Faulty>, Queue<u64>) {
    let backend = Faulty::new();
    let queue = Queue::new(backend.clone());
    for (number, delay) in (0..).zip(delays_ms) {
        let draft = queue.message(&number).id(format!("m-{number}")).max_failures(2);
        assert!(draft.due_in(Duration::from_millis(*delay)).send().await.unwrap().is_accepted());
    }
    (backend, queue)
}

fn worker(queue: &Queue<u64>) -> WorkerBuilder<u64> {
    let retry = RetryPolicy::fixed(Duration::from_millis(1_000));
    Worker::builder(queue.clone()).until_empty(true).retry(retry)
}

/// Runs a worker on batches of at most four, each of which takes a second.
async fn run(worker: WorkerBuilder<u64>, outcomes: fn(&[u64]) -> Outcomes) -> (Summary, Batches) {
    let batches = Batches::default();
    let (log, start) = (Arc::clone(&batches), Instant::now());
    let handler = batch_handler(4, LINGER, move |jobs: Vec<Job<u64>>| {
        let numbers: Vec<_> = jobs.iter().map(|job| *job.payload()).collect();
        log.lock().unwrap().push((start.elapsed(), numbers.clone()));
        async move {
            sleep(Duration::from_secs(1)).await;
            Ok::<_, &str>(outcomes(&numbers))
        }
    });
    (worker.build().unwrap().run(handler).await, batches)
}

fn ack(_: &[u64]) -> Outcomes {
    ().into()
}

fn numbers(batches: &Batches) -> Vec<Vec<u64>> {
    batches.lock().unwrap().iter().map(|(_, numbers)| numbers.clone()).collect()
}

async fn error_of(backend: &Faulty, id: &str) -> (Status, String) {
    let Found::Live(message) = backend.found(id).await else { panic!("{id} is gone") };
    (message.info.state.status(), message.info.last_error.unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_full_batch_starts_at_once_and_a_partial_one_after_the_linger() {
    let (_, queue) = filled(&[0; 10]).await;
    let (summary, batches) = run(worker(&queue).concurrency(10), ack).await;
    assert_eq!(summary.acked, 10);
    let log = batches.lock().unwrap().clone();
    let begun: Vec<_> = log.iter().map(|(begun, numbers)| (*begun, numbers.len())).collect();
    assert_eq!(begun, [(Duration::ZERO, 4), (Duration::ZERO, 4), (LINGER, 2)]);
    let mut all: Vec<_> = log.into_iter().flat_map(|(_, numbers)| numbers).collect();
    all.sort_unstable();
    assert_eq!(all, (0..10).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn what_comes_within_the_linger_joins_and_what_comes_later_does_not() {
    let (_, queue) = filled(&[1_000, 1_020, 1_040, 1_060]).await;
    let (summary, batches) = run(worker(&queue), ack).await;
    assert_eq!(summary.acked, 4);
    assert_eq!(numbers(&batches), [vec![0, 1, 2], vec![3]]);
    let begun = batches.lock().unwrap()[0].0;
    assert!(
        begun >= Duration::from_millis(1_050) && begun < Duration::from_millis(1_060),
        "{begun:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_no_larger_than_the_concurrency() {
    let (_, queue) = filled(&[0; 5]).await;
    let (summary, batches) = run(worker(&queue).concurrency(2), ack).await;
    assert_eq!(summary.acked, 5);
    assert_eq!(numbers(&batches), [vec![0, 1], vec![2, 3], vec![4]]);
}

#[tokio::test(start_paused = true)]
async fn each_message_gets_its_own_outcome() {
    let (backend, queue) = filled(&[0; 4]).await;
    let (summary, _) = run(worker(&queue), |numbers| {
        let outcome = |number: &u64| match number {
            0 => Outcome::Ack,
            1 => Outcome::reject("bad row"),
            2 => Outcome::retry("busy row"),
            _ => Outcome::Snooze(Duration::from_secs(5)),
        };
        let outcomes = numbers.iter().map(outcome).collect::<Vec<_>>();
        if numbers.len() == 4 { outcomes.into() } else { ().into() }
    })
    .await;
    assert_eq!((summary.acked, summary.rejected, summary.failed, summary.snoozed), (3, 1, 1, 1));
    assert_eq!(error_of(&backend, "m-1").await, (Status::Dead, "bad row".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_wrong_number_of_outcomes_fails_all_messages() {
    let (backend, queue) = filled(&[0; 3]).await;
    let (summary, batches) = run(worker(&queue), |_| vec![Outcome::Ack].into()).await;
    assert_eq!((summary.acked, numbers(&batches).len()), (0, 2));
    for id in ["m-0", "m-1", "m-2"] {
        let error = "the handler returned 1 outcomes for 3 messages".to_owned();
        assert_eq!(error_of(&backend, id).await, (Status::Dead, error));
    }
}

#[tokio::test(start_paused = true)]
async fn errors_and_panics_fail_all_messages_of_the_batch_and_no_other() {
    let (backend, queue) = filled(&[0, 0, 60_000, 60_000, 120_000]).await;
    let handler = batch_handler(2, LINGER, |jobs: Vec<Job<u64>>| {
        let first = *jobs[0].payload();
        assert!(first != 2, "no such table");
        async move { if first == 0 { Err("no connection") } else { Ok(()) } }
    });
    let summary = worker(&queue).build().unwrap().run(handler).await;
    assert_eq!(summary.acked, 1);
    for (id, error) in [
        ("m-0", "no connection"),
        ("m-1", "no connection"),
        ("m-2", "panicked: no such table"),
        ("m-3", "panicked: no such table"),
    ] {
        assert_eq!(error_of(&backend, id).await, (Status::Dead, error.to_owned()));
    }
}

/// Counts the handlers that run.
#[derive(Clone, Default)]
struct Alive(Arc<Mutex<i32>>);

impl Alive {
    fn count(&self) -> i32 {
        *self.0.lock().unwrap()
    }

    /// Counts until it is dropped.
    fn guard(&self) -> Guard {
        *self.0.lock().unwrap() += 1;
        Guard(self.clone())
    }
}

struct Guard(Alive);

impl Drop for Guard {
    fn drop(&mut self) {
        *self.0.0.lock().unwrap() -= 1;
    }
}

#[tokio::test(start_paused = true)]
async fn a_timeout_of_one_message_drops_the_batch() {
    let (backend, queue) = filled(&[0, 30, 0]).await;
    let alive = Alive::default();
    let counted = alive.clone();
    let handler = batch_handler(3, LINGER, move |jobs: Vec<Job<u64>>| {
        let guard = counted.guard();
        assert_eq!((jobs.len(), counted.count()), (3, 1));
        async move {
            let _guard = guard;
            sleep(Duration::from_secs(3_600)).await;
            Ok::<(), &str>(())
        }
    });
    let limit = Duration::from_millis(500);
    let worker = worker(&queue).handler_timeout(limit).build().unwrap();
    let summary = worker.run(handler).await;
    assert_eq!((summary.acked, alive.count()), (0, 0));
    let mut errors = Vec::new();
    for id in ["m-0", "m-1", "m-2"] {
        errors.push(error_of(&backend, id).await.1);
    }
    errors.sort();
    assert!(errors[0].starts_with("the batch was dropped"), "{errors:?}");
    assert!(errors[2].starts_with("timed out after 500ms"), "{errors:?}");
}

/// The next message begins another batch.
#[tokio::test(start_paused = true)]
async fn nobody_joins_a_batch_whose_first_message_was_dropped() {
    let (_, queue) = filled(&[0, 30, 30]).await;
    let batches = Batches::default();
    let log = Arc::clone(&batches);
    let handler = batch_handler(2, LINGER, move |jobs: Vec<Job<u64>>| {
        let numbers = jobs.iter().map(|job| *job.payload()).collect();
        log.lock().unwrap().push((Duration::ZERO, numbers));
        async { Ok::<(), &str>(()) }
    });
    // The first is alone until then.
    let limit = Duration::from_millis(20);
    let summary = worker(&queue).handler_timeout(limit).build().unwrap().run(handler).await;
    assert_eq!(summary.acked, 2);
    assert_eq!(numbers(&batches), [[1, 2]]);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_message_drops_the_batch_at_once() {
    let (_, queue) = filled(&[0, 0, 0]).await;
    let alive = Alive::default();
    let counted = alive.clone();
    let batched = batch_handler(3, LINGER, move |jobs: Vec<Job<u64>>| {
        let guard = counted.guard();
        let is_first = jobs[0].failures() == 0;
        async move {
            let _guard = guard;
            sleep(Duration::from_secs(if is_first { 3_600 } else { 0 })).await;
            Ok::<(), &str>(())
        }
    });
    let (counted, start) = (alive.clone(), Instant::now());
    let handler = move |job: Job<u64>| {
        let (counted, is_impatient) = (counted.clone(), *job.payload() == 1 && job.failures() == 0);
        let work = batched(job);
        async move {
            if !is_impatient {
                return work.await;
            }
            let _ = tokio::time::timeout(Duration::from_millis(100), work).await;
            // Once the other tasks have noticed.
            sleep(Duration::from_millis(1)).await;
            assert_eq!(counted.count(), 0, "the handler goes on");
            Err(Outcome::retry("impatient"))
        }
    };
    let summary = worker(&queue).build().unwrap().run(handler).await;
    assert_eq!((summary.acked, summary.failed), (3, 3));
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn leases_are_renewed_while_a_batch_waits_and_runs() {
    let (backend, queue) = filled(&[0, 0]).await;
    let lease = Duration::from_millis(30);
    let (summary, batches) = run(worker(&queue).lease(lease), ack).await;
    assert_eq!((summary.acked, summary.lost), (2, 0));
    assert_eq!(numbers(&batches), [[0, 1]]);
    let extended = backend.sent("extend");
    let of_both = |op: &Op| matches!(op, Op::Extend(extend) if extend.leases.len() == 2);
    assert!(extended.iter().filter(|(_, op)| of_both(op)).count() > 50, "{}", extended.len());
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_lingers_is_handled_after_a_stop() {
    let (_, queue) = filled(&[0, 0]).await;
    let running = worker(&queue).build().unwrap();
    let handle = running.handle();
    let handler = batch_handler(3, LINGER, move |jobs: Vec<Job<u64>>| {
        assert_eq!(jobs.len(), 2);
        async { Ok::<(), &str>(()) }
    });
    let stop = async {
        sleep(LINGER / 2).await;
        handle.stop(Duration::from_secs(20));
    };
    let (summary, ()) = tokio::join!(running.run(handler), stop);
    assert_eq!((summary.acked, summary.released), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_stop_that_does_not_wait_releases_batches_that_linger_or_run() {
    let (_, queue) = filled(&[0, 0, 0, 60]).await;
    let running = worker(&queue).build().unwrap();
    let handle = running.handle();
    let (alive, hour) = (Alive::default(), Duration::from_secs(3_600));
    let counted = alive.clone();
    let handler = batch_handler(3, hour, move |_: Vec<Job<u64>>| {
        let guard = counted.guard();
        async move {
            let _guard = guard;
            sleep(hour).await;
            Ok::<(), &str>(())
        }
    });
    let stop = async {
        sleep(Duration::from_secs(1)).await;
        assert_eq!(alive.count(), 1);
        handle.stop(Duration::ZERO);
    };
    let (summary, ()) = tokio::join!(running.run(handler), stop);
    assert_eq!((summary.acked, summary.failed, summary.released), (0, 0, 4));
    assert_eq!(alive.count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_many_messages_is_in_one_batch() {
    const MESSAGES: u64 = 5_000;
    let connection = delayline::connect("memory:").await.unwrap();
    let queue: Queue<u64> = connection.queue("numbers").await.unwrap();
    let drafts = (0..MESSAGES).map(|number| queue.message(&number));
    for sent in queue.send_many(drafts).await {
        assert!(sent.unwrap().is_accepted());
    }
    let batches = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&batches);
    let handler = batch_handler(7, Duration::from_millis(1), move |jobs: Vec<Job<u64>>| {
        log.lock().unwrap().push(jobs.iter().map(|job| *job.payload()).collect::<Vec<_>>());
        async { Ok::<(), &str>(()) }
    });
    let worker = Worker::builder(queue).concurrency(100).until_empty(true).build().unwrap();
    let summary = worker.run(handler).await;
    assert_eq!((summary.acked, summary.failed), (MESSAGES, 0));
    let batches = batches.lock().unwrap().clone();
    assert!(batches.iter().all(|batch| (1..=7).contains(&batch.len())));
    let mut all = batches.concat();
    all.sort_unstable();
    assert_eq!(all, (0..MESSAGES).collect::<Vec<_>>());
}
