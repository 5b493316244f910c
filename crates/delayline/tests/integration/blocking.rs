//! A handler that blocks a thread of the runtime. The tests run in real time, because simulated
//! time cannot block a thread.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::Faulty;
use delayline::backend::{Found, Op};
use delayline::message::MessageState;
use delayline::worker::{CancelReason, Stuck, WorkerBuilder};
use delayline::{Job, Queue, RetryPolicy, Worker};
use delayline_test_server::until;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, timeout};

/// Longer than a busy machine holds up the threads of a test.
const LEASE: Duration = ms(6_000);
const PATIENCE: Duration = ms(60_000);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Blocks every handler that reaches it until the test opens it or fails.
#[derive(Clone)]
struct Gate(Arc<Mutex<Receiver<()>>>);

impl Gate {
    fn new() -> (Sender<()>, Self) {
        let (opener, gate) = channel();
        (opener, Self(Arc::new(Mutex::new(gate))))
    }

    fn block(&self) {
        let _ = self.0.lock().unwrap().recv();
    }
}

/// Sends messages with these ids as payloads, and returns their queue.
async fn sent(backend: &Arc<Faulty>, ids: &[&str]) -> Queue<String> {
    let queue: Queue<String> = Queue::new(backend.clone());
    for id in ids {
        let draft = queue.message(&(*id).to_owned()).id(*id);
        assert!(draft.send().await.unwrap().is_accepted());
    }
    queue
}

/// Returns a worker, and the reports of handlers that run for longer than `stuck_after`.
fn worker(
    queue: &Queue<String>,
    stuck_after: Duration,
) -> (WorkerBuilder<String>, mpsc::UnboundedReceiver<Stuck>) {
    let (report, reports) = mpsc::unbounded_channel();
    let worker = Worker::builder(queue.clone())
        .concurrency(4)
        .lease(LEASE)
        .retry(RetryPolicy::fixed(Duration::ZERO))
        .on_stuck(stuck_after, move |stuck| drop(report.send(stuck.clone())));
    (worker, reports)
}

/// Returns how often the lease of this message was extended.
fn beats(backend: &Faulty, id: &str) -> usize {
    let extends = backend.sent("extend");
    let of = |op: &Op| match op {
        Op::Extend(extend) => extend.leases.iter().any(|(it, _)| it.as_str() == Some(id)),
        _ => false,
    };
    extends.iter().filter(|(_, op)| of(op)).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_other_messages_go_on_and_its_own_is_settled_when_it_ends() {
    let backend = Faulty::new();
    let queue = sent(&backend, &["blocks", "waits"]).await;
    let (builder, mut stuck) = worker(&queue, ms(250));
    let worker = builder.build().unwrap();
    let handle = worker.handle();
    let (opener, gate) = Gate::new();
    let waited = Arc::new(Notify::new());
    let waits = Arc::clone(&waited);
    let (handled, mut seen) = mpsc::unbounded_channel();
    let running = tokio::spawn(worker.run(move |job: Job<String>| {
        let (gate, waits, handled) = (gate.clone(), Arc::clone(&waits), handled.clone());
        async move {
            assert_eq!((job.epoch(), job.crashes()), (1, 0), "{job:?} was not reclaimed");
            match job.payload().as_str() {
                "blocks" => gate.block(),
                "waits" => waits.notified().await,
                _ => {}
            }
            assert_eq!(job.cancel_reason(), None);
            handled.send(job.into_payload()).unwrap();
            Ok::<(), &str>(())
        }
    }));

    // Both run too long, and one of them blocks its thread.
    let mut ids = Vec::new();
    for _ in 0..2 {
        let report = timeout(PATIENCE, stuck.recv()).await.unwrap().unwrap();
        assert!(report.running >= ms(250) && report.cancel_reason.is_none(), "{report:?}");
        ids.push(report.id.to_string());
    }
    ids.sort();
    assert_eq!(ids, ["blocks", "waits"]);

    // New messages are handled, and both leases are extended for longer than one lasts.
    sent(&backend, &["new"]).await;
    let first = timeout(PATIENCE, seen.recv()).await.unwrap();
    assert_eq!(first.as_deref(), Some("new"));
    let before = (beats(&backend, "blocks"), beats(&backend, "waits"));
    let more =
        || beats(&backend, "blocks") >= before.0 + 3 && beats(&backend, "waits") >= before.1 + 3;
    until("heartbeats of both", more).await;

    waited.notify_one();
    let second = timeout(PATIENCE, seen.recv()).await.unwrap();
    assert_eq!(second.as_deref(), Some("waits"));
    opener.send(()).unwrap();
    let third = timeout(PATIENCE, seen.recv()).await.unwrap();
    assert_eq!(third.as_deref(), Some("blocks"));
    handle.stop(PATIENCE);
    let summary = running.await.unwrap();
    assert_eq!((summary.acked, summary.failed, summary.lost), (3, 0, 0));
    assert_eq!(backend.stats().await.totals.acked, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_on_the_age_of_its_lease_gives_its_message_to_another() {
    let backend = Faulty::new();
    let queue = sent(&backend, &["blocks"]).await;
    let (builder, mut stuck) = worker(&queue, ms(8_000));
    let worker = builder.max_lease_age(ms(7_000)).build().unwrap();
    let handle = worker.handle();
    let (opener, gate) = Gate::new();
    let (handled, mut seen) = mpsc::unbounded_channel();
    let running = tokio::spawn(worker.run(move |job: Job<String>| {
        let (gate, handled) = (gate.clone(), handled.clone());
        async move {
            if job.epoch() == 1 {
                gate.block();
            }
            handled.send((job.epoch(), job.crashes(), job.cancel_reason())).unwrap();
            Ok::<(), &str>(())
        }
    }));
    let report = timeout(PATIENCE, stuck.recv()).await.unwrap().unwrap();
    assert_eq!((report.epoch, report.cancel_reason), (1, Some(CancelReason::LeaseTooOld)));
    let second = timeout(PATIENCE, seen.recv()).await.unwrap();
    assert_eq!(second, Some((2, 1, None)));
    // Its outcome is too late, and changes nothing.
    opener.send(()).unwrap();
    let first = timeout(PATIENCE, seen.recv()).await.unwrap().unwrap();
    assert_eq!((first.0, first.1), (1, 0));
    assert!(first.2.is_some());
    handle.stop(PATIENCE);
    let summary = running.await.unwrap();
    assert_eq!((summary.acked, summary.failed, summary.lost), (1, 0, 1));
    assert_eq!(backend.stats().await.totals.acked, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_worker_stops_in_time_and_its_message_comes_back() {
    let backend = Faulty::new();
    let queue = sent(&backend, &["blocks", "waits"]).await;
    let (builder, mut stuck) = worker(&queue, ms(250));
    let worker = builder.build().unwrap();
    let handle = worker.handle();
    let (opener, gate) = Gate::new();
    let running = tokio::spawn(worker.run(move |job: Job<String>| {
        let gate = gate.clone();
        async move {
            if job.payload() == "blocks" {
                gate.block();
            } else {
                job.cancellation().cancelled().await;
            }
            Ok::<(), &str>(())
        }
    }));
    for _ in 0..2 {
        timeout(PATIENCE, stuck.recv()).await.unwrap().unwrap();
    }
    let stop = Instant::now();
    handle.stop(ms(0));
    let summary = timeout(PATIENCE, running).await.expect("it stops").unwrap();
    // The promise is 10 s; the rest is for a busy machine.
    assert!(stop.elapsed() <= ms(30_000), "{:?}", stop.elapsed());
    assert_eq!((summary.acked, summary.failed, summary.unsettled), (1, 0, 1));

    // Its lease is no longer extended; another worker gets the message once it has expired.
    let Found::Live(message) = backend.found("blocks").await else { panic!("it is there") };
    assert!(matches!(message.info.state, MessageState::Leased { .. }), "{message:?}");
    let (builder, _) = self::worker(&queue, ms(60_000));
    let worker = builder.until_empty(true).build().unwrap();
    let summary = worker.run(async |job: Job<String>| {
        assert_eq!((job.epoch(), job.crashes(), job.failures()), (2, 1, 0));
        Ok::<(), &str>(())
    });
    let summary = timeout(PATIENCE, summary).await.expect("it comes back");
    assert_eq!((summary.acked, summary.failed), (1, 0));
    // No worker is left that could settle the outcome of the first handler.
    opener.send(()).unwrap();
}
