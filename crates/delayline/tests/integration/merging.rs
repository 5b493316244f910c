//! Sends that happen at the same time go out together, in virtual time.

use std::pin::pin;
use std::time::Duration;

use crate::support::{Fault, Faulty};
use delayline::backend::Op;
use delayline::codec::{CodecError, Decode, Encode};
use delayline::telemetry::TraceContext;
use delayline::{Bytes, Enqueued, Error, ErrorClass, ErrorKind, Found, MessageId, Queue};
use futures_util::poll;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

type Numbers = Queue<u64>;

struct Hex;

impl Encode<u64> for Hex {
    fn encode(&self, value: &u64) -> Result<Bytes, CodecError> {
        Ok(format!("{value:x}").into())
    }
}

impl Decode<u64> for Hex {
    fn decode(&self, payload: &Bytes) -> Result<u64, CodecError> {
        let text = std::str::from_utf8(payload).map_err(|_| CodecError::new("not a text"))?;
        u64::from_str_radix(text, 16).map_err(|_| CodecError::new("not a number"))
    }
}

fn groups(backend: &Faulty) -> Vec<usize> {
    let sizes = backend.sent("enqueue").into_iter().map(|(_, op)| match op {
        Op::Enqueue(messages) => messages.len(),
        other => panic!("{other:?}"),
    });
    sizes.collect()
}

#[tokio::test(start_paused = true)]
async fn a_lone_send_goes_out_alone_and_at_once() {
    let backend = Faulty::new();
    let queue = Numbers::new(backend.clone());
    queue.send(&1).await.unwrap();
    queue.send(&2).await.unwrap();
    assert_eq!(groups(&backend), [1, 1]);
    assert_eq!(backend.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn what_comes_while_a_group_is_on_its_way_goes_with_the_next() {
    let backend = Faulty::with_plan(|_| Fault::SlowReply);
    let queue = Numbers::new(backend.clone());
    let mut sends = JoinSet::new();
    for n in 0..256 {
        let queue = queue.clone();
        sends.spawn(async move { queue.send(&n).await });
    }
    while let Some(sent) = sends.join_next().await {
        sent.unwrap().unwrap();
    }
    assert_eq!(groups(&backend).iter().sum::<usize>(), 256);
    assert!(groups(&backend).len() <= 2, "{:?}", groups(&backend));
    assert_eq!(backend.stats().await.totals.enqueued, 256);
}

#[tokio::test(start_paused = true)]
async fn each_caller_gets_its_own_answer() {
    let backend = Faulty::with_plan(|_| Fault::SlowReply);
    let queue = Numbers::new(backend.clone());
    let _ = queue.message(&1).id("taken").send().await.unwrap();
    let send =
        async |id: &str, value: u64| queue.message(&value).id(id).send().await.unwrap().outcome;
    let bad = async { queue.message(&1).max_failures(0).send().await };
    let (first, same, other, new, bad) =
        tokio::join!(send("a", 1), send("taken", 1), send("taken", 2), send("b", 1), bad);
    assert!(matches!(first, Enqueued::Created { .. }));
    assert!(matches!(same, Enqueued::Duplicate { .. }));
    assert!(matches!(other, Enqueued::Conflict { .. }));
    assert!(matches!(new, Enqueued::Created { .. }));
    assert!(matches!(bad.unwrap_err().kind(), ErrorKind::Invalid(_)), "it fails alone");
    assert_eq!(backend.stats().await.totals.enqueued, 3);
}

#[tokio::test(start_paused = true)]
async fn of_many_sends_of_one_id_one_creates() {
    let backend = Faulty::with_plan(|_| Fault::SlowReply);
    let queue = Numbers::new(backend.clone());
    let mut sends = JoinSet::new();
    for _ in 0..20 {
        let queue = queue.clone();
        sends.spawn(async move {
            let draft = queue.message(&1).id("one");
            matches!(draft.send().await.unwrap().outcome, Enqueued::Created { .. })
        });
    }
    let created = sends.join_all().await.into_iter().filter(|created| *created).count();
    assert_eq!(created, 1);
    assert_eq!(backend.stats().await.totals.enqueued, 1);
}

#[tokio::test(start_paused = true)]
async fn a_failed_group_fails_for_everybody_in_it() {
    let backend = Faulty::with_plan(|_| Fault::Denied);
    let queue = Numbers::new(backend.clone());
    let (first, second) = tokio::join!(queue.send(&1), queue.send(&2));
    for error in [first.unwrap_err(), second.unwrap_err()] {
        assert_eq!(
            (error.class(), error.kind()),
            (ErrorClass::Rejected, &ErrorKind::PermissionDenied)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_doubles_nobodys_message() {
    let faults = [Fault::LostReply, Fault::LostRequest, Fault::Busy, Fault::LostReply];
    let backend = Faulty::with_faults("enqueue", &faults);
    let queue = Numbers::new(backend.clone());
    let (first, second, third) = tokio::join!(queue.send(&1), queue.send(&2), queue.send(&3));
    assert!(first.is_ok() && second.is_ok() && third.is_ok());
    assert_eq!(backend.stats().await.totals.enqueued, 3);
}

#[tokio::test(start_paused = true)]
async fn who_gives_up_waiting_takes_nothing_from_the_others() {
    let backend = Faulty::with_plan(|_| Fault::SlowReply);
    let queue = Numbers::new(backend.clone());
    let soon = Duration::from_millis(50);
    let (first, others) = (queue.clone(), queue);
    let leader = tokio::spawn(async move { timeout(soon, first.send(&1)).await.is_err() });
    while backend.sent("enqueue").is_empty() {
        tokio::task::yield_now().await;
    }
    let (waiting, patient) = tokio::join!(timeout(soon, others.send(&2)), others.send(&3));
    assert!(leader.await.unwrap() && waiting.is_err());
    patient.unwrap();
    // The first was on its way; the second was withdrawn before it left.
    assert_eq!(backend.stats().await.totals.enqueued, 2);
}

#[tokio::test(start_paused = true)]
async fn each_caller_of_a_group_gives_up_at_its_own_time() {
    let (start, millis) = (Instant::now(), Duration::from_millis);
    let is_over = move || start.elapsed() >= millis(15_000);
    let backend = Faulty::with_plan(move |_| if is_over() { Fault::None } else { Fault::Busy });
    let queue = Numbers::new(backend.clone()).patience(millis(10_000));
    let send = |n: u64, after_ms: u64| {
        let queue = queue.clone();
        async move {
            sleep(millis(after_ms)).await;
            (queue.send(&n).await.map(|_| ()), start.elapsed())
        }
    };
    // The first is a group alone, and the others are the next.
    let ended = tokio::join!(send(1, 0), send(2, 100), send(3, 600), send(4, 8_000));
    let (_, first, second, patient) = ended;
    for ((sent, at), limit) in [(first, 10_100), (second, 10_600)] {
        assert_eq!(sent.unwrap_err().class(), ErrorClass::NotExecuted);
        assert!(at <= millis(limit) && at + millis(1_000) >= millis(limit), "{at:?} of {limit}");
    }
    let (sent, at) = patient;
    assert!(sent.is_ok() && at >= millis(15_000), "{sent:?} after {at:?}");
    assert!(groups(&backend).iter().max() >= Some(&2), "they were sent together");
    assert_eq!(backend.stats().await.totals.enqueued, 1);
}

/// It neither waits for the group before it, nor makes the others of its group give up.
#[tokio::test(start_paused = true)]
async fn an_impatient_send_fails_alone_and_in_time() {
    let (start, millis) = (Instant::now(), Duration::from_millis);
    let is_over = move || start.elapsed() >= millis(5_000);
    let backend = Faulty::with_plan(move |_| if is_over() { Fault::None } else { Fault::Busy });
    let patient = Numbers::new(backend.clone());
    let impatient = patient.patience(millis(500));
    let ended = |sent: Result<_, Error>| (sent.map(|_: MessageId| ()), start.elapsed());
    let (first, second, third, together) = tokio::join!(
        async { ended(patient.send(&1).await) },
        async {
            sleep(millis(10)).await;
            ended(impatient.send(&2).await)
        },
        async {
            sleep(millis(10)).await;
            ended(patient.send(&3).await)
        },
        async { ended(impatient.send(&4).await) },
    );
    for (sent, at) in [second, together] {
        let error = sent.unwrap_err();
        assert_eq!((error.kind(), error.class()), (&ErrorKind::Busy, ErrorClass::NotExecuted));
        assert!(at <= millis(510), "{at:?}");
    }
    for (sent, at) in [first, third] {
        assert!(sent.is_ok() && at >= millis(5_000), "{sent:?} after {at:?}");
    }
    assert_eq!(backend.stats().await.totals.enqueued, 2);
}

#[tokio::test(start_paused = true)]
async fn many_sends_that_give_up_behind_a_failing_group_make_no_calls() {
    for (fault, kind) in
        [(Fault::Busy, ErrorKind::Busy), (Fault::LostReply, ErrorKind::Unreachable)]
    {
        let backend = Faulty::with_faults("enqueue", &[fault; 3]);
        let queue = Numbers::new(backend.clone());
        let impatient = queue.patience(Duration::from_millis(1));
        let behind = futures_util::future::join_all((0..1_000).map(|n| {
            let impatient = &impatient;
            async move {
                sleep(Duration::from_millis(10)).await;
                impatient.message(&n).send().await
            }
        }));
        let (first, behind) = tokio::join!(queue.send(&0), behind);
        assert!(first.is_ok(), "{first:?}");
        for sent in behind {
            let error = sent.unwrap_err();
            assert_eq!((error.kind(), error.class()), (&kind, ErrorClass::NotExecuted), "{error}");
        }
        assert_eq!(groups(&backend), [1; 4], "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_is_repeated_for_all_but_the_impatient_of_a_group() {
    for fault in [Fault::LostReply, Fault::LostRequest, Fault::Unconfirmed] {
        let backend = Faulty::with_faults("enqueue", &[fault]);
        let queue = Numbers::new(backend.clone());
        let send = |n: u64, queue: &Numbers| queue.message(&n).send();
        let impatient = queue.patience(Duration::ZERO);
        let (first, second, third) =
            tokio::join!(send(1, &queue), send(2, &impatient), send(3, &queue));
        assert_eq!(second.unwrap_err().class(), ErrorClass::Ambiguous, "{fault:?}");
        for sent in [first.unwrap(), third.unwrap()] {
            assert!(sent.is_accepted() && sent.repeated, "{fault:?}: {sent:?}");
        }
        assert_eq!(groups(&backend), [3, 2], "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn sends_of_other_options_go_with_the_same_group() {
    let backend = Faulty::with_plan(|_| Fault::SlowReply);
    let queue = Numbers::new(backend.clone());
    let patient = queue.patience(Duration::from_secs(60));
    let traced = patient.trace_source(|| TraceContext::new(7, 1, true).ok());
    let hex = traced.codec(Hex);
    let (first, second, third, fourth) =
        tokio::join!(queue.send(&1), patient.send(&2), traced.send(&3), hex.send(&255));
    let (second, third, fourth) = (second.unwrap(), third.unwrap(), fourth.unwrap());
    first.unwrap();
    assert_eq!(groups(&backend), [4]);
    for (id, value, is_traced) in [(second, 2, false), (third, 3, true), (fourth, 0xff, true)] {
        let queue = if value == 0xff { hex.get(id).await } else { queue.get(id).await };
        let Found::Live(message) = queue.unwrap() else { panic!("{value} was sent") };
        let context = TraceContext::from_headers(&message.headers);
        assert_eq!((message.payload, context.is_some()), (value, is_traced));
    }
}

#[tokio::test(start_paused = true)]
async fn too_many_waiting_sends_are_refused_at_once() {
    let backend = Faulty::with_plan(|_| Fault::SlowReply);
    let queue = Numbers::new(backend.clone());
    let mut sends = JoinSet::new();
    for n in 0..10_100 {
        let queue = queue.clone();
        sends.spawn(async move { queue.send(&n).await });
    }
    let results: Vec<Result<_, Error>> = sends.join_all().await;
    let refused: Vec<_> = results.into_iter().filter_map(Result::err).collect();
    assert!(!refused.is_empty() && refused.len() <= 100, "{} refused", refused.len());
    for error in &refused {
        assert_eq!(error.kind(), &ErrorKind::Overloaded, "{error}");
        assert_eq!(error.class(), ErrorClass::NotExecuted);
    }
    let taken = 10_100 - u64::try_from(refused.len()).unwrap();
    assert_eq!(backend.stats().await.totals.enqueued, taken);
}

/// As JSON two bytes more.
fn megabyte() -> String {
    "m".repeat(1_000_000 - 2)
}

#[tokio::test(start_paused = true)]
async fn bytes_that_wait_are_bounded_and_make_room_when_they_are_sent() {
    let backend = Faulty::with_plan(|_| Fault::SlowReply);
    let queue = Queue::<String>::new(backend.clone());
    let mut sends = JoinSet::new();
    for _ in 0..80 {
        let queue = queue.clone();
        sends.spawn(async move { queue.send(&megabyte()).await });
    }
    let refused: Vec<_> = sends.join_all().await.into_iter().filter_map(Result::err).collect();
    // 67 megabytes fit into 64 MiB, and three more may be on their way.
    assert!((9..=13).contains(&refused.len()), "{} refused", refused.len());
    assert!(refused.iter().all(|error| error.kind() == &ErrorKind::Overloaded));
    queue.send(&megabyte()).await.unwrap();
    let taken = 81 - u64::try_from(refused.len()).unwrap();
    assert_eq!(backend.stats().await.totals.enqueued, taken);
}

#[test]
fn the_end_of_a_runtime_stops_nobody_elses_sends() {
    let (first, second) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let backend = Faulty::with_faults("enqueue", &[Fault::SlowReply]);
    let queue = Numbers::new(backend.clone());
    first.block_on(async {
        let queue = queue.clone();
        tokio::spawn(async move { queue.send(&1).await });
        while backend.sent("enqueue").is_empty() {
            tokio::task::yield_now().await;
        }
    });
    second.block_on(async {
        // It waits for the group of the first runtime.
        let mut waiting = pin!(queue.send(&2));
        assert!(poll!(waiting.as_mut()).is_pending());
        first.shutdown_background();
        let patience = Duration::from_secs(20);
        timeout(patience, waiting).await.expect("it is released").unwrap();
        timeout(patience, queue.send(&3)).await.expect("another leads").unwrap();
    });
    assert_eq!(groups(&backend), [1, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_may_reuse_an_id_is_not_sent_twice() {
    let backend = Faulty::with_faults("enqueue", &[Fault::LostReply]);
    let queue = Numbers::new(backend.clone());
    let draft = queue.message(&1).id("shop").reuse_finished_id();
    assert_eq!(draft.send().await.unwrap_err().class(), ErrorClass::Ambiguous);
    assert_eq!(backend.stats().await.totals.enqueued, 1);
    assert_eq!(groups(&backend), [1], "it was not repeated");
}
