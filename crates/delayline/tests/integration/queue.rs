//! A typed queue on a backend that fails on demand.

use std::time::{Duration, SystemTime};

use crate::support::{Fault, Faulty};
use delayline::admin::{Listed, Purged, Redriven};
use delayline::backend::NewMessage;
use delayline::backend::{Op, Relay};
use delayline::codec::Raw;
use delayline::message::{DeathReason, MessageState, Priority, Status};
use delayline::relay::{Destination, DestinationKey};
use delayline::{
    Cancelled, Enqueued, Error, ErrorClass, ErrorKind, Found, Job, MessageId, Queue, Rescheduled,
    Worker, limits,
};
use futures_util::StreamExt as _;
use tokio::runtime::Builder;
use tokio::time::Instant;

fn id(text: &str) -> MessageId {
    MessageId::try_from(text).unwrap()
}

fn kind(error: &Error) -> &ErrorKind {
    error.kind()
}

async fn is_created(queue: &Queue<u64>, name: &str) -> bool {
    let sent = queue.message(&1).id(name).send().await.unwrap();
    matches!(sent.outcome, Enqueued::Created { .. })
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_is_asked_for_again_and_makes_no_second_message() {
    let backend = Faulty::with_faults("enqueue", &[Fault::LostReply, Fault::LostRequest]);
    let queue: Queue<u64> = Queue::new(backend.clone());
    let sent = queue.message(&1).id("a").send().await.unwrap();
    assert_eq!(sent.outcome, Enqueued::Duplicate { status: Status::Ready });
    assert!(sent.repeated && sent.is_accepted());
    assert_eq!(backend.sent("enqueue").len(), 3);
    assert_eq!(backend.stats().await.totals.enqueued, 1);

    let again = queue.message(&1).id("a").send().await.unwrap();
    assert!(!again.repeated && again.is_accepted());
    let other = queue.message(&2).id("a").send().await.unwrap();
    assert_eq!(other.outcome, Enqueued::Conflict { status: Status::Ready });
    assert!(!other.is_accepted());
}

#[tokio::test(start_paused = true)]
async fn what_stays_unknown_is_a_typed_error_after_a_bounded_number_of_tries() {
    let backend = Faulty::with_plan(|_| Fault::LostRequest);
    let queue: Queue<u64> = Queue::new(backend.clone());
    let error = queue.send(&1).await.unwrap_err();
    assert_eq!((kind(&error), error.class()), (&ErrorKind::Timeout, ErrorClass::Ambiguous));
    assert_eq!(backend.sent("enqueue").len(), 5);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_executed_is_tried_for_a_bounded_time() {
    let backend = Faulty::with_plan(|_| Fault::Busy);
    let queue: Queue<u64> = Queue::new(backend.clone());
    let error = queue.send(&1).await.unwrap_err();
    assert_eq!((kind(&error), error.class()), (&ErrorKind::Busy, ErrorClass::NotExecuted));
    assert!(backend.elapsed() > Duration::from_secs(8), "{:?}", backend.elapsed());
    assert!(backend.elapsed() <= Duration::from_secs(10), "{:?}", backend.elapsed());
    assert!(backend.sent("enqueue").len() < 40);

    let impatient = queue.patience(Duration::ZERO);
    impatient.stats().await.unwrap_err();
    assert_eq!(backend.sent("stats").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_fault_that_goes_away_is_not_seen() {
    let backend = Faulty::with_faults("enqueue", &[Fault::Busy; 8]);
    let queue: Queue<u64> = Queue::new(backend.clone());
    let sent = queue.message(&1).send().await.unwrap();
    assert!(matches!(sent.outcome, Enqueued::Created { .. }) && !sent.repeated);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_does_not_hide_that_an_earlier_try_may_have_been_executed() {
    let backend = Faulty::with_faults("enqueue", &[Fault::LostReply, Fault::Denied]);
    let queue: Queue<u64> = Queue::new(backend.clone());
    let error = queue.send(&1).await.unwrap_err();
    assert_eq!((kind(&error), error.class()), (&ErrorKind::ConnectionLost, ErrorClass::Ambiguous));

    backend.set_plan(|_| Fault::Denied);
    let error = queue.send(&1).await.unwrap_err();
    assert_eq!((kind(&error), error.class()), (&ErrorKind::PermissionDenied, ErrorClass::Rejected));
}

/// A worker may have handled the message meanwhile, and its id may be forgotten after an hour.
#[tokio::test(start_paused = true)]
async fn what_may_have_been_executed_is_not_repeated_when_it_may_be_forgotten() {
    let hour = Duration::from_secs(3_600);
    for (fault, is_sent) in [(Fault::LostReply, false), (Fault::Busy, true)] {
        let start = Instant::now();
        // The network is cut for three hours.
        let backend = Faulty::with_plan(move |_| match start.elapsed() {
            Duration::ZERO => fault,
            cut if cut < 3 * hour => Fault::Busy,
            _ => Fault::None,
        });
        let queue: Queue<u64> = Queue::new(backend).patience(24 * hour);
        let several = queue.send_many([queue.message(&2)]);
        let (sent, mut several, applied) =
            tokio::join!(queue.send(&1), several, queue.apply(&Op::Pause));
        let several = several.remove(0);
        for outcome in [sent.map(drop), several.map(drop), applied.map(drop)] {
            let class = outcome.err().map(|error| error.class());
            assert_eq!(class, (!is_sent).then_some(ErrorClass::Ambiguous), "{fault:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_split_and_answered_message_by_message() {
    let backend = Faulty::new();
    let queue: Queue<u64> = Queue::new(backend.clone());
    let mut messages: Vec<NewMessage> =
        (0..2_500).map(|n| queue.message(&n).try_into().unwrap()).collect();
    messages[3] = NewMessage::new(id("big"), vec![0; limits::MAX_PAYLOAD_BYTES + 1]);
    messages[1_500].id = messages[7].id.clone();
    messages[1_501] = messages[7].clone();
    let sent = queue.send_many(messages).await;
    assert_eq!(sent.len(), 2_500);
    for (place, result) in sent.iter().enumerate() {
        match place {
            3 => assert!(result.as_ref().unwrap_err().to_string().contains("1048577 bytes long")),
            1_500 => assert!(!result.as_ref().unwrap().is_accepted()),
            1_501 => assert!(result.as_ref().unwrap().is_accepted()),
            _ => {
                assert!(matches!(result.as_ref().unwrap().outcome, Enqueued::Created { .. }));
            }
        }
    }
    assert_eq!(backend.stats().await.totals.enqueued, 2_497);
}

#[tokio::test(start_paused = true)]
async fn the_rest_of_a_failed_batch_is_not_sent_and_says_so() {
    let mut operations = 0;
    let backend = Faulty::with_plan(move |_| {
        operations += 1;
        if operations == 1 { Fault::None } else { Fault::LostRequest }
    });
    let queue: Queue<u64> = Queue::new(backend.clone());
    let drafts: Vec<_> = (0..4_000).map(|n| queue.message(&n)).collect();
    let sent = queue.send_many(drafts).await;
    assert!(sent[..1_000].iter().all(Result::is_ok));
    let class = |place: usize| sent[place].as_ref().unwrap_err().class();
    // The third operation was in flight when the second one failed.
    assert_eq!([1_000, 2_000].map(class), [ErrorClass::Ambiguous; 2]);
    assert_eq!(class(3_999), ErrorClass::NotExecuted);
    assert_eq!(backend.sent("enqueue").len(), 1 + 5 + 1);
}

#[tokio::test(start_paused = true)]
async fn two_operations_of_a_batch_are_in_flight_unless_order_matters() {
    for (what, starts_ms) in
        [("", [0, 100, 100]), ("a group", [0, 100, 200]), ("an id twice", [0, 100, 200])]
    {
        let backend = Faulty::with_faults("enqueue", &[Fault::SlowReply; 3]);
        let queue: Queue<u64> = Queue::new(backend.clone());
        let mut drafts: Vec<_> = (0..2_001).map(|n| queue.message(&n).id(format!("{n}"))).collect();
        match what {
            "a group" => drafts[7] = queue.message(&7).group("tenant-7"),
            "an id twice" => drafts[1_500] = queue.message(&7).id("7"),
            _ => {}
        }
        assert!(queue.send_many(drafts).await.iter().all(Result::is_ok));
        let starts: Vec<_> =
            backend.sent("enqueue").iter().map(|(start, _)| start.as_millis()).collect();
        assert_eq!(starts, starts_ms, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_operation_of_a_batch_is_not_repeated_before_an_earlier_one() {
    let faults = [Fault::None, Fault::Busy, Fault::Busy, Fault::LostRequest, Fault::LostReply];
    let backend = Faulty::with_faults("enqueue", &faults);
    let queue: Queue<u64> = Queue::new(backend.clone());
    let sent = queue.send_many((0..2_500).map(|n| queue.message(&n))).await;
    assert!(sent.iter().all(Result::is_ok));
    let sizes: Vec<_> = backend.sent("enqueue").iter().map(|(_, op)| size(op)).collect();
    assert_eq!(sizes, [1_000, 1_000, 500, 1_000, 1_000, 1_000, 500]);
}

#[tokio::test(start_paused = true)]
async fn an_operation_of_a_batch_is_not_repeated_after_the_time_limit() {
    // The second one is answered late, the third one fails and waits for it.
    let mut operations = 0;
    let backend = Faulty::with_plan(move |_| {
        operations += 1;
        [Fault::None, Fault::SlowReply, Fault::LostReply][operations.min(3) - 1]
    });
    let queue: Queue<u64> = Queue::new(backend.clone()).patience(Duration::from_millis(90));
    let sent = queue.send_many((0..2_500).map(|n| queue.message(&n))).await;
    assert!(sent[..2_000].iter().all(Result::is_ok));
    assert_eq!(sent[2_000].as_ref().unwrap_err().class(), ErrorClass::Ambiguous);
    assert_eq!(backend.sent("enqueue").len(), 3);
}

#[test]
fn a_send_does_not_wait_for_a_runtime_that_has_sent_before() {
    let [first, second] =
        [0, 1].map(|_| Builder::new_current_thread().enable_all().build().unwrap());
    let queue: Queue<u64> = first.block_on(async {
        delayline::connect("memory:").await.unwrap().queue("numbers").await.unwrap()
    });
    for runtime in [&first, &second, &first, &second] {
        let sending = async { tokio::time::timeout(Duration::from_secs(60), queue.send(&1)).await };
        runtime.block_on(sending).expect("it waits for the other runtime").unwrap();
    }
}

#[test]
fn a_send_outlasts_a_runtime_that_is_not_run_any_more() {
    let first = Builder::new_current_thread().build().unwrap();
    let queue: Queue<u64> = Queue::new(Faulty::new()).patience(Duration::from_secs(1));
    // Its task has been spawned, and never runs.
    first.block_on(async { futures_util::poll!(std::pin::pin!(queue.send(&1))).is_pending() });
    let second = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    second.block_on(async {
        let error = queue.send(&2).await.unwrap_err();
        assert_eq!(error.class(), ErrorClass::NotExecuted, "{error}");
        queue.send(&3).await.unwrap();
    });
    drop(first);
    second.block_on(queue.send(&4)).unwrap();
}

fn size(op: &Op) -> usize {
    let Op::Enqueue(messages) = op else { panic!("{op:?}") };
    messages.len()
}

#[tokio::test(start_paused = true)]
async fn messages_are_looked_up_moved_and_taken_out_by_id() {
    let backend = Faulty::new();
    let queue: Queue<u64> = Queue::new(backend.clone());
    let draft = queue.message(&7).id("a").priority(Priority::High);
    let draft = draft.header("shop", "9").due_in(Duration::from_secs(60));
    let _ = draft.send().await.unwrap();

    let Found::Live(message) = queue.get("a").await.unwrap() else { panic!() };
    assert_eq!(message.info.state, MessageState::Scheduled);
    assert_eq!(message.headers.get("shop").unwrap(), "9");
    assert_eq!(message.payload, 7);

    let moved = queue.reschedule_in(id("a"), Duration::from_secs(5)).await.unwrap();
    let Rescheduled::Done { due } = moved else { panic!() };
    assert_eq!(due.since(backend.now()), Duration::from_secs(5));
    let past = SystemTime::UNIX_EPOCH;
    assert!(matches!(queue.reschedule_at("a", past).await, Ok(Rescheduled::Done { .. })));
    assert_eq!(queue.stats().await.unwrap().ready, 1);

    assert_eq!(queue.cancel("a").await.unwrap(), Cancelled::Cancelled);
    assert_eq!(queue.cancel("a").await.unwrap(), Cancelled::Cancelled);
    assert_eq!(queue.cancel("b").await.unwrap(), Cancelled::NotFound);
    assert_eq!(queue.get("a").await.unwrap(), Found::Finished(Status::Cancelled));
    assert!(queue.cancel("").await.is_err(), "an empty id is refused");
}

#[tokio::test(start_paused = true)]
async fn many_ids_are_looked_up_together_and_answered_in_order() {
    let backend = Faulty::with_faults("get", &[Fault::None, Fault::LostReply]);
    let queue: Queue<u64> = Queue::new(backend.clone());
    let drafts = (0..20).map(|n| queue.message(&n).id(n.to_string()));
    assert!(queue.send_many(drafts).await.iter().all(Result::is_ok));
    queue.cancel("3").await.unwrap();
    // An id that stands twice begins another operation.
    let ids = (0..40).map(|n| (n % 21).to_string());
    let found = queue.get_many(ids).await.unwrap();
    assert_eq!(found.len(), 40);
    for (place, found) in found.iter().enumerate() {
        match (place % 21, found) {
            (3, Found::Finished(Status::Cancelled)) | (20, Found::Unknown) => {}
            (n, Found::Live(message)) => {
                assert_eq!(message.info.id.as_str(), Some(n.to_string().as_str()));
            }
            (n, other) => panic!("{n}: {other:?}"),
        }
    }
    // 16, then 5 and 11, then 8, and one of them again.
    assert_eq!(backend.sent("get").len(), 4);
    assert_eq!(queue.get_many(Vec::<MessageId>::new()).await.unwrap(), []);
    assert!(queue.get_many(["1", ""]).await.is_err());
    assert_eq!(backend.sent("get").len(), 4, "nothing is asked for a bad id");
}

#[tokio::test(start_paused = true)]
async fn dead_letters_are_listed_revived_and_deleted() {
    let backend = Faulty::new();
    let queue: Queue<u64> = Queue::new(backend.clone());
    let drafts: Vec<_> = (0..150)
        .map(|n| {
            let draft = queue.message(&n).id(format!("{n:03}").as_str());
            draft.expires_in(Duration::ZERO)
        })
        .collect();
    queue.send_many(drafts).await.into_iter().for_each(|sent| drop(sent.unwrap()));
    let worker = Worker::builder(queue.clone()).until_empty(true).build().unwrap();
    worker.run(|_| async { Ok::<(), &str>(()) }).await;

    let mut ids = Vec::new();
    let mut dead = queue.list(Listed::Dead);
    while let Some(page) = dead.next_page().await.unwrap() {
        for letter in page {
            let MessageState::Dead { reason, .. } = letter.state else { panic!() };
            assert_eq!(reason, DeathReason::Expired);
            ids.push(letter.id);
        }
    }
    assert_eq!(ids.len(), 150);

    // The reply to the redrive is lost: what this call revived is `NotDead` then.
    let mut lost = false;
    backend.set_plan(move |op| {
        let lose = matches!(op, Op::Redrive(_)) && !std::mem::replace(&mut lost, true);
        if lose { Fault::LostReply } else { Fault::None }
    });
    assert_eq!(queue.redrive(ids[0].clone()).await.unwrap(), Redriven::NotDead);
    assert_eq!(queue.redrive_many(["x"]).await.unwrap(), [Redriven::NotFound]);

    let purged = queue.purge_many(ids[1..].iter().chain(&ids[1..]).cloned()).await.unwrap();
    assert_eq!(purged, [Purged::Purged; 298]);
    let stats = queue.stats().await.unwrap();
    assert_eq!((stats.dead, stats.ready, stats.totals.purged), (0, 1, 149));
    let audit = queue.check().await.unwrap();
    assert_eq!((audit.examined, audit.findings.len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_listing_goes_on_where_another_ended() {
    let queue: Queue<u64> = Queue::new(Faulty::new());
    for n in 0..5 {
        assert!(is_created(&queue, &n.to_string()).await);
    }
    let mut first = queue.list(Listed::Ready).page_size(2);
    assert_eq!(first.position(), None);
    let mut seen: Vec<_> = first.next_page().await.unwrap().unwrap();
    let position = first.position().unwrap();
    // The message that stood there is gone; its place is not.
    assert_eq!(queue.cancel("1").await.unwrap(), Cancelled::Cancelled);

    let mut second = queue.list(Listed::Ready).page_size(3).after(position);
    seen.extend(second.next_page().await.unwrap().unwrap());
    let ids: Vec<_> = seen.iter().map(|info| info.id.to_string()).collect();
    assert_eq!(ids, ["0", "1", "2", "3", "4"]);
    // The page was full, so there might be more.
    assert!(second.position().is_some());
    assert_eq!(second.next_page().await.unwrap(), None);
    assert_eq!((second.position(), second.next_page().await.unwrap()), (None, None));
    for size in [0, limits::MAX_PAGE + 1] {
        let error = queue.list(Listed::Ready).page_size(size).next_page().await.unwrap_err();
        assert!(error.to_string().contains(&size.to_string()), "{error}");
    }
}

#[tokio::test]
async fn many_are_cancelled_in_few_operations_and_dead_letters_revived_for_later() {
    let backend = Faulty::new();
    let queue: Queue<u64> = Queue::new(backend.clone());
    assert!(is_created(&queue, "7").await);
    let ids = (0..1_500).map(|n: u32| id(&n.to_string()));
    let cancelled = queue.cancel_many(ids).await.unwrap();
    assert_eq!(cancelled.len(), 1_500);
    for (n, outcome) in cancelled.into_iter().enumerate() {
        let expected = if n == 7 { Cancelled::Cancelled } else { Cancelled::NotFound };
        assert_eq!(outcome, expected, "{n}");
    }
    assert_eq!(backend.sent("cancel").len(), 2);

    let draft = queue.message(&1).id("late");
    assert!(draft.expires_in(Duration::ZERO).send().await.unwrap().is_accepted());
    let worker = Worker::builder(queue.clone()).until_empty(true).build().unwrap();
    worker.run(|_| async { Ok::<(), &str>(()) }).await;
    let revived = queue.redrive_in("late", Duration::from_secs(60)).await.unwrap();
    assert!(matches!(revived, Redriven::Done { .. }));
    assert_eq!(queue.stats().await.unwrap().scheduled, 1);
    assert!(queue.redrive_in("late", Duration::MAX).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn dead_letters_are_redriven_to_an_instant_or_all_after_a_delay() {
    let backend = Faulty::new();
    let queue: Queue<u64> = Queue::new(backend.clone());
    let expire = async || {
        for name in ["a", "b", "c"] {
            let draft = queue.message(&1).id(name).expires_in(Duration::ZERO);
            assert!(draft.send().await.unwrap().is_accepted());
        }
        let worker = Worker::builder(queue.clone()).until_empty(true).build().unwrap();
        worker.run(|_| async { Ok::<(), &str>(()) }).await;
        assert_eq!(queue.stats().await.unwrap().dead, 3);
    };
    expire().await;
    let now = SystemTime::from(backend.now());
    let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3_600));
    let at = queue.redrive_at("a", now + minute).await.unwrap();
    assert!(matches!(at, Redriven::Done { .. }), "{at:?}");
    let many = queue.redrive_many_at(["b", "x"], now + minute).await.unwrap();
    assert!(matches!(many[..], [Redriven::Done { .. }, Redriven::NotFound]), "{many:?}");
    assert_eq!(queue.redrive_all_in(hour).await.unwrap(), 1);
    assert_eq!(queue.forecast([minute, hour]).await.unwrap().due, [2, 1]);
    assert!(queue.redrive_all_in(Duration::MAX).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn many_messages_are_rescheduled_together_and_answered_in_order() {
    let backend = Faulty::new();
    let queue: Queue<u64> = Queue::new(backend.clone());
    assert!(is_created(&queue, "7").await);
    let ids = || (0..1_500).map(|n: u32| id(&n.to_string()));
    let hour = Duration::from_secs(3_600);
    for moved in [
        queue.reschedule_many_in(ids(), hour).await.unwrap(),
        queue.reschedule_many_at(ids(), SystemTime::from(backend.now()) + hour).await.unwrap(),
    ] {
        assert_eq!(moved.len(), 1_500);
        for (n, outcome) in moved.into_iter().enumerate() {
            assert_eq!(matches!(outcome, Rescheduled::Done { .. }), n == 7, "{n}: {outcome:?}");
        }
    }
    assert_eq!(backend.sent("reschedule").len(), 4);
    assert_eq!(queue.stats().await.unwrap().scheduled, 1);
    let bad = ["7", ""];
    assert!(queue.reschedule_many_in(bad, Duration::ZERO).await.is_err());
    assert_eq!(backend.sent("reschedule").len(), 4, "nothing is sent");
}

#[tokio::test]
async fn delays_beyond_the_limits_are_refused_not_wrapped() {
    let queue: Queue<u64> = Queue::new(Faulty::new());
    for secs in [1 << 53, u64::MAX] {
        let error = queue.send_in(&1, Duration::from_secs(secs)).await.unwrap_err();
        assert!(matches!(kind(&error), ErrorKind::Invalid(_)), "{error}");
    }
    for error in [
        queue.reschedule_many_in(["a"], Duration::MAX).await.unwrap_err(),
        queue.redrive_many_in(["a"], Duration::MAX).await.unwrap_err(),
        queue.redrive_all_in(Duration::MAX).await.unwrap_err(),
    ] {
        let expected = "delay: the duration in ms is 18446744073709551615; it must be from 0 to 3";
        assert!(error.to_string().starts_with(expected), "{error}");
    }
    let far = SystemTime::UNIX_EPOCH + Duration::from_secs(400_000_000_000);
    for error in [
        queue.reschedule_many_at(["a"], far).await.unwrap_err(),
        queue.redrive_many_at(["a"], far).await.unwrap_err(),
    ] {
        let expected = "due: the instant in ms since 1970 is 400000000000000;";
        assert!(error.to_string().starts_with(expected), "{error}");
    }
    assert_eq!(queue.stats().await.unwrap().totals.enqueued, 0);
    let big: Queue<Vec<u8>, Raw> = Queue::new(Faulty::new()).codec(Raw);
    let payload = vec![0; limits::MAX_PAYLOAD_BYTES + 1];
    assert!(big.message(&payload).send().await.is_err());
}

#[tokio::test]
async fn the_first_value_beyond_a_limit_is_what_a_send_fails_with() {
    let backend = Faulty::new();
    let queue: Queue<u64> = Queue::new(backend.clone());
    let beyond = Duration::from_secs(200 * 366 * 86_400);
    let far = SystemTime::UNIX_EPOCH + Duration::from_secs(400_000_000_000);
    let drafts = [
        (queue.message(&1).id("").due_in(beyond), "the message id is empty"),
        (queue.message(&1).id("a").id("x".repeat(129)), "the message id"),
        (queue.message(&1).due_in(beyond).id("").id("fine"), "due_in: the duration in ms"),
        (queue.message(&1).due_at(far), "due_at: the instant"),
        (queue.message(&1).expires_in(beyond), "expires_in: the duration in ms"),
        (queue.message(&1).expires_at(far), "expires_at: the instant"),
        (queue.message(&1).header("", "x"), "the header name is empty"),
        (queue.message(&1).throttle(beyond), "throttle in ms"),
        (queue.message(&1).keep_result(beyond), "keep_result: the duration in ms is 6324"),
        (queue.message(&1).debounce(beyond), "at_most: the duration in ms"),
        (queue.message(&1).max_failures(0), "max_failures"),
        (queue.message(&1).max_crashes(65_536), "max_crashes"),
    ];
    let expected = drafts.each_ref().map(|(_, expected)| *expected);
    let drafts = drafts.map(|(draft, _)| draft);
    for (draft, expected) in drafts.iter().cloned().zip(expected) {
        let error = draft.send().await.unwrap_err();
        assert!(matches!(kind(&error), ErrorKind::Invalid(_)), "{error:?}");
        assert!(error.to_string().contains(expected), "{expected:?}: {error}");
    }
    let good = queue.message(&1).id("good");
    let sent = queue.send_many(drafts.into_iter().chain([good])).await;
    assert_eq!(sent.iter().filter(|sent| sent.is_err()).count(), 12);
    assert!(sent[12].as_ref().unwrap().is_accepted(), "it is not spoilt by its neighbours");
    assert_eq!(queue.stats().await.unwrap().totals.enqueued, 1);
}

#[tokio::test]
async fn a_send_is_accepted_if_the_message_will_be_or_was_delivered() {
    let queue: Queue<u64> = Queue::new(Faulty::new());
    let send = async |id: &str| {
        let draft = queue.message(&1).id(id).max_failures(1);
        draft.send().await.unwrap()
    };
    assert!(send("relayed").await.is_accepted(), "it is created");
    let key = DestinationKey::try_from("due").unwrap();
    let to = Destination::List { key, max_len: None };
    queue.apply(&Op::Relay(Relay::new(to, 1))).await.unwrap();
    for id in ["acked", "dead", "purged"] {
        assert!(send(id).await.is_accepted(), "{id} is created");
    }
    let worker = Worker::builder(queue.clone()).until_empty(true).build().unwrap();
    worker
        .run(
            async |job: Job<u64>| {
                if job.id().as_str() == Some("acked") { Ok(()) } else { Err("no") }
            },
        )
        .await;
    queue.purge("purged").await.unwrap();
    for id in ["ready", "cancelled"] {
        assert!(send(id).await.is_accepted(), "{id} is created");
    }
    queue.cancel("cancelled").await.unwrap();
    for (id, status, accepted) in [
        ("ready", Status::Ready, true),
        ("acked", Status::Acked, true),
        ("relayed", Status::Relayed, true),
        ("dead", Status::Dead, false),
        ("purged", Status::Purged, false),
        ("cancelled", Status::Cancelled, false),
    ] {
        let sent = send(id).await;
        assert_eq!(sent.outcome, Enqueued::Duplicate { status }, "{id}");
        assert_eq!((sent.is_accepted(), sent.is_conflict()), (accepted, false), "{id}");
    }
    let other = queue.message(&2).id("ready").send().await.unwrap();
    assert_eq!((other.is_accepted(), other.is_conflict()), (false, true));
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_messages_goes_through_all_pages_and_ends_after_an_error() {
    let backend = Faulty::new();
    let queue: Queue<u64> = Queue::new(backend.clone());
    let hour = Duration::from_secs(3_600);
    for number in 0..250 {
        queue.send_in(&number, hour).await.unwrap();
    }
    let listed = || queue.list(Listed::Scheduled).page_size(40).into_stream();
    let all: Vec<_> = listed().map(|info| info.unwrap().sequence).collect().await;
    assert_eq!(all, (1..=250).collect::<Vec<_>>());
    assert_eq!(backend.sent("list").len(), 7);

    let mut pages = 0;
    backend.set_plan(move |op| {
        pages += u32::from(matches!(op, Op::List(_)));
        if pages > 2 { Fault::Denied } else { Fault::None }
    });
    let part: Vec<_> = listed().collect().await;
    assert_eq!(part.len(), 81);
    let (last, before) = part.split_last().unwrap();
    assert!(before.iter().all(Result::is_ok));
    assert_eq!(kind(last.as_ref().unwrap_err()), &ErrorKind::PermissionDenied);
}
