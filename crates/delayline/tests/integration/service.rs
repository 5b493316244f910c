//! A worker whose handler is a `tower` service, in virtual time.

use std::future::{Ready, ready};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::support::Faulty;
use delayline::backend::Found;
use delayline::message::{DeathReason, MessageState};
use delayline::worker::{Summary, WorkerBuilder, service_handler};
use delayline::{Job, Outcome, Queue, RetryPolicy, Worker};
use tokio::time::sleep;
use tower::load_shed::error::Overloaded;
use tower::{BoxError, Service, ServiceBuilder, service_fn};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

async fn filled(backend: &Arc<Faulty>, messages: u64) -> Queue<u64> {
    let queue: Queue<u64> = Queue::new(backend.clone());
    for n in 0..messages {
        let draft = queue.message(&n).id(n.to_string().as_str());
        assert!(draft.max_failures(2).send().await.unwrap().is_accepted());
    }
    queue
}

fn worker(queue: &Queue<u64>) -> WorkerBuilder<u64> {
    let retry = RetryPolicy::fixed(Duration::from_millis(1_000));
    Worker::builder(queue.clone()).lease(ms(3_000)).retry(retry).until_empty(true)
}

/// Never ready, or panics or fails in one of the ways that a service can.
#[derive(Clone, Debug)]
enum Odd {
    NeverReady,
    NotReadyError,
    PanicsWhenAsked,
    PanicsWhenCalled,
    Fails,
}

impl Service<Job<u64>> for Odd {
    type Response = ();
    type Error = &'static str;
    type Future = Ready<Result<(), &'static str>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        match self {
            Self::NeverReady => Poll::Pending,
            Self::NotReadyError => Poll::Ready(Err("out of order")),
            Self::PanicsWhenAsked => panic!("asked"),
            Self::PanicsWhenCalled | Self::Fails => Poll::Ready(Ok(())),
        }
    }

    fn call(&mut self, _: Job<u64>) -> Self::Future {
        match self {
            Self::PanicsWhenCalled => panic!("called"),
            _ => ready(Err("failed")),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn jobs_that_wait_for_a_place_keep_their_leases_and_are_all_handled() {
    let backend = Faulty::new();
    let queue = filled(&backend, 12).await;
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counts = (running, Arc::clone(&most));
    let service =
        ServiceBuilder::new().concurrency_limit(2).service(service_fn(move |job: Job<u64>| {
            let (running, most) = counts.clone();
            async move {
                assert_eq!(job.epoch(), 1, "it was not reclaimed meanwhile");
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                sleep(ms(2_000)).await;
                running.fetch_sub(1, Ordering::SeqCst);
                Ok::<_, &str>(())
            }
        }));
    let worker = worker(&queue).concurrency(12).build().unwrap();
    let Summary { acked, failed, lost, .. } = worker.run(service_handler(service)).await;
    assert_eq!((acked, failed, lost), (12, 0, 0));
    assert_eq!(most.load(Ordering::SeqCst), 2);
    // Six rounds of 2 s with leases of 3 s.
    assert!(backend.elapsed() >= ms(12_000) && backend.elapsed() <= ms(12_100));
}

#[tokio::test(start_paused = true)]
async fn a_rate_limit_behind_a_buffer_spreads_the_work() {
    let backend = Faulty::new();
    let queue = filled(&backend, 6).await;
    let times = Arc::new(Mutex::new(Vec::new()));
    let (log, clock) = (Arc::clone(&times), backend.clone());
    let service = ServiceBuilder::new().buffer(16).rate_limit(2, ms(10_000)).service(service_fn(
        move |_: Job<u64>| {
            log.lock().unwrap().push(clock.elapsed().as_secs() / 10);
            ready(Ok::<_, BoxError>(Outcome::Ack))
        },
    ));
    let summary = worker(&queue).build().unwrap().run(service_handler(service)).await;
    assert_eq!(summary.acked, 6);
    assert_eq!(*times.lock().unwrap(), [0, 0, 1, 1, 2, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_and_an_error_are_failures_and_a_shed_job_may_be_put_off() {
    let backend = Faulty::new();
    let queue = filled(&backend, 3).await;
    let service = ServiceBuilder::new()
        .map_result(|result: Result<(), BoxError>| match result {
            Err(error) if error.is::<Overloaded>() => Ok(Outcome::Snooze(ms(7_000))),
            other => other.map(Outcome::from),
        })
        .load_shed()
        .concurrency_limit(1)
        .timeout(ms(1_000))
        .service(service_fn(async |job: Job<u64>| {
            match (*job.payload(), job.epoch()) {
                (0, 1) => sleep(ms(60_000)).await,
                (1, 2) => return Err(BoxError::from("not yet")),
                _ => {}
            }
            Ok(())
        }));
    let summary = worker(&queue).build().unwrap().run(service_handler(service)).await;
    let Summary { acked, failed, snoozed, .. } = summary;
    // At first 0 has the place until it times out. At 7 s 1 fails, and 2 finds the place free
    // again.
    assert_eq!((acked, failed, snoozed), (3, 2, 2));
    let Found::Finished(_) = backend.found("0").await else { panic!("it was handled") };
}

#[tokio::test(start_paused = true)]
async fn errors_and_panics_of_a_service_concern_their_own_message_only() {
    for (odd, text) in [
        (Odd::NotReadyError, "out of order"),
        (Odd::PanicsWhenAsked, "panicked: asked"),
        (Odd::PanicsWhenCalled, "panicked: called"),
        (Odd::Fails, "failed"),
    ] {
        let backend = Faulty::new();
        let queue = filled(&backend, 2).await;
        let summary = worker(&queue).build().unwrap().run(service_handler(odd.clone())).await;
        assert_eq!((summary.failed, summary.dead), (4, 2), "{odd:?}");
        for id in ["0", "1"] {
            let Found::Live(message) = backend.found(id).await else { panic!("{odd:?}") };
            let MessageState::Dead { reason, .. } = message.info.state else { panic!("{odd:?}") };
            assert_eq!(reason, DeathReason::MaxFailures);
            assert_eq!(message.info.last_error.as_deref(), Some(text));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_service_never_gets_ready_is_given_back_when_the_worker_stops() {
    let backend = Faulty::new();
    let queue = filled(&backend, 2).await;
    let worker = worker(&queue).stop_grace(ms(1_000)).build().unwrap();
    let summary = worker.run_until(sleep(ms(20_000)), service_handler(Odd::NeverReady)).await;
    let Summary { released, failed, unsettled, .. } = summary;
    assert_eq!((released, failed, unsettled), (2, 0, 0));
    assert!(backend.sent("extend").len() >= 15, "the leases are kept meanwhile");
    assert!(backend.elapsed() <= ms(21_100), "{:?}", backend.elapsed());
    assert_eq!(backend.stats().await.ready, 2);
    let Found::Live(message) = backend.found("0").await else { panic!("it is there") };
    assert_eq!((message.info.failures, message.info.crashes), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_message_that_waits_for_its_service_can_be_cancelled() {
    let backend = Faulty::new();
    let queue = filled(&backend, 1).await;
    let worker = worker(&queue).build().unwrap();
    let running = tokio::spawn(worker.run(service_handler(Odd::NeverReady)));
    sleep(ms(500)).await;
    queue.cancel("0").await.unwrap();
    // It ends, because the queue is empty then.
    assert_eq!(running.await.unwrap().released, 1);
    assert_eq!(backend.stats().await.totals.cancelled, 1);
    assert!(backend.elapsed() <= ms(2_600), "told by the next beat: {:?}", backend.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_time_that_a_service_is_not_ready_counts_for_the_timeout() {
    let backend = Faulty::new();
    let queue = filled(&backend, 1).await;
    let worker = worker(&queue).handler_timeout(ms(5_000)).build().unwrap();
    let summary = worker.run(service_handler(Odd::NeverReady)).await;
    assert_eq!((summary.failed, summary.dead), (2, 1));
    let Found::Live(message) = backend.found("0").await else { panic!("it is there") };
    assert_eq!(message.info.last_error.as_deref(), Some("timed out after 5s"));
}
