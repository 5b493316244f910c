//! Sends that update the message of their id, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Fault, Faulty};
use delayline::backend::Millis;
use delayline::events::EventKind;
use delayline::message::{Message, Status};
use delayline::telemetry::TraceContext;
use delayline::update::{UpdateContent, UpdateDue};
use delayline::{Cancelled, Enqueued, ErrorClass, ErrorKind, Found, Job, Queue, Worker};
use tokio::sync::Notify;
use tokio::time::sleep;

type Numbers = Queue<u64>;

const SECOND: Duration = Duration::from_secs(1);

async fn live(queue: &Numbers) -> Message<u64> {
    match queue.get("a").await.unwrap() {
        Found::Live(message) => *message,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_debounce_waits_for_silence_but_not_for_ever() {
    let backend = Faulty::new();
    let queue = Numbers::new(backend.clone());
    let mut first_due = None;
    for n in 0..20 {
        let draft = queue.message(&n).id("a").due_in(2 * SECOND).debounce(10 * SECOND);
        let sent = draft.send().await.unwrap();
        assert!(sent.is_accepted());
        match sent.outcome {
            Enqueued::Created { due } => first_due = Some(due),
            Enqueued::Updated { due } => {
                let since = due.since(first_due.unwrap());
                assert!(since <= 8 * SECOND, "{since:?} after the first");
            }
            other => panic!("{other:?}"),
        }
        if n < 4 {
            sleep(SECOND).await;
        }
    }
    let stats = queue.stats().await.unwrap();
    assert_eq!((stats.scheduled, stats.totals.replaced), (1, 19));
    assert_eq!(live(&queue).await.payload, 19, "the latest content");
}

#[tokio::test(start_paused = true)]
async fn a_coalesced_message_keeps_the_first_due_time_and_the_latest_content() {
    let queue = Numbers::new(Faulty::new());
    let send = async |n: u64| {
        let draft = queue.message(&n).id("a").due_in(10 * SECOND).coalesce();
        draft.send().await.unwrap().outcome
    };
    let Enqueued::Created { due } = send(1).await else { panic!() };
    sleep(SECOND).await;
    assert_eq!(send(2).await, Enqueued::Updated { due });
    let stays = Enqueued::Duplicate { status: Status::Scheduled };
    assert_eq!(send(2).await, stays, "another update, but it changes nothing");
    assert_eq!(live(&queue).await.payload, 2);
}

#[tokio::test(start_paused = true)]
async fn the_first_send_of_a_window_counts() {
    let queue = Numbers::new(Faulty::new());
    let mut events = queue.events();
    let send = async |n: u64| queue.message(&n).id("a").throttle(60 * SECOND).send().await.unwrap();
    let Enqueued::Created { due } = send(1).await.outcome else { panic!() };
    let until = due.after(Millis::saturating(60_000));
    assert_eq!(queue.cancel("a").await.unwrap(), Cancelled::Cancelled);
    for n in [1, 2] {
        let sent = send(n).await;
        assert_eq!(sent.outcome, Enqueued::Throttled { until });
        assert!(!sent.is_accepted() && !sent.is_conflict());
    }
    sleep(60 * SECOND).await;
    assert!(send(2).await.is_accepted(), "the next window");
    let mut told = Vec::new();
    while let Some(event) = events.try_next() {
        told.push(event.kind);
    }
    assert!(told.contains(&EventKind::Throttled { until }), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_throttled_message_is_sent_again_if_its_window_lasts_as_long() {
    let patience = 5 * SECOND;
    for (window, is_repeated) in [(patience, false), (patience + SECOND, true)] {
        let backend = Faulty::with_faults("enqueue", &[Fault::LostReply]);
        let queue = Numbers::new(backend.clone()).patience(patience);
        match queue.message(&1).id("a").throttle(window).send().await {
            Ok(sent) => assert!(is_repeated && sent.repeated && sent.is_accepted(), "{sent:?}"),
            Err(error) => {
                assert!(!is_repeated, "{error}");
                assert_eq!(error.class(), ErrorClass::Ambiguous);
            }
        }
        assert_eq!(backend.stats().await.totals.enqueued, 1);
    }
}

#[tokio::test]
async fn an_update_or_a_throttle_without_an_id_is_refused() {
    let backend = Faulty::new();
    let queue = Numbers::new(backend.clone());
    let draft = || queue.message(&1);
    for draft in [
        draft().throttle(SECOND),
        draft().debounce(SECOND),
        draft().coalesce(),
        draft().or_reschedule(),
        draft().or_replace(),
    ] {
        let error = draft.clone().send().await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Invalid(_)), "{error:?}");
        assert!(error.to_string().contains("needs an id of your own"), "{error}");
        assert!(queue.send_many([draft.clone()]).await.remove(0).is_err());
        assert!(draft.id("a").send().await.unwrap().is_accepted(), "the id may come last");
        queue.purge("a").await.unwrap();
    }
}

#[tokio::test]
async fn a_large_update_is_sent_without_its_trace_context() {
    let queue: Queue<String> = Queue::new(Faulty::new());
    let queue = queue.trace_source(|| TraceContext::new(7, 1, true).ok());
    let draft = queue.message(&"x".repeat(16_370)).id("a");
    let sent = draft.update(UpdateContent::Replace, UpdateDue::Set).send().await;
    assert!(sent.unwrap().is_accepted());
}

#[tokio::test(start_paused = true)]
async fn rescheduling_keeps_the_content_and_replacing_does_not() {
    let queue = Numbers::new(Faulty::new());
    let draft = queue.message(&1).id("a").due_in(SECOND).or_reschedule();
    assert!(matches!(draft.send().await.unwrap().outcome, Enqueued::Created { .. }));
    let draft = queue.message(&2).id("a").due_in(9 * SECOND).or_reschedule();
    let Enqueued::Updated { due } = draft.send().await.unwrap().outcome else { panic!() };
    let message = live(&queue).await;
    assert_eq!((message.payload, message.info.due), (1, due));
    let draft = queue.message(&3).id("a").due_in(SECOND).or_replace();
    let Enqueued::Updated { due: earlier } = draft.send().await.unwrap().outcome else { panic!() };
    assert!(earlier < due);
    assert_eq!(live(&queue).await.payload, 3);
}

#[tokio::test(start_paused = true)]
async fn an_update_whose_reply_is_lost_is_repeated_and_counts_once() {
    let backend = Faulty::with_faults("enqueue", &[Fault::LostReply]);
    let queue = Numbers::new(backend.clone());
    let draft = queue.message(&1).id("a").due_in(SECOND).or_replace();
    let sent = draft.clone().send().await.unwrap();
    assert!(sent.repeated && sent.is_accepted());
    assert_eq!(backend.sent("enqueue").len(), 2);
    queue.cancel("a").await.unwrap();
    let again = draft.send().await.unwrap().outcome;
    assert_eq!(again, Enqueued::Duplicate { status: Status::Cancelled }, "the same draft again");
    let anew = queue.message(&1).id("a").or_replace().send().await.unwrap().outcome;
    assert!(matches!(anew, Enqueued::Created { .. }), "{anew:?}");
    assert_eq!(backend.stats().await.totals.enqueued, 2);
}

#[tokio::test(start_paused = true)]
async fn an_update_during_the_handler_is_handled_afterwards() {
    let queue = Numbers::new(Faulty::new());
    let mut events = queue.events();
    let draft = queue.message(&1).id("a").update(UpdateContent::Replace, UpdateDue::Set);
    assert!(draft.send().await.unwrap().is_accepted());
    let started = Arc::new((Notify::new(), Notify::new()));
    let worker = Worker::builder(queue.clone()).until_empty(true).build().unwrap();
    let told_handler = Arc::clone(&started);
    let handler = move |job: Job<u64>| {
        let told = Arc::clone(&told_handler);
        async move {
            if *job.payload() == 1 {
                told.0.notify_one();
                told.1.notified().await;
                return Err("half done");
            }
            Ok(())
        }
    };
    let update = async {
        started.0.notified().await;
        let sent = queue.message(&2).id("a").or_replace().send().await.unwrap();
        assert_eq!(sent.outcome, Enqueued::Following { replaced: false });
        assert_eq!(live(&queue).await.follower.map(|follower| follower.payload_bytes), Some(1));
        started.1.notify_one();
    };
    let (summary, ()) = tokio::join!(worker.run(handler), update);
    assert_eq!((summary.acked, summary.failed), (1, 1));
    let mut told = Vec::new();
    while let Some(event) = events.try_next() {
        told.push(event.kind);
    }
    assert!(told.iter().any(|kind| matches!(kind, EventKind::Following)), "{told:?}");
    let error = Some("half done".to_owned());
    assert!(told.contains(&EventKind::Replaced { error }), "G11: {told:?}");
    let stats = queue.stats().await.unwrap();
    assert_eq!((stats.totals.acked, stats.totals.replaced, stats.ready), (1, 1, 0));
}
