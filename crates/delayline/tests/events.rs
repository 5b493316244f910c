//! What a queue tells about its messages.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

mod support;

use std::time::Duration;

use delayline::{EventKind, Job, Queue, TraceContext, Worker};
use support::Faulty;

#[tokio::test(start_paused = true)]
async fn a_listener_follows_a_message_through_its_life() {
    let backend = Faulty::new();
    let queue: Queue<u64> = Queue::new(backend.clone());
    let mut events = queue.events();
    let _ = queue.message(&7).unwrap().id("seven").unwrap().send().await.unwrap();
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
async fn a_trace_context_travels_with_its_message() {
    let backend = Faulty::new();
    let queue: Queue<u64> = Queue::new(backend.clone());
    let context = TraceContext::new(0xabc, 0xdef, true).unwrap();
    let draft = queue.message(&1).unwrap().trace_context(&context).unwrap();
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
