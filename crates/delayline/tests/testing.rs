//! The helpers for tests, tested: on tokio's plain runtime, without waiting.

#![cfg(feature = "testing")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

use std::any::Any;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use delayline::testing::TestQueue;
use delayline::{
    Cancelled, DeathReason, EventKind, Found, Job, MessageState, NewMessage, Outcome, Priority,
    Queue, Raw, RetryPolicy, Status, Worker,
};
use futures_util::FutureExt;

const HOUR: Duration = Duration::from_secs(3_600);

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

async fn send(queue: &Queue<u64>, id: &str, delay: Duration, value: u64) {
    let draft = queue.message(&value).id(id).due_in(delay);
    assert!(draft.max_failures(3).send().await.unwrap().is_accepted());
}

async fn ok(_: Job<u64>) -> Result<(), &'static str> {
    Ok(())
}

fn text(panic: &(dyn Any + Send)) -> &str {
    panic.downcast_ref::<String>().unwrap()
}

/// What an assertion says that does not hold.
fn failure<R>(assertion: impl FnOnce() -> R) -> String {
    let panic = catch_unwind(AssertUnwindSafe(assertion)).err().expect("it does not hold");
    text(&*panic).to_owned()
}

#[tokio::test]
async fn what_was_sent_is_found_by_id_and_by_payload() {
    let test = TestQueue::new();
    let queue = test.queue();
    test.assert_nothing_sent();
    let due = test.now() + secs(90);
    let draft = queue.message(&8).id("shop-9").priority(Priority::High);
    let draft = draft.header("shop", "9").due_at(due);
    for _ in 0..2 {
        assert!(draft.clone().send().await.unwrap().is_accepted());
    }
    let other = queue.send_in(&7, Duration::from_micros(1_500)).await.unwrap();

    test.assert_sent("shop-9")
        .assert_payload(&8)
        .assert_delay(secs(90))
        .assert_due(due)
        .assert_header("shop", "9")
        .assert_priority(Priority::High);
    test.assert_sent_payload(&7).assert_delay(Duration::from_micros(1_500));
    test.assert_not_sent("shop-8");
    assert_eq!(test.assert_sent_payload(&7).id(), &other);
    assert_eq!(test.sent().len(), 2, "a duplicate is not a message");

    // It was sent, whatever becomes of it.
    assert_eq!(queue.cancel("shop-9").await.unwrap(), Cancelled::Cancelled);
    test.drain(ok).await;
    let sent: Vec<_> = test.sent().iter().map(|message| message.payload()).collect();
    assert_eq!(sent, [8, 7]);
    assert_eq!(test.assert_sent("shop-9").sent_at() + secs(90), due);
}

#[tokio::test]
async fn an_assertion_that_fails_says_what_there_is() {
    let test = TestQueue::new();
    assert_eq!(failure(|| test.assert_sent("a")), "no message a was sent; nothing was sent");
    send(test.queue(), "order-1", secs(30), 1).await;
    let draft = test.queue().message(&2).id("order-2").header("shop", "9");
    let _ = draft.priority(Priority::Urgent).send().await.unwrap();
    assert!(test.queue().send_many([message("bad", "x")]).await.remove(0).is_ok());

    assert_eq!(
        failure(|| test.assert_sent("order-3")),
        "no message order-3 was sent; these were sent:\n  \
         order-1, due after 30s, priority Normal, 1 bytes\n  \
         order-2, due after 0ns, priority Urgent, 1 bytes\n  \
         bad, due after 0ns, priority Normal, 1 bytes"
    );
    let unknown = failure(|| test.assert_sent_payload(&3));
    let begin = "no message with the payload 3 was sent; these were sent:\n  order-1: 1\n  \
                 order-2: 2\n  bad: not readable: ";
    assert!(unknown.starts_with(begin), "{unknown}");
    assert_eq!(
        failure(|| test.assert_not_sent("order-1")),
        "this message was sent: order-1, due after 30s, priority Normal, 1 bytes"
    );
    assert!(failure(|| test.assert_nothing_sent()).starts_with("these were sent:\n  order-1"));
    assert_eq!(failure(|| test.assert_sent("")), "the message id is empty");

    let (one, two) = (test.assert_sent("order-1"), test.assert_sent("order-2"));
    for (said, expected) in [
        (failure(|| one.assert_delay(secs(29))), "order-1 is due 30s after it was sent, not 29s"),
        (
            failure(|| one.assert_due(test.now() + secs(31))),
            "order-1 is due 1s before the wanted instant, 30s after it was sent",
        ),
        (
            failure(|| one.assert_due(test.now())),
            "order-1 is due 30s after the wanted instant, 30s after it was sent",
        ),
        (failure(|| one.assert_payload(&2)), "order-1 has the payload 1, not 2"),
        (failure(|| one.assert_header("shop", "9")), "order-1 has no header \"shop\"; it has []"),
        (
            failure(|| two.assert_header("shop", [0xff])),
            "order-2 has the header \"shop\" with the value \"9\", not \"\\xff\"",
        ),
        (
            failure(|| two.assert_priority(Priority::Low)),
            "order-2 has the priority Urgent, not Low",
        ),
    ] {
        assert_eq!(said, format!("the message {expected}"));
    }
    let bad = failure(|| test.assert_sent("bad").payload());
    assert!(bad.starts_with("the payload of bad is not readable: "), "{bad}");
}

fn message(id: &str, payload: &'static str) -> NewMessage {
    NewMessage::new(id.try_into().unwrap(), payload)
}

#[tokio::test]
async fn draining_moves_the_clock_from_one_message_to_the_next_and_waits_for_nothing() {
    let (test, start) = (TestQueue::new(), Instant::now());
    let begin = test.now();
    for (id, hours) in [("c", 3), ("a", 1), ("far", 24 * 365 * 50), ("b", 2)] {
        send(test.queue(), id, HOUR * hours, u64::from(hours)).await;
    }
    assert_eq!(test.drain_due(ok).await.handled, []);
    test.advance(HOUR);
    let drained = test.drain_due(ok).await;
    assert_eq!(drained.of("a").len(), 1);
    assert_eq!(test.now(), begin + HOUR);

    // To the end of the time, but not beyond it.
    let drained = test.drain_for(HOUR * 2 - Duration::from_millis(1), ok).await;
    assert_eq!((drained.handled.len(), drained.of("b").len()), (1, 1));
    assert_eq!(test.now(), begin + HOUR * 3 - Duration::from_millis(1));

    let drained = test.drain(ok).await;
    assert_eq!(drained.count(Status::Acked), 2);
    for handled in &drained.handled {
        assert_eq!(handled.at, handled.due);
    }
    assert_eq!(test.now(), begin + HOUR * 24 * 365 * 50);
    assert!(start.elapsed() < secs(60), "half a century has passed in {:?}", start.elapsed());
}

#[tokio::test]
async fn failures_are_retried_and_become_dead_letters_the_same_way_every_time() {
    let go = async || {
        let test = TestQueue::starting_at(SystemTime::UNIX_EPOCH + HOUR, delayline::Json);
        for n in 0..4 {
            send(test.queue(), &n.to_string(), Duration::ZERO, n).await;
        }
        let bad = test.queue().send_many([message("bad", "no number")]).await;
        assert!(bad[0].is_ok());
        let drained = test
            .drain(|job: Job<u64>| async move {
                assert_ne!(*job.payload(), 3, "three is no good");
                match (*job.payload(), job.failures()) {
                    (0, _) | (1, 2) => Ok(Outcome::Ack),
                    (1 | 2, _) => Err(format!("failure {}", job.attempt())),
                    _ => Ok(Outcome::reject("never")),
                }
            })
            .await;
        (test, drained)
    };
    let (test, drained) = go().await;
    assert_eq!(go().await.1, drained, "jitter is not left to chance");
    let at = |handled: &delayline::testing::Handled| handled.at.as_ms() - 3_600_000;

    let one = drained.of("1");
    assert_eq!(one.iter().map(|it| at(it)).collect::<Vec<_>>(), [0, 1_000, 3_000]);
    assert_eq!(one[1].outcome, Outcome::retry("failure 2"));
    assert_eq!(one[1].to_string(), format!("1, delivery 2: {:?}, now Scheduled", one[1].outcome));
    assert_eq!((one[2].status, one[2].epoch), (Some(Status::Acked), 3));

    assert_eq!(drained.of("2").last().unwrap().status, Some(Status::Dead));
    let Outcome::Retry { error, .. } = &drained.of("3")[0].outcome else { panic!("{drained:?}") };
    assert!(error.starts_with("panicked: ") && error.contains("three is no good"), "{error}");
    let Outcome::Retry { error, .. } = &drained.of("bad")[0].outcome else { panic!("{drained:?}") };
    assert!(error.starts_with("the payload could not be decoded"), "{error}");
    assert_eq!((drained.count(Status::Acked), drained.count(Status::Dead)), (2, 3));

    let Found::Live(letter) = test.queue().get("2").await.unwrap() else { panic!("it is dead") };
    let MessageState::Dead { reason, .. } = letter.info.state else { panic!("{letter:?}") };
    assert_eq!(reason, DeathReason::MaxFailures);
    assert_eq!(letter.info.last_error.as_deref(), Some("failure 3"));

    // Revived, it is handled like any other.
    test.queue().redrive(letter.info.id).await.unwrap();
    assert_eq!(test.drain(ok).await.count(Status::Acked), 1);
}

#[tokio::test]
async fn the_retry_policy_can_be_chosen() {
    let policy = RetryPolicy::fixed(Duration::from_millis(250));
    for test in [
        TestQueue::new().retry(policy),
        TestQueue::new().retry_with(|_, _| Duration::from_millis(250)),
    ] {
        send(test.queue(), "a", Duration::ZERO, 1).await;
        let begin = test.now();
        let drained = test.drain(async |_: Job<u64>| Err::<(), _>("no")).await;
        assert_eq!((drained.handled.len(), drained.count(Status::Dead)), (3, 1));
        assert_eq!(test.now(), begin + Duration::from_millis(500));
    }
}

#[tokio::test]
async fn a_handler_may_send_cancel_and_move_the_clock() {
    let test = TestQueue::new();
    send(test.queue(), "first", secs(10), 3).await;
    send(test.queue(), "doomed", secs(15), 0).await;
    let (queue, clock) = (test.queue().clone(), test.clone());
    let handler = move |job: Job<u64>| {
        let (queue, clock) = (queue.clone(), clock.clone());
        async move {
            match *job.payload() {
                // It follows itself up until there is nothing left.
                0 => return Ok(()),
                n => queue.send_in(&(n - 1), secs(10)).await.map(drop)?,
            }
            queue.cancel("doomed").await?;
            clock.advance(secs(1));
            Ok::<_, delayline::Error>(())
        }
    };
    let drained = test.drain(handler).await;
    assert_eq!((drained.handled.len(), drained.count(Status::Acked)), (4, 4));
    assert_eq!(drained.of("doomed").len(), 0);
    let sent: Vec<_> = test.sent().iter().map(|message| message.payload()).collect();
    assert_eq!(sent, [3, 0, 2, 1, 0]);
    assert_eq!(test.now(), test.assert_sent("first").sent_at() + secs(40));
}

#[tokio::test]
async fn what_is_put_off_for_ever_ends_a_drain_with_a_text_that_tells_it() {
    let snooze = async |_: Job<u64>| Ok::<_, &str>(Outcome::Snooze(secs(60)));
    let test = TestQueue::new().max_deliveries(100);
    send(test.queue(), "waits", Duration::ZERO, 1).await;
    // For a time it may be looked at.
    let drained = test.drain_for(HOUR, snooze).await;
    assert_eq!((drained.handled.len(), drained.count(Status::Scheduled)), (61, 61));

    let panic = AssertUnwindSafe(test.drain(snooze)).catch_unwind().await.unwrap_err();
    let said = text(&*panic);
    let begin = "after 100 deliveries there is still more to handle; the latest:\n  \
                 waits, delivery 161: Snooze(60s), now Scheduled\n  waits, delivery 160: ";
    assert!(said.starts_with(begin), "{said}");

    // Without the clock as well. What the first left is there.
    let release = async |_: Job<u64>| Ok::<_, &str>(Outcome::Release);
    test.advance(HOUR);
    let panic = AssertUnwindSafe(test.drain_due(release)).catch_unwind().await.unwrap_err();
    assert!(text(&*panic).contains("Release, now Ready"), "{}", text(&*panic));
}

#[tokio::test]
async fn what_expires_is_not_handled_and_a_paused_queue_ends_a_drain() {
    let test = TestQueue::new();
    let draft = test.queue().message(&1).id("late").due_in(HOUR);
    let _ = draft.expires_in(HOUR / 2).send().await.unwrap();
    send(test.queue(), "b", HOUR, 2).await;
    test.queue().pause().await.unwrap();
    assert_eq!(test.drain(ok).await.handled, []);
    test.queue().resume().await.unwrap();
    let drained = test.drain(ok).await;
    assert_eq!((drained.handled.len(), drained.of("b").len()), (1, 1));
    assert_eq!(test.queue().stats().await.unwrap().totals.died_expired, 1);
}

#[tokio::test]
async fn bytes_events_and_a_real_worker_work_on_it_too() {
    let test: TestQueue<String, _> = TestQueue::starting_at(SystemTime::UNIX_EPOCH, Raw);
    let mut events = test.queue().events();
    for delay in [0, 1, 2] {
        test.queue().send_in(&"bytes".to_owned(), secs(delay)).await.unwrap();
    }
    test.advance(secs(2));
    let worker = Worker::builder(test.queue().clone()).until_empty(true).build().unwrap();
    let summary = worker.run(async |_| Ok::<(), &str>(())).await;
    assert_eq!((summary.acked, test.sent().len()), (3, 3));
    let mut lateness = BTreeSet::new();
    while let Some(event) = events.try_next() {
        if let EventKind::Delivered { lateness: late, .. } = event.kind {
            lateness.insert(late);
        }
    }
    assert_eq!(lateness.into_iter().collect::<Vec<_>>(), [0, 1, 2].map(secs));
    assert!(!format!("{:?} {:?}", test, test.sent()).contains("bytes\""));
}

#[tokio::test]
async fn a_drain_that_is_dropped_drops_its_handler() {
    let test = TestQueue::new();
    send(test.queue(), "a", Duration::ZERO, 1).await;
    let held = Arc::new(());
    let hold = Arc::clone(&held);
    let hangs = move |_: Job<u64>| {
        let hold = Arc::clone(&hold);
        async move {
            let _hold = hold;
            std::future::pending::<Result<(), &str>>().await
        }
    };
    let mut drain = Box::pin(test.drain(hangs));
    while Arc::strong_count(&held) < 3 {
        assert!(drain.as_mut().now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    drop(drain);
    while Arc::strong_count(&held) > 1 {
        tokio::task::yield_now().await;
    }
}
