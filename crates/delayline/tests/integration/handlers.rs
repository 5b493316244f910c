//! Handlers that share state, and errors that choose their outcome.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use delayline::message::Status;
use delayline::testing::TestQueue;
use delayline::worker::batch_handler;
use delayline::{Job, Outcome, Queue, Worker, with_state};

type Log = Arc<Mutex<Vec<u64>>>;

/// A handler that is a plain function.
async fn note(log: Log, job: Job<u64>) -> Result<(), io::Error> {
    log.lock().unwrap().push(*job.payload());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn state_is_shared_with_closures_functions_and_batches() {
    let queue: Queue<u64> = delayline::connect("memory:").await.unwrap().queue("n").await.unwrap();
    let log = Log::default();
    let worker = || Worker::builder(queue.clone()).until_empty(true).build().unwrap();

    queue.send(&1).await.unwrap();
    worker().run(with_state(Arc::clone(&log), note)).await;

    queue.send(&2).await.unwrap();
    let closure = with_state((Arc::clone(&log), 10), |(log, more), job: Job<u64>| async move {
        log.lock().unwrap().push(job.payload() + more);
        Ok::<(), io::Error>(())
    });
    worker().run(closure).await;

    queue.send(&3).await.unwrap();
    let batches = with_state(Arc::clone(&log), |log, jobs: Vec<Job<u64>>| async move {
        log.lock().unwrap().extend(jobs.iter().map(|job| job.payload() * 100));
        Ok::<(), io::Error>(())
    });
    worker().run(batch_handler(10, Duration::ZERO, batches)).await;

    assert_eq!(*log.lock().unwrap(), [1, 12, 300]);
}

#[derive(Debug, thiserror::Error)]
enum ChargeError {
    #[error("the card is refused")]
    Refused,
    #[error("the provider is busy")]
    Busy,
    #[error("the provider cannot be reached")]
    Network(#[source] io::Error),
}

impl From<ChargeError> for Outcome {
    fn from(error: ChargeError) -> Self {
        match error {
            ChargeError::Refused => Self::reject(error.to_string()),
            ChargeError::Busy => Self::Snooze(Duration::from_secs(5)),
            ChargeError::Network(_) => Self::failed(error),
        }
    }
}

async fn charge(amount: u64) -> Result<(), ChargeError> {
    match amount {
        0 => Err(ChargeError::Refused),
        1 => Err(ChargeError::Busy),
        2 => Err(ChargeError::Network(io::Error::other("no route"))),
        _ => Ok(()),
    }
}

async fn pay(job: Job<u64>) -> Result<(), Outcome> {
    charge(*job.payload()).await?;
    Ok(())
}

#[tokio::test]
async fn an_error_chooses_the_outcome() {
    let test: TestQueue<u64> = TestQueue::new();
    for n in 0..4 {
        let _ = test.queue().message(&n).id(format!("pay-{n}")).send().await.unwrap();
    }
    let drained = test.drain_due(pay).await;
    let of = |id: &str| {
        let handled = drained.of(id)[0];
        (handled.outcome.clone(), handled.status.unwrap())
    };
    assert_eq!(of("pay-0"), (Outcome::reject("the card is refused"), Status::Dead));
    assert_eq!(of("pay-1"), (Outcome::Snooze(Duration::from_secs(5)), Status::Scheduled));
    let failed = Outcome::retry("the provider cannot be reached: no route");
    assert_eq!(of("pay-2"), (failed, Status::Scheduled));
    assert_eq!(of("pay-3"), (Outcome::Ack, Status::Acked));
}

#[tokio::test]
async fn an_error_chooses_the_outcome_of_a_batch() {
    let test: TestQueue<u64> = TestQueue::new();
    let _ = test.queue().message(&0).id("a").send().await.unwrap();
    let handler = batch_handler(10, Duration::ZERO, async |_: Vec<Job<u64>>| {
        charge(0).await?;
        Ok::<(), Outcome>(())
    });
    let drained = test.drain_due(handler).await;
    assert_eq!(drained.handled[0].outcome, Outcome::reject("the card is refused"));
}

#[tokio::test(start_paused = true)]
async fn while_a_worker_stops_a_chosen_retry_is_a_release_and_a_rejection_stays() {
    let queue: Queue<u64> = delayline::connect("memory:").await.unwrap().queue("n").await.unwrap();
    let _ = queue.message(&2).id("retried").send().await.unwrap();
    let _ = queue.message(&0).id("rejected").send().await.unwrap();
    let _ = queue.message(&9).id("held").send().await.unwrap();
    let worker = Worker::builder(queue.clone()).stop_grace(Duration::ZERO).build().unwrap();
    let started = Arc::new(tokio::sync::Semaphore::new(0));
    let begun = Arc::clone(&started);
    let stop = async move { begun.acquire_many(3).await.unwrap().forget() };
    let handler = with_state(started, |started, job: Job<u64>| async move {
        started.add_permits(1);
        job.cancellation().cancelled().await;
        match charge(*job.payload()).await {
            Ok(()) => Err(Outcome::retry("429 Too Many Requests").hold_queue(Duration::MAX)),
            Err(error) => Err::<(), Outcome>(error.into()),
        }
    });
    let summary = worker.run_until(stop, handler).await;
    assert_eq!((summary.released, summary.rejected, summary.failed), (2, 1, 0));
    assert!(queue.stats().await.unwrap().limits.held_until.is_some());
}
