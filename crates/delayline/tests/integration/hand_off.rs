//! Messages that follow from the handling of others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::support::{Fault, Faulty};
use delayline::admin::Listed;
use delayline::backend::Op;
use delayline::events::EventKind;
use delayline::message::{Group, MessageState, Status};
use delayline::{Draft, Error, ErrorKind, Found, Job, MessageId, Outcome, Queue, Worker, limits};

fn over(backend: &Arc<Faulty>) -> Queue<u64> {
    Queue::new(Arc::clone(backend) as _)
}

fn id(text: &str) -> MessageId {
    MessageId::try_from(text).unwrap()
}

/// Handles a chain of steps up to `last`, each due 10 ms after the one before. Returns how many
/// steps were acked and how many handlers ran.
async fn run_chain(backend: &Arc<Faulty>, last: u64) -> (u64, u64) {
    let queue = over(backend);
    let runs = Arc::new(AtomicU64::new(0));
    let _ = queue.message(&1).id("step-1").send().await.unwrap();
    let worker = Worker::builder(queue.clone()).until_empty(true).build().unwrap();
    let count = Arc::clone(&runs);
    let summary = worker
        .run(move |job: Job<u64>| {
            let (queue, count) = (queue.clone(), Arc::clone(&count));
            async move {
                count.fetch_add(1, Ordering::Relaxed);
                let next = job.payload() + 1;
                if next > last {
                    return Ok(Outcome::Ack);
                }
                let draft = queue.message(&next).id(format!("step-{next}"));
                Outcome::Ack.then([draft.due_in(Duration::from_millis(10))])
            }
        })
        .await;
    (summary.acked, runs.load(Ordering::Relaxed))
}

#[tokio::test(start_paused = true)]
async fn a_chain_runs_step_by_step() {
    let backend = Faulty::new();
    assert_eq!(run_chain(&backend, 5).await, (5, 5));
    let totals = backend.stats().await.totals;
    assert_eq!((totals.enqueued, totals.acked), (5, 5));
    assert_eq!((backend.sent("hand_off").len(), backend.sent("settle").len()), (4, 1));
    // No message waits for a poll.
    assert!(backend.elapsed() < Duration::from_millis(200), "{:?}", backend.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_chain_neither_breaks_nor_forks_when_calls_fail() {
    use Fault::{Busy, LostReply, LostRequest, None, SlowReply};
    let faults = [LostReply, None, LostRequest, LostReply, Busy, SlowReply, LostReply, LostReply];
    let backend = Faulty::with_faults("hand_off", &faults);
    let (acked, runs) = run_chain(&backend, 8).await;
    assert_eq!((acked, runs), (8, 8));
    let totals = backend.stats().await.totals;
    assert_eq!((totals.enqueued, totals.acked, totals.crashed), (8, 8, 0));
}

#[tokio::test(start_paused = true)]
async fn what_a_full_server_refuses_holds_up_nothing_else() {
    // Full until the messages without others have given memory back.
    let acks = Arc::new(AtomicU64::new(0));
    let backend = Faulty::new();
    let seen = Arc::clone(&acks);
    backend.set_plan(move |op| {
        if let Op::Settle(items) = op {
            seen.fetch_add(u64::try_from(items.len()).unwrap(), Ordering::Relaxed);
        }
        let is_full = op.name() == "hand_off" && seen.load(Ordering::Relaxed) < 20;
        if is_full { Fault::Full } else { Fault::None }
    });
    let queue = over(&backend);
    let _ = queue.message(&0).id("chain").send().await.unwrap();
    for n in 1..=20 {
        let _ = queue.message(&n).send().await.unwrap();
    }
    let runs = Arc::new(AtomicU64::new(0));
    let worker = Worker::builder(queue.clone()).concurrency(1).until_empty(true).build().unwrap();
    let (next, count) = (queue.clone(), Arc::clone(&runs));
    let summary = worker
        .run(move |job: Job<u64>| {
            count.fetch_add(1, Ordering::Relaxed);
            let draft = (*job.payload() == 0).then(|| next.message(&21).id("next"));
            async move { draft.map_or(Ok(Outcome::Ack), |draft| Outcome::Ack.then([draft])) }
        })
        .await;
    assert_eq!((summary.acked, summary.lost, runs.load(Ordering::Relaxed)), (22, 0, 22));
    assert!(backend.sent("hand_off").len() > 1);
    assert!(backend.elapsed() < Duration::from_secs(5), "{:?}", backend.elapsed());
    assert_eq!(queue.get("next").await.unwrap(), Found::Finished(Status::Acked));
}

#[tokio::test(start_paused = true)]
async fn messages_follow_from_every_outcome() {
    let backend = Faulty::new();
    let queue = over(&backend);
    let mut events = queue.events();
    let _ = queue.message(&1).id("a").max_failures(1).send().await.unwrap();
    let worker = Worker::builder(queue.clone()).until_empty(true).build().unwrap();
    let next = queue.clone();
    worker
        .run(move |job: Job<u64>| {
            let next = next.clone();
            async move {
                if *job.payload() > 1 {
                    return Ok(Outcome::Ack);
                }
                let first = Outcome::retry("it failed").then([next.message(&2).id("tell")])?;
                first.then([next.message(&3).id("log")])
            }
        })
        .await;
    let Found::Live(dead) = queue.get("a").await.unwrap() else { panic!("it is gone") };
    assert!(matches!(dead.info.state, MessageState::Dead { .. }));
    for name in ["tell", "log"] {
        assert_eq!(queue.get(name).await.unwrap(), Found::Finished(Status::Acked), "{name}");
    }
    let mut told = Vec::new();
    while let Some(event) = events.try_next() {
        match event.kind {
            EventKind::Enqueued { .. } => told.push(format!("{} enqueued", event.id)),
            EventKind::Dead { .. } => told.push(format!("{} dead", event.id)),
            EventKind::Acked => told.push(format!("{} acked", event.id)),
            _ => {}
        }
    }
    let expected = ["a enqueued", "a dead", "tell enqueued", "log enqueued"];
    assert_eq!(told[..4], expected);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_follow_is_refused() {
    let queue = over(&Faulty::new());
    let draft = |name: &str| queue.message(&1).id(name);
    let many = || (0..=limits::MAX_FOLLOW_UPS).map(|n| queue.message(&1).id(format!("n-{n}")));
    for (refused, text) in [
        (Outcome::Ack.then([draft("a"), draft("a")]), "a"),
        (Outcome::Ack.then([draft("a").or_replace()]), "must not be an update"),
        (Outcome::Ack.then(many()), "100"),
        (Outcome::Ack.then([draft("")]), "the message id is empty"),
        (Outcome::Ack.then(Vec::<Draft>::new()), "hand-off"),
    ] {
        let error: Error = refused.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Invalid(_)), "{error:?}");
        assert!(error.to_string().contains(text), "{error} does not say {text}");
    }
    assert!(Outcome::Ack.then(many().take(limits::MAX_FOLLOW_UPS)).is_ok());
    // The handled message's own id is noticed when the handler has ended.
    let _ = draft("own").max_failures(1).send().await.unwrap();
    let worker = Worker::builder(queue.clone()).until_empty(true).build().unwrap();
    let next = queue.clone();
    worker
        .run(move |_: Job<u64>| {
            let draft = next.message(&2).id("own");
            async move { Outcome::Ack.then([draft]) }
        })
        .await;
    let Found::Live(dead) = queue.get("own").await.unwrap() else { panic!("it is gone") };
    let error = dead.info.last_error.unwrap();
    assert!(error.starts_with("the handler's outcome cannot be sent"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_message_is_handed_over_to_another_queue_once() {
    // The ack of the first run is lost with its lease.
    let (source, target) = (Faulty::new(), Faulty::new());
    let (orders, invoices) = (over(&source), over(&target));
    let _ = orders.message(&7).id("order").send().await.unwrap();
    let runs = Arc::new(AtomicU64::new(0));
    let worker = Worker::builder(orders.clone()).until_empty(true).build().unwrap();
    let (count, other) = (Arc::clone(&runs), invoices.clone());
    let summary = worker
        .run(move |job: Job<u64>| {
            let (count, other) = (Arc::clone(&count), other.clone());
            async move {
                let draft = other.message(job.payload()).group("shop");
                let outcome = job.hand_over(draft).await?;
                // The first run fails after it has sent the message.
                let is_first = count.fetch_add(1, Ordering::Relaxed) == 0;
                Ok::<_, Error>(if is_first { Outcome::retry("unlucky") } else { outcome })
            }
        })
        .await;
    assert_eq!((summary.acked, summary.failed, runs.load(Ordering::Relaxed)), (1, 1, 2));
    assert_eq!(invoices.stats().await.unwrap().totals.enqueued, 1);
    let sent = invoices.list(Listed::Ready).next_page().await.unwrap().unwrap();
    assert_eq!(sent[0].group.as_ref().map(Group::as_str), Some("shop"));
    assert_eq!(orders.get(id("order")).await.unwrap(), Found::Finished(Status::Acked));
}

#[tokio::test(start_paused = true)]
async fn a_message_that_the_other_queue_refuses_is_a_failure() {
    let (orders, invoices) = (over(&Faulty::new()), over(&Faulty::new()));
    let _ = invoices.message(&1).id("taken").send().await.unwrap();
    let _ = orders.message(&7).id("order").max_failures(1).send().await.unwrap();
    let worker = Worker::builder(orders.clone()).until_empty(true).build().unwrap();
    let summary = worker
        .run(move |job: Job<u64>| {
            let draft = invoices.message(&2).id("taken");
            async move { job.hand_over(draft).await }
        })
        .await;
    assert_eq!((summary.acked, summary.dead), (0, 1));
    let Found::Live(dead) = orders.get("order").await.unwrap() else { panic!("it is gone") };
    assert!(dead.info.last_error.unwrap().starts_with("the other queue refuses taken"));
}
