//! Several types of payloads in one queue.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use delayline::backend::NewMessage;
use delayline::codec::{CodecError, Decode, Encode, Raw};
use delayline::events::EventKind;
use delayline::message::{DeathReason, Headers, MessageState, Status};
use delayline::testing::{TestConnection, TestQueue};
use delayline::worker::{AnyKind, Undecodable};
use delayline::{
    Bytes, ErrorKind, Found, Job, Jobs, Kind, Outcome, Queue, RetryPolicy, Worker, Workers,
    with_state,
};
use serde::{Deserialize, Serialize};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct CloseOrder {
    order: u64,
}

impl Kind for CloseOrder {
    const KIND: &'static str = "close-order";
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct SendText {
    to: String,
}

impl Kind for SendText {
    const KIND: &'static str = "send-text";
}

fn text(to: &str) -> SendText {
    SendText { to: to.to_owned() }
}

type Log = Arc<Mutex<Vec<String>>>;

async fn close(log: Log, job: Job<CloseOrder>) -> Result<(), io::Error> {
    log.lock().unwrap().push(format!("close {}", job.payload().order));
    Ok(())
}

async fn tell(log: Log, job: Job<SendText>) -> Result<(), io::Error> {
    log.lock().unwrap().push(format!("text {}", job.payload().to));
    Ok(())
}

async fn ignore(_: Job<CloseOrder>) -> Result<(), io::Error> {
    Ok(())
}

/// Every kind with its handler, and what the handlers do.
fn both<C>(jobs: Jobs<C>) -> (Jobs<C>, Log)
where
    C: Decode<CloseOrder> + Decode<SendText>,
{
    let log = Log::default();
    let jobs = jobs.on(with_state(Arc::clone(&log), close));
    (jobs.on(with_state(Arc::clone(&log), tell)), log)
}

/// Sends one message of each kind, and handles both.
async fn each_kind_once(jobs: Jobs) {
    let (jobs, log) = both(jobs);
    let _ = jobs.message(&CloseOrder { order: 17 }).id("a").send().await.unwrap();
    let second = jobs.message(&text("Ada")).id("b").due_in(Duration::from_millis(20));
    let _ = second.send().await.unwrap();

    // The same value under another kind would be another content.
    let sent = jobs.message(&CloseOrder { order: 17 }).id("a").send().await.unwrap();
    assert!(sent.is_accepted());
    let other = jobs.message(&CloseOrder { order: 17 }).id("a").header(Headers::KIND, "other");
    assert!(other.send().await.unwrap().is_conflict());
    let Found::Live(message) = jobs.queue().get("a").await.unwrap() else { panic!("it is gone") };
    assert_eq!(message.headers.kind(), Some("close-order"));

    // One after the other: on a slow machine both are due when it begins.
    let worker = jobs.worker().concurrency(1).until_empty(true).build().unwrap();
    let summary = worker.run(jobs.handler().unwrap()).await;
    assert_eq!((summary.acked, summary.failed), (2, 0));
    assert_eq!(*log.lock().unwrap(), ["close 17", "text Ada"]);
}

#[tokio::test(start_paused = true)]
async fn each_kind_has_its_handler() {
    let connection = delayline::connect("memory:").await.unwrap();
    each_kind_once(Jobs::new(connection.queue("jobs").await.unwrap())).await;
}

#[cfg(any(feature = "redis", feature = "fred"))]
#[tokio::test(flavor = "multi_thread")]
async fn each_kind_has_its_handler_on_a_server() {
    use delayline::{Connect, RedisClient};

    let server = delayline_test_server::Server::start();
    for driver in [
        #[cfg(feature = "redis")]
        RedisClient::Redis,
        #[cfg(feature = "fred")]
        RedisClient::Fred,
    ] {
        let connection = Connect::new(&server.url()).unwrap().client(driver).connect().await;
        let name = format!("{driver:?}").to_lowercase();
        each_kind_once(Jobs::new(connection.unwrap().queue(&name).await.unwrap())).await;
    }
}

#[tokio::test]
async fn drains_handle_all_kinds() {
    let test: TestQueue<AnyKind> = TestQueue::new();
    let (jobs, log) = both(Jobs::new(test.queue().clone()));
    let _ = jobs.message(&CloseOrder { order: 1 }).id("a").send().await.unwrap();
    test.assert_sent("a").assert_header(Headers::KIND, "close-order");
    let drained = test.drain(jobs.handler().unwrap()).await;
    assert_eq!(drained.count(Status::Acked), 1);
    assert_eq!(*log.lock().unwrap(), ["close 1"]);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_kind_is_retried_until_a_worker_knows_it() {
    let connection = delayline::connect("memory:").await.unwrap();
    let jobs = Jobs::new(connection.queue("jobs").await.unwrap());
    let _ = jobs.message(&text("Ada")).id("a").send().await.unwrap();

    let old = jobs.clone().on(ignore);
    let retry = RetryPolicy::fixed(Duration::from_millis(10));
    let worker = old.worker().retry(retry).build().unwrap();
    let (handle, running) = (worker.handle(), tokio::spawn(worker.run(old.handler().unwrap())));
    while jobs.queue().stats().await.unwrap().totals.failed < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (new, log) = both(jobs.clone());
    let worker = new.worker().build().unwrap();
    let (handle_new, run) = (worker.handle(), tokio::spawn(worker.run(new.handler().unwrap())));
    while jobs.queue().stats().await.unwrap().totals.acked < 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    handle.stop(Duration::ZERO);
    handle_new.stop(Duration::ZERO);
    assert!(running.await.unwrap().failed >= 2);
    assert_eq!(run.await.unwrap().acked, 1);
    assert_eq!(*log.lock().unwrap(), ["text Ada"]);
}

#[tokio::test(start_paused = true)]
async fn what_has_no_handler_is_undecodable() {
    let connection = delayline::connect("memory:").await.unwrap();
    let jobs = Jobs::new(connection.queue("jobs").await.unwrap());
    let _ = jobs.message(&text("Ada")).id("unknown").send().await.unwrap();
    let id = |id: &str| id.try_into().unwrap();
    let plain = NewMessage::new(id("plain"), Bytes::from_static(b"{}"));
    let mut broken = NewMessage::new(id("broken"), Bytes::from_static(b"hunter2"));
    broken.headers.set_kind(CloseOrder::KIND).unwrap();
    assert!(jobs.queue().send_many([plain, broken]).await.iter().all(Result::is_ok));

    let old = jobs.clone().on(ignore);
    let worker = old.worker().on_undecodable(Undecodable::Reject).until_empty(true);
    let summary = worker.build().unwrap().run(old.handler().unwrap()).await;
    assert_eq!((summary.rejected, summary.released), (3, 0));
    for (id, reason) in [
        ("unknown", "this worker has no handler for the kind send-text"),
        ("plain", "the message has no kind"),
        ("broken", "it is not JSON: line 1, column 1"),
    ] {
        let Found::Live(dead) = jobs.queue().get(id).await.unwrap() else { panic!("{id} is gone") };
        let MessageState::Dead { reason: died, .. } = dead.info.state else { panic!("{id} lives") };
        assert_eq!(died, DeathReason::Rejected);
        let error = dead.info.last_error.unwrap();
        assert_eq!(error, format!("the payload could not be decoded: {reason}"));
    }
}

#[tokio::test]
async fn two_handlers_of_a_kind_are_an_error() {
    let test: TestQueue<AnyKind> = TestQueue::new();
    let jobs = Jobs::new(test.queue().clone()).on(ignore).on(ignore);
    let error = jobs.handler().err().unwrap();
    assert!(matches!(error.kind(), ErrorKind::Invalid(_)));
    assert_eq!(error.to_string(), "the kind \"close-order\" is not valid: it has two handlers");

    #[derive(Serialize, Deserialize)]
    struct Unnamed;
    impl Kind for Unnamed {
        const KIND: &'static str = "";
    }
    let handler = async |_: Job<Unnamed>| Ok::<(), io::Error>(());
    let jobs = Jobs::new(test.queue().clone()).on(handler);
    assert_eq!(jobs.handler().err().unwrap().to_string(), "the kind is empty");
    assert!(jobs.message(&Unnamed).send().await.unwrap_err().is_invalid());
}

#[tokio::test(start_paused = true)]
async fn stopping_releases_and_panics_fail_their_own_message() {
    let connection = delayline::connect("memory:").await.unwrap();
    let jobs = Jobs::new(connection.queue("jobs").await.unwrap());
    let _ = jobs.message(&CloseOrder { order: 1 }).id("a").send().await.unwrap();
    let _ = jobs.message(&text("Ada")).id("b").send().await.unwrap();

    let started = Arc::new(tokio::sync::Notify::new());
    let begun = Arc::clone(&started);
    let jobs = jobs
        .on(with_state(started, |started, job: Job<CloseOrder>| async move {
            started.notify_one();
            job.cancellation().cancelled().await;
            Err::<(), _>("cut short")
        }))
        .on(|_: Job<SendText>| async move {
            if true {
                panic!("no such customer");
            }
            Ok::<(), io::Error>(())
        });
    let worker = jobs.worker().stop_grace(Duration::ZERO).build().unwrap();
    let stop = async move { begun.notified().await };
    let summary = worker.run_until(stop, jobs.handler().unwrap()).await;
    assert_eq!((summary.released, summary.failed), (1, 1));
    let Found::Live(message) = jobs.queue().get("b").await.unwrap() else { panic!("it is gone") };
    assert_eq!(message.info.last_error.unwrap(), "panicked: no such customer");
}

#[tokio::test(start_paused = true)]
async fn events_of_sends_and_deliveries_have_the_kind() {
    let connection = delayline::connect("memory:").await.unwrap();
    let jobs = Jobs::new(connection.queue("jobs").await.unwrap());
    let mut events = jobs.queue().events();
    let next = jobs.clone();
    let jobs = jobs.on(with_state(next, |next, _: Job<CloseOrder>| async move {
        Outcome::Ack.then([next.message(&text("Ada")).id("b")])
    }));
    let (jobs, _) = (jobs.on(async |_: Job<SendText>| Ok::<(), io::Error>(())), ());
    let _ = jobs.message(&CloseOrder { order: 1 }).id("a").send().await.unwrap();
    // Shares the slots with other queues.
    let summary = Workers::sharing(4)
        .unwrap()
        .add(1, jobs.worker().until_empty(true), jobs.handler().unwrap())
        .unwrap()
        .run()
        .await;
    assert_eq!(summary.acked, 2);
    let mut seen = Vec::new();
    while let Some(event) = events.try_next() {
        let what = match event.kind {
            EventKind::Enqueued { .. } => "sent",
            EventKind::Delivered { .. } => "delivered",
            EventKind::Acked => "acked",
            kind => panic!("{kind:?}"),
        };
        seen.push((event.id.to_string(), what, event.job_kind));
    }
    let of = |id: &str, what, kind: Option<&str>| (id.to_owned(), what, kind.map(str::to_owned));
    assert_eq!(
        seen,
        [
            of("a", "sent", Some("close-order")),
            of("a", "delivered", Some("close-order")),
            of("a", "acked", None),
            of("b", "sent", Some("send-text")),
            of("b", "delivered", Some("send-text")),
            of("b", "acked", None),
        ]
    );
}

/// A codec of another crate, for every type that can become text.
struct Lines;

impl Encode<CloseOrder> for Lines {
    fn encode(&self, value: &CloseOrder) -> Result<Bytes, CodecError> {
        Ok(value.order.to_string().into())
    }
}

impl Decode<CloseOrder> for Lines {
    fn decode(&self, payload: &Bytes) -> Result<CloseOrder, CodecError> {
        let text = std::str::from_utf8(payload).ok().and_then(|text| text.parse().ok());
        text.map(|order| CloseOrder { order }).ok_or_else(|| CodecError::new("not a number"))
    }
}

#[tokio::test(start_paused = true)]
async fn one_codec_serves_all_kinds() {
    let connection = TestConnection::new();
    let queue = connection.connection().queue("jobs").await.unwrap().codec(Lines);
    let jobs = Jobs::new(queue).on(ignore);
    let _ = jobs.message(&CloseOrder { order: 17 }).id("a").send().await.unwrap();
    let raw: Queue<Bytes, Raw> = connection.connection().queue("jobs").await.unwrap().codec(Raw);
    let Found::Live(message) = raw.get("a").await.unwrap() else { panic!("it is gone") };
    assert_eq!(message.payload, "17");
    let worker: Worker<_, _> = jobs.worker().until_empty(true).build().unwrap();
    assert_eq!(worker.run(jobs.handler().unwrap()).await.acked, 1);
}
