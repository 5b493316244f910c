//! The helpers for tests, tested: on tokio's plain runtime, without waiting.

use std::any::Any;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use delayline::backend::NewMessage;
use delayline::codec::Raw;
use delayline::events::EventKind;
use delayline::message::{DeathReason, MessageState, Priority, Status};
use delayline::testing::{TestConnection, TestQueue};
use delayline::worker::{Outcomes, batch_handler};
use delayline::{Cancelled, Found, Job, Outcome, Queue, RetryPolicy, Worker, Workers};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

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
        let test = TestQueue::starting_at(SystemTime::UNIX_EPOCH + HOUR);
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
    let Outcome::Undecodable(error) = &drained.of("bad")[0].outcome else { panic!("{drained:?}") };
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
async fn nobody_asks_when_to_retry_what_is_not_retried() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let failures = Arc::clone(&asked);
    let test = TestQueue::new().retry_with(move |failure, _| {
        failures.lock().unwrap().push(failure);
        Duration::from_millis(10)
    });
    let draft = test.queue().message(&1_u64).max_failures(3);
    assert!(draft.send().await.unwrap().is_accepted());
    let drained = test.drain(|_: Job<u64>| async { Err::<(), _>("no") }).await;
    assert_eq!((drained.handled.len(), drained.count(Status::Dead)), (3, 1));
    assert_eq!(*asked.lock().unwrap(), [1, 2]);
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
async fn a_hold_delays_other_messages_and_keeps_what_comes_with_the_outcome() {
    let test = TestQueue::new();
    send(test.queue(), "first", Duration::ZERO, 1).await;
    let (queue, begin) = (test.queue().clone(), test.now());
    let drained = test
        .drain(move |job: Job<u64>| {
            let next = (*job.payload() == 1).then(|| queue.message(&2).id("next"));
            async move {
                match next {
                    Some(next) => Ok(Outcome::Ack.then([next])?.hold_queue(secs(30))),
                    None => Ok::<_, delayline::Error>(Outcome::Ack),
                }
            }
        })
        .await;
    assert_eq!(drained.handled.len(), 2);
    assert_eq!(drained.of("next")[0].status, Some(Status::Acked));
    assert_eq!(test.now(), begin + secs(30));
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
    let begin = "after 100 deliveries, some messages are still not handled; the latest \
                 deliveries:\n  \
                 waits, delivery 161: Snooze(60s), now Scheduled\n  waits, delivery 160: ";
    assert!(said.starts_with(begin), "{said}");

    // Without the clock as well. The messages of the first run are still there.
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
    let test: TestQueue<String, _> = TestQueue::starting_at(SystemTime::UNIX_EPOCH).codec(Raw);
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

#[tokio::test]
async fn queues_of_a_connection_share_a_clock_and_are_opened_by_name() {
    let test = TestConnection::starting_at(SystemTime::UNIX_EPOCH + HOUR);
    let (orders, mails) = (test.queue::<u64>("orders"), test.queue::<u64>("mails"));
    let opened: Queue<u64> = test.connection().queue("orders").await.unwrap();
    send(&opened, "order", secs(1), 1).await;
    send(mails.queue(), "mail", secs(2), 2).await;
    orders.assert_sent("order").assert_due(test.now() + secs(1));
    orders.assert_not_sent("mail");
    test.queue::<u64>("mails").assert_sent("mail").assert_payload(&2);
    let names = test.connection().queues().await.unwrap();
    assert_eq!(names, ["mails", "orders"].map(|name| name.parse().unwrap()));

    test.advance(secs(1));
    for now in [orders.now(), mails.now(), test.clone().now()] {
        assert_eq!(now, SystemTime::UNIX_EPOCH + HOUR + secs(1));
    }
    assert_eq!(orders.drain(ok).await.count(Status::Acked), 1);
    // A drain of one queue moves the clock of all.
    assert_eq!(mails.drain_for(secs(60), ok).await.count(Status::Acked), 1);
    assert_eq!(orders.now(), SystemTime::UNIX_EPOCH + HOUR + secs(61));
    assert_eq!(failure(|| test.queue::<u64>("")), "the queue name is empty");
}

#[tokio::test]
async fn workers_of_several_queues_handle_messages_in_the_order_of_their_due_times() {
    let test = TestConnection::new();
    let names = ["a", "b", "c"];
    let queues = names.map(|name| test.queue::<u64>(name));
    // Interleaved, with equal due times; b has an urgent message that is due later.
    for (n, (queue, delay)) in
        [(2, 5), (0, 3), (1, 3), (0, 1), (2, 2), (1, 4), (0, 4), (2, 4)].into_iter().enumerate()
    {
        send(queues[queue].queue(), &format!("{delay}{}", names[queue]), secs(delay), n as u64)
            .await;
    }
    let order = |drained: &delayline::testing::Drained| -> Vec<String> {
        drained.handled.iter().map(|handled| handled.id.to_string()).collect()
    };
    let workers = || queues.iter().fold(test.workers(), |workers, queue| workers.add(queue, ok));
    let begin = test.now();
    let drained = workers().drain_for(secs(3)).await;
    assert_eq!(order(&drained), ["1a", "2c", "3a", "3b"]);
    assert!(drained.handled.iter().all(|handled| handled.at == handled.due));
    assert_eq!(drained.handled[1].queue.as_str(), "c");
    assert_eq!(test.now(), begin + secs(3));

    // A backlog is handled in the same order.
    test.advance(HOUR);
    send(queues[0].queue(), "now", Duration::ZERO, 9).await;
    assert_eq!(order(&workers().drain_due().await), ["4a", "4b", "4c", "5c", "now"]);
    assert_eq!(workers().drain().await.handled, []);
    assert_eq!(test.now(), begin + HOUR + secs(3));

    let other = TestQueue::<u64>::new();
    let said = failure(|| test.workers().add(&other, ok));
    assert_eq!(said, "the queue belongs to another TestConnection, which has another clock");
}

#[tokio::test]
async fn a_chain_over_two_queues_takes_no_time_and_a_paused_queue_keeps_its_messages() {
    let test = TestConnection::new();
    let (ping, pong) = (test.queue::<u64>("ping"), test.queue::<u64>("pong"));
    let pass = |target: Queue<u64>| {
        move |job: Job<u64>| {
            let left = *job.payload();
            let draft = target.message(&left.saturating_sub(1)).due_in(HOUR);
            async move { if left == 0 { Ok(Outcome::Ack) } else { job.hand_over(draft).await } }
        }
    };
    let workers = test
        .workers()
        .add(&ping, pass(pong.queue().clone()))
        .add(&pong, pass(ping.queue().clone()));
    send(ping.queue(), "first", Duration::ZERO, 5).await;
    let begin = test.now();
    let drained = workers.drain().await;
    let queues: Vec<_> = drained.handled.iter().map(|handled| handled.queue.as_str()).collect();
    assert_eq!(queues, ["ping", "pong", "ping", "pong", "ping", "pong"]);
    assert_eq!((drained.count(Status::Acked), test.now()), (6, begin + HOUR * 5));

    pong.queue().pause().await.unwrap();
    send(ping.queue(), "second", Duration::ZERO, 1).await;
    assert_eq!(workers.drain().await.handled.len(), 1);
    test.advance(HOUR);
    assert_eq!(pong.queue().stats().await.unwrap().ready, 1);

    let release = async |_: Job<u64>| Ok::<_, &str>(Outcome::Release);
    pong.queue().resume().await.unwrap();
    let workers =
        test.workers().add(&ping.max_deliveries(3), ok).add(&pong.max_deliveries(2), release);
    let panic = AssertUnwindSafe(workers.drain_due()).catch_unwind().await.unwrap_err();
    let said = text(&*panic);
    assert!(said.starts_with("after 3 deliveries") && said.contains("\n  pong: "), "{said}");
}

#[tokio::test]
async fn real_workers_run_on_the_queues_of_a_test_connection() {
    let test = TestConnection::new();
    let mut workers = Workers::sharing(4).unwrap();
    for name in ["a", "b"] {
        let queue: Queue<u64> = test.connection().queue(name).await.unwrap();
        send(&queue, "later", HOUR, 1).await;
        workers = workers.add(1, Worker::builder(queue).until_empty(true), ok).unwrap();
    }
    test.advance(HOUR);
    assert_eq!(workers.run().await.acked, 2);
}

type Batches = Arc<Mutex<Vec<Vec<u64>>>>;

/// A handler of batches, and the payloads of each batch that it gets.
fn batches(
    max: usize,
) -> (Batches, impl Fn(Job<u64>) -> BoxFuture<'static, Result<Outcome, Outcome>>) {
    let seen = Batches::default();
    let batches = Arc::clone(&seen);
    let handler = batch_handler(max, HOUR, move |jobs: Vec<Job<u64>>| {
        batches.lock().unwrap().push(jobs.iter().map(|job| *job.payload()).collect());
        // Odd ones fail at first.
        let outcomes = jobs.iter().map(|job| match (job.payload() % 2, job.failures()) {
            (1, 0) => Outcome::retry("odd"),
            _ => Outcome::Ack,
        });
        let outcomes = Outcomes::Each(outcomes.collect());
        async move { Ok::<_, &str>(outcomes) }
    });
    (seen, handler)
}

#[tokio::test]
async fn a_batch_has_all_messages_that_are_due_and_waits_for_no_others() {
    let start = Instant::now();
    let test = TestQueue::new().retry(RetryPolicy::fixed(secs(5)));
    for n in 0..7 {
        send(test.queue(), &n.to_string(), Duration::ZERO, n).await;
    }
    send(test.queue(), "later", secs(1), 8).await;
    let (seen, handler) = batches(3);
    let drained = test.drain(handler).await;
    let expected: [&[u64]; 5] = [&[0, 1, 2], &[3, 4, 5], &[6], &[8], &[1, 3, 5]];
    assert_eq!(*seen.lock().unwrap(), expected);
    assert_eq!((drained.handled.len(), drained.count(Status::Acked)), (11, 8));
    let ids: Vec<_> = drained.handled.iter().map(|handled| handled.id.to_string()).collect();
    assert_eq!(ids, ["0", "1", "2", "3", "4", "5", "6", "later", "1", "3", "5"]);
    assert!(start.elapsed() < secs(60), "a linger of an hour took {:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_is_the_same_on_several_threads_and_beside_other_handlers() {
    for _ in 0..20 {
        let test = TestConnection::new();
        let (one, many) = (test.queue::<u64>("one"), test.queue::<u64>("many"));
        for n in 0..5 {
            send(one.queue(), &n.to_string(), Duration::ZERO, n).await;
            send(many.queue(), &n.to_string(), Duration::ZERO, n * 2).await;
        }
        let (seen, handler) = batches(4);
        let drained = test.workers().add(&one, ok).add(&many, handler).drain().await;
        let expected: [&[u64]; 2] = [&[0, 2, 4, 6], &[8]];
        assert_eq!(*seen.lock().unwrap(), expected);
        assert_eq!(drained.count(Status::Acked), 10);
    }
}

#[tokio::test]
async fn messages_of_several_queues_are_waited_for() {
    let test = TestConnection::new();
    let (parts, wholes) = (test.queue::<u64>("parts"), test.queue::<u64>("wholes"));
    let members = (0..3).map(|n| parts.queue().message(&n).due_in(secs(n)));
    let sent = wholes.queue().message(&9).id("whole").send_with_members(members).await;
    assert!(sent.unwrap().is_accepted());
    let whole = async |job: Job<u64>| match job.members() {
        Some(members) if members.all_acked() => Ok(()),
        members => Err(format!("{members:?}")),
    };
    let drained = test.workers().add(&parts, ok).add(&wholes, whole).drain().await;
    assert_eq!((drained.count(Status::Acked), drained.handled.len()), (4, 4));
}
