//! The events of a queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::support::{Fault, Faulty, logged, spans};
use delayline::backend::Op;
use delayline::backend::{Millis, NewMessage, Schedule};
use delayline::events::EventKind;
use delayline::message::DeathReason;
use delayline::telemetry::TraceContext;
use delayline::{Enqueued, Found, Job, Outcome, Queue, Worker};
use delayline_core::{Claim, ClaimId};
use futures_util::StreamExt as _;
use tokio::time::sleep;
use tracing::Instrument as _;

#[tokio::test(start_paused = true)]
async fn a_listener_follows_a_message_through_its_life() {
    let backend = Faulty::new();
    let queue: Queue<u64> = Queue::new(backend.clone());
    let mut events = queue.events();
    let _ = queue.message(&7).id("seven").send().await.unwrap();
    let worker = Worker::builder(queue.clone()).until_empty(true).build().unwrap();
    worker.run(async |job: Job<u64>| if job.epoch() == 1 { Err("not yet") } else { Ok(()) }).await;
    let mut told = Vec::new();
    while let Some(event) = events.try_next() {
        assert_eq!(event.id.as_str(), Some("seven"));
        told.push(match event.kind {
            EventKind::Enqueued { .. } => "enqueued",
            EventKind::Delivered { lateness, .. } => {
                assert!(lateness < Duration::from_millis(10));
                "delivered"
            }
            EventKind::Retried { .. } => "retried",
            EventKind::Acked => "acked",
            other => panic!("{other:?}"),
        });
    }
    assert_eq!(told, ["enqueued", "delivered", "retried", "delivered", "acked"]);
    assert_eq!(events.missed(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_events_ends_with_the_queue() {
    let queue: Queue<u64> = Queue::new(Faulty::new());
    let events = queue.events().into_stream();
    let id = queue.send(&7).await.unwrap();
    queue.cancel(id.clone()).await.unwrap();
    drop(queue);
    let told: Vec<_> = events.map(|event| (event.id, event.kind)).collect().await;
    assert!(matches!(&told[..], [(one, EventKind::Enqueued { .. }), (other, EventKind::Cancelled)]
        if *one == id && *other == id));
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_hides_no_end_of_a_message() {
    let cases = [
        ("failed", DeathReason::MaxFailures, false),
        ("rejected", DeathReason::Rejected, false),
        ("failed", DeathReason::MaxFailures, true),
        ("rejected", DeathReason::Rejected, true),
    ];
    for (id, reason, cancel) in cases {
        let backend = Faulty::with_faults("settle", &[Fault::LostReply, Fault::LostReply]);
        let queue: Queue<u64> = Queue::new(backend.clone());
        let message = NewMessage::new(id.try_into().unwrap(), "7").max_failures(1);
        let _ = queue.send_many([message]).await.remove(0).unwrap();
        let mut events = queue.events();
        let peer = backend.clone();
        let handle = move |job: Job<u64>| {
            let peer = peer.clone();
            async move {
                if cancel {
                    peer.direct(Op::Cancel(vec![job.id().clone()])).await;
                }
                if id == "failed" { Err("broken") } else { Ok(Outcome::reject("broken")) }
            }
        };
        let worker = Worker::builder(queue).until_empty(true).build().unwrap();
        let mut summary = None;
        let log = logged(async || summary = Some(worker.run(handle).await)).await;
        let summary = summary.unwrap();
        assert_eq!(backend.sent("settle").len(), 3, "{id}: the reply is lost twice");
        assert_eq!((summary.dead, summary.lost), (u64::from(!cancel), 0), "{id}: {summary:?}");
        let ends: Vec<_> = std::iter::from_fn(|| events.try_next()).map(|it| it.kind).collect();
        let end = if cancel {
            EventKind::Cancelled
        } else {
            EventKind::Dead { reason, error: Some("broken".to_owned()) }
        };
        assert_eq!(ends.last(), Some(&end), "{id}: {ends:#?}");
        assert_eq!(log.contains("dead letter"), !cancel, "{id}: {log}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_trace_context_travels_with_its_message() {
    let backend = Faulty::new();
    let queue: Queue<u64> = Queue::new(backend.clone());
    let context = TraceContext::new(0xabc, 0xdef, true).unwrap();
    let draft = queue.message(&1).trace_context(&context);
    let _ = draft.send().await.unwrap();
    let worker = Worker::builder(queue).until_empty(true).build().unwrap();
    let summary = worker
        .run(move |job: Job<u64>| {
            let seen = TraceContext::from_headers(job.headers());
            let expected = context.clone();
            async move { if seen == Some(expected) { Ok(()) } else { Err("another context") } }
        })
        .await;
    assert_eq!((summary.acked, summary.failed), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn every_attempt_is_a_span_with_the_names_of_opentelemetry() {
    let queue: Queue<u64> = Queue::new(Faulty::new());
    let _ = queue.message(&1).id("a").send().await.unwrap();
    let worker = Worker::builder(queue).until_empty(true).build().unwrap();
    let log = spans(async || {
        let run = worker.run(async |job: Job<u64>| {
            tracing::info!("handling");
            if job.attempt() == 1 { Err("broken") } else { Ok(()) }
        });
        assert_eq!(run.instrument(tracing::info_span!("program")).await.acked, 1);
    })
    .await;
    let inside: Vec<_> = log.lines().filter(|line| line.contains("process{")).collect();
    let [first, failed, second, acked] = inside[..] else { panic!("{log}") };
    for (line, epoch, end) in
        [(first, 1, "handling"), (failed, 1, "close"), (second, 2, "handling"), (acked, 2, "close")]
    {
        let error =
            if line == failed { " error.type=\"retry\" otel.status_code=\"ERROR\"" } else { "" };
        let span = format!(
            "process{{otel.name=process numbers otel.kind=\"consumer\" messaging.system=\"delayline\" \
             messaging.operation.name=\"process\" messaging.operation.type=\"process\" \
             messaging.destination.name=\"numbers\" messaging.message.id=a \
             delayline.epoch={epoch}{error}}}: "
        );
        let (before, told) = line.split_once(&span).unwrap_or_else(|| panic!("{span}\n{log}"));
        assert!(told.contains(end), "{log}");
        assert!(!before.contains("program"), "it has a parent: {log}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_send_that_is_repeated_in_another_trace_is_a_duplicate() {
    let spans = Arc::new(AtomicU64::new(0));
    let next = Arc::clone(&spans);
    let queue: Queue<u64> = Queue::new(Faulty::new());
    let queue = queue.trace_source(move || {
        TraceContext::new(7, next.fetch_add(1, Ordering::Relaxed) + 1, true).ok()
    });
    for expected in [true, false] {
        let sent = queue.message(&1).id("a").send().await.unwrap();
        assert_eq!(matches!(sent.outcome, Enqueued::Created { .. }), expected, "{sent:?}");
        assert!(sent.is_accepted());
    }
    assert_eq!(spans.load(Ordering::Relaxed), 2);
    let Found::Live(message) = queue.get("a").await.unwrap() else { panic!("it is gone") };
    let context = TraceContext::from_headers(&message.headers).unwrap();
    assert_eq!((context.trace_id(), context.span_id()), (7, 1));
}

#[tokio::test(start_paused = true)]
async fn every_death_is_reported_with_its_reason() {
    let backend = Faulty::new();
    let queue: Queue<u64> = Queue::new(backend.clone());
    let brief = Some(Schedule::In(Millis::saturating(50)));
    let message = |id: &str| NewMessage::new(id.try_into().unwrap(), "7");
    let messages = [
        message("crashed").max_crashes(1),
        message("expired-1").expires(brief),
        message("expired-2").expires(brief),
        message("failed").max_failures(1),
        message("rejected"),
    ];
    for sent in queue.send_many(messages).await {
        let _ = sent.unwrap();
    }
    // A worker that dies at once.
    let lease = Millis::saturating(20);
    let claim_id = ClaimId::from_bytes([7; 16]);
    let consumer = "gone".try_into().unwrap();
    backend.direct(Op::Claim(Claim::new(consumer, claim_id, 1, lease))).await;
    sleep(Duration::from_millis(100)).await;

    let mut events = queue.events();
    let log = logged(async || {
        let worker = Worker::builder(queue.clone()).until_empty(true).build().unwrap();
        worker
            .run(async |job: Job<u64>| match job.id().as_str() {
                Some("rejected") => Ok(Outcome::reject("never")),
                _ => Err("broken"),
            })
            .await;
    });
    let log = log.await;
    let mut deaths = Vec::new();
    while let Some(event) = events.try_next() {
        if let EventKind::Dead { reason, error } = event.kind {
            deaths.push((event.id.to_string(), reason, error));
        }
    }
    deaths.sort_by(|a, b| a.0.cmp(&b.0));
    let death =
        |id: &str, reason, error: Option<&str>| (id.to_owned(), reason, error.map(Into::into));
    assert_eq!(
        deaths,
        [
            death("crashed", DeathReason::MaxCrashes, None),
            death("expired-1", DeathReason::Expired, None),
            death("expired-2", DeathReason::Expired, None),
            death("failed", DeathReason::MaxFailures, Some("broken")),
            death("rejected", DeathReason::Rejected, Some("never")),
        ]
    );
    let warnings: Vec<_> = log.lines().filter(|line| line.contains("WARN")).collect();
    assert!(warnings.iter().all(|line| line.contains("dead letter")), "{warnings:#?}");
    for parts in [
        ["first=crashed", "count=1", "max_crashes"],
        ["first=expired-1", "count=2", "expired"],
        ["id=failed", "broken", "max_failures"],
        ["id=rejected", "never", "rejected"],
    ] {
        let tells = |line: &&&str| parts.iter().all(|part| line.contains(part));
        assert_eq!(warnings.iter().filter(tells).count(), 1, "{parts:?}: {warnings:#?}");
    }
}
