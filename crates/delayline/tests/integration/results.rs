//! Results of handlers, and waiting for messages to end.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Fault, Faulty};
use delayline::backend::Op;
use delayline::events::EventKind;
use delayline::message::{DeathReason, Headers, Status};
use delayline::{Completion, Error, ErrorKind, Job, MessageId, Outcome, Queue, Worker, limits};
use futures_util::future::join_all;
use tokio::time::timeout;

fn over(backend: &Arc<Faulty>) -> Queue<u64> {
    Queue::new(Arc::clone(backend) as _)
}

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

/// Handles all messages that there are; each leaves its payload as the result.
async fn work(queue: &Queue<u64>) {
    let worker = Worker::builder(queue.clone()).until_empty(true).build().unwrap();
    worker
        .run(async |job: Job<u64>| {
            Ok::<_, Error>(Outcome::AckWith(job.payload().to_string().into()))
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_with_the_result() {
    let backend = Faulty::new();
    let queue = over(&backend);
    let sent = queue.message(&7).keep_result(HOUR).due_in(MINUTE).send().await.unwrap();
    let waiter = tokio::spawn({
        let (queue, id) = (queue.clone(), sent.id.clone());
        async move { queue.wait_for(id, HOUR).await }
    });
    work(&queue).await;
    assert_eq!(waiter.await.unwrap().unwrap(), Completion::acked_with("7"));
    // Within an eighth of the time that was waited.
    let noticed = backend.elapsed();
    assert!(noticed >= MINUTE && noticed < MINUTE + Duration::from_secs(8), "{noticed:?}");
    assert!(backend.sent("progress").len() < 120, "{}", backend.sent("progress").len());
}

#[tokio::test(start_paused = true)]
async fn a_result_that_nobody_asked_for_is_dropped() {
    let backend = Faulty::new();
    let queue = over(&backend);
    let sent = queue.message(&7).send().await.unwrap();
    work(&queue).await;
    let ended = queue.wait_for(sent.id, Duration::ZERO).await.unwrap();
    assert_eq!(ended, Completion::finished(Status::Acked));
    assert_eq!(backend.sent("hand_off").len(), 0);
    // A header that is no number of milliseconds within the limit asks for nothing.
    for (n, value) in ["", "-1", "1s", "0", "604800001", "99999999999999999999"].iter().enumerate()
    {
        let draft = queue.message(&7).id(format!("odd-{n}"));
        let _ = draft.header(Headers::RESULT_RETENTION_MS, *value).send().await.unwrap();
    }
    work(&queue).await;
    assert_eq!(backend.sent("hand_off").len(), 0);
    assert_eq!(backend.stats().await.totals.acked, 7);
}

#[tokio::test(start_paused = true)]
async fn every_end_ends_a_wait() {
    let backend = Faulty::new();
    let queue = over(&backend);
    for name in ["cancelled", "dead", "pending"] {
        let _ = queue.message(&1).id(name).due_in(MINUTE).max_failures(1).send().await.unwrap();
    }
    let wait = |name: &'static str| {
        let queue = queue.clone();
        tokio::spawn(async move { queue.wait_for(name, 10 * MINUTE).await.unwrap() })
    };
    assert_eq!(wait("absent").await.unwrap(), Completion::Unknown);
    let (cancelled, dead, pending) = (wait("cancelled"), wait("dead"), wait("pending"));
    queue.cancel("cancelled").await.unwrap();
    assert_eq!(cancelled.await.unwrap(), Completion::finished(Status::Cancelled));
    queue.reschedule_in("pending", HOUR).await.unwrap();
    let worker = Worker::builder(queue.clone()).build().unwrap();
    let handle = worker.handle();
    let running = tokio::spawn(worker.run(async |_: Job<u64>| Err::<(), _>("no")));
    assert_eq!(dead.await.unwrap(), Completion::Dead(DeathReason::MaxFailures));
    handle.stop(Duration::ZERO);
    running.await.unwrap();
    let before = backend.elapsed();
    assert_eq!(pending.await.unwrap(), Completion::Pending);
    assert!(backend.elapsed() > before && backend.elapsed() <= 10 * MINUTE, "{before:?}");
}

#[tokio::test(start_paused = true)]
async fn all_who_wait_share_their_looks() {
    let backend = Faulty::new();
    let queue = over(&backend);
    let drafts =
        (0..2_500).map(|n| queue.message(&n).id(format!("m-{n}")).keep_result(HOUR).due_in(MINUTE));
    queue.send_many(drafts).await;
    let waits = (0..5_000).map(|n| {
        let queue = queue.clone();
        async move { (n % 2_500, queue.wait_for(format!("m-{}", n % 2_500), HOUR).await) }
    });
    let (ended, ()) = tokio::join!(join_all(waits), work(&queue));
    for (n, progress) in ended {
        assert_eq!(progress.unwrap(), Completion::acked_with(n.to_string()));
    }
    let looks = backend.sent("progress");
    // Three operations for all of them, about a hundred times.
    assert!(looks.len() < 600, "{} looks", looks.len());
    let most = looks.iter().map(|(_, op)| match op {
        Op::Progress(ids) => ids.len(),
        _ => 0,
    });
    assert_eq!(most.max(), Some(limits::MAX_BATCH));
}

#[tokio::test(start_paused = true)]
async fn results_that_are_too_many_for_an_answer_are_fetched_in_turn() {
    let backend = Faulty::new();
    let queue = over(&backend);
    let ids: Vec<_> = (0..150).map(|n| format!("m-{n}")).collect();
    let drafts = ids.iter().map(|id| queue.message(&1).id(id.as_str()).keep_result(HOUR));
    queue.send_many(drafts.collect::<Vec<_>>()).await;
    let large = vec![b'r'; limits::MAX_RESULT_BYTES];
    let worker = Worker::builder(queue.clone()).until_empty(true).build().unwrap();
    let result = delayline::Bytes::from(large.clone());
    worker
        .run(move |_: Job<u64>| {
            let result = result.clone();
            async move { Ok::<_, Error>(Outcome::AckWith(result)) }
        })
        .await;
    let waits = ids.iter().map(|id| queue.wait_for(id.as_str(), Duration::ZERO));
    for progress in join_all(waits).await {
        assert_eq!(progress.unwrap().result().map(delayline::Bytes::len), Some(large.len()));
    }
    let fitting = limits::MAX_BATCH_BYTES / limits::MAX_RESULT_BYTES;
    assert_eq!(backend.sent("progress").len(), ids.len().div_ceil(fitting));
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_to_an_ack_loses_no_result() {
    let backend = Faulty::with_faults("hand_off", &[Fault::LostReply, Fault::LostReply]);
    let queue = over(&backend);
    let sent = queue.message(&7).keep_result(HOUR).send().await.unwrap();
    work(&queue).await;
    assert_eq!(backend.sent("hand_off").len(), 3);
    assert_eq!(queue.wait_for(sent.id, MINUTE).await.unwrap(), Completion::acked_with("7"));
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_was_given_up_keeps_no_queue_open() {
    let backend = Faulty::new();
    let queue = over(&backend);
    let id = queue.message(&7).due_in(HOUR).send().await.unwrap().id;
    assert!(timeout(MINUTE, queue.wait_for(id, HOUR)).await.is_err());
    drop(queue);
    assert_eq!(Arc::strong_count(&backend), 1);
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_cannot_look_fails_and_the_next_one_works() {
    let backend = Faulty::new();
    let queue = over(&backend).patience(Duration::from_secs(2));
    let sent = queue.message(&7).due_in(MINUTE).send().await.unwrap();
    backend.set_plan(|op| match op {
        Op::Progress(_) => Fault::Busy,
        _ => Fault::None,
    });
    let error = queue.wait_for(sent.id.clone(), HOUR).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Busy), "{error}");
    backend.set_plan(|_| Fault::None);
    assert_eq!(queue.wait_for(sent.id, Duration::from_secs(1)).await.unwrap(), Completion::Pending);
}

#[tokio::test(start_paused = true)]
async fn an_impatient_wait_fails_alone() {
    let backend = Faulty::new();
    let queue = over(&backend).patience(Duration::from_secs(8));
    let sent = queue.message(&7).due_in(HOUR).send().await.unwrap();
    let start = tokio::time::Instant::now();
    backend.set_plan(move |op| match op {
        Op::Progress(_) if start.elapsed() < Duration::from_secs(5) => Fault::Busy,
        _ => Fault::None,
    });
    let impatient = queue.patience(Duration::ZERO);
    let wait = async |queue: &Queue<u64>| {
        let progress = queue.wait_for(sent.id.clone(), Duration::from_secs(10)).await;
        (progress.map_err(|error| error.kind().clone()), start.elapsed())
    };
    let later = Duration::from_millis(10);
    let (first, second, third) = tokio::join!(wait(&impatient), wait(&queue), async {
        tokio::time::sleep(later).await;
        wait(&impatient).await
    });
    assert_eq!(first, (Err(ErrorKind::Busy), Duration::ZERO));
    assert_eq!(third, (Err(ErrorKind::Busy), later), "it does not wait for the patient one");
    assert_eq!(second, (Ok(Completion::Pending), Duration::from_secs(10)));
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_at_its_limit_while_the_server_is_away() {
    let backend = Faulty::new();
    let queue = over(&backend);
    let sent = queue.message(&7).due_in(HOUR).send().await.unwrap();
    let away = |op: &Op| if matches!(op, Op::Progress(_)) { Fault::Busy } else { Fault::None };
    let wait = async |limit| {
        let start = tokio::time::Instant::now();
        let progress = queue.wait_for(sent.id.clone(), limit).await;
        (progress.map_err(|error| error.kind().clone()), start.elapsed())
    };
    backend.set_plan(away);
    for (limit, end) in [(0, 1_000), (950, 1_050), (1_500, 1_600), (5_000, 5_100)] {
        let (progress, waited) = wait(Duration::from_millis(limit)).await;
        assert_eq!(progress, Err(ErrorKind::Timeout));
        assert_eq!(waited, Duration::from_millis(end));
    }

    // The server stops one second before the limit, or nine before.
    for (left, expected) in [(1, Ok(Completion::Pending)), (9, Err(ErrorKind::Timeout))] {
        backend.set_plan(|_| Fault::None);
        let going = async {
            tokio::time::sleep(MINUTE - Duration::from_secs(left)).await;
            backend.set_plan(away);
        };
        let ((progress, waited), ()) = tokio::join!(wait(MINUTE), going);
        assert_eq!((progress, waited), (expected, MINUTE + Duration::from_millis(100)), "{left} s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_that_is_too_large_fails_the_handling() {
    let backend = Faulty::new();
    let queue = over(&backend);
    let sent = queue.message(&7).keep_result(HOUR).max_failures(1).send().await.unwrap();
    let worker = Worker::builder(queue.clone()).until_empty(true).build().unwrap();
    let too_large = vec![0; limits::MAX_RESULT_BYTES + 1];
    worker
        .run(move |_: Job<u64>| {
            let result = too_large.clone();
            async move { Ok::<_, Error>(Outcome::AckWith(result.into())) }
        })
        .await;
    let dead = queue.get(sent.id.clone()).await.unwrap();
    let delayline::Found::Live(message) = dead else { panic!("{dead:?}") };
    let error = message.info.last_error.unwrap();
    assert_eq!(
        error,
        "the handler's outcome cannot be sent: the result is 65537 bytes long; at \
         most 65536 are allowed"
    );
    let dead = Completion::Dead(DeathReason::MaxFailures);
    assert_eq!(queue.wait_for(sent.id, Duration::ZERO).await.unwrap(), dead);
}

#[tokio::test(start_paused = true)]
async fn a_result_for_which_there_is_no_room_is_told() {
    tell_what_has_no_room(&Faulty::new()).await;
}

#[tokio::test(start_paused = true)]
async fn a_result_for_which_there_is_no_room_is_told_after_lost_replies() {
    let mut lost = false;
    let plan = move |op: &Op| {
        lost = matches!(op, Op::HandOff(_)) && !lost;
        if lost { Fault::LostReply } else { Fault::None }
    };
    let backend = Faulty::with_plan(plan);
    tell_what_has_no_room(&backend).await;
    assert!(backend.sent("hand_off").len() > 2);
}

async fn tell_what_has_no_room(backend: &Arc<Faulty>) {
    let queue = over(backend);
    let mut events = queue.events();
    let most = limits::MAX_RESULTS_BYTES / limits::MAX_RESULT_BYTES;
    let drafts = (0..=most).map(|_| queue.message(&1).keep_result(HOUR));
    queue.send_many(drafts.collect::<Vec<_>>()).await;
    let result = delayline::Bytes::from(vec![b'r'; limits::MAX_RESULT_BYTES]);
    let worker = Worker::builder(queue.clone()).until_empty(true).build().unwrap();
    let told = tokio::spawn(async move {
        let mut told = 0;
        while let Some(event) = events.next().await {
            told += u32::from(event.kind == EventKind::ResultNotKept);
        }
        told
    });
    let summary = worker
        .run(move |_: Job<u64>| {
            let result = result.clone();
            async move { Ok::<_, Error>(Outcome::AckWith(result)) }
        })
        .await;
    assert_eq!(summary.acked, u64::try_from(most + 1).unwrap());
    drop(queue);
    assert_eq!(told.await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_asked_for_is_refused_before_anything_is_sent() {
    let backend = Faulty::new();
    let queue = over(&backend);
    let beyond = Duration::from_millis(limits::MAX_RESULT_RETENTION_MS + 1);
    for (retention, told) in [(Duration::ZERO, "is 0"), (beyond, "is 604800001")] {
        let error = queue.message(&7).keep_result(retention).send().await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains("keep_result: the duration in ms") && text.contains(told), "{text}");
        assert!(text.contains("604800000"), "{text}");
    }
    assert!(queue.wait_for("", HOUR).await.is_err());
    assert_eq!(backend.commands(), 0);
    let _ = queue.message(&7).keep_result(Duration::from_nanos(1)).send().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn results_do_not_appear_in_debug_output() {
    let outcome = Outcome::AckWith("secret".into());
    assert_eq!(format!("{outcome:?}"), "AckWith { bytes: 6 }");
    let progress = Completion::acked_with("secret");
    assert!(!format!("{progress:?}").contains("secret"), "{progress:?}");
}

#[test]
fn a_wait_survives_the_runtime_that_looked() {
    let backend = Faulty::new();
    let queue = over(&backend);
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (first, second) = (runtime(), runtime());
    let id = first.block_on(queue.message(&7).due_in(HOUR).send()).unwrap().id;
    // The task that looks belongs to the first runtime.
    let looks = || first.block_on(queue.wait_for(id.clone(), Duration::from_millis(1)));
    assert_eq!(looks().unwrap(), Completion::Pending);
    let waiting = first.spawn({
        let (queue, id): (_, MessageId) = (queue.clone(), id.clone());
        async move { queue.wait_for(id, HOUR).await }
    });
    first.block_on(tokio::task::yield_now());
    drop((waiting, first));
    let wait = queue.wait_for(id, Duration::from_millis(20));
    assert_eq!(second.block_on(wait).unwrap(), Completion::Pending);
}

#[test]
fn a_wait_survives_a_runtime_that_is_not_run_any_more() {
    let queue = over(&Faulty::new());
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let [first, second] = [0, 1].map(|_| builder.enable_all().start_paused(true).build().unwrap());
    let id = first.block_on(queue.message(&7).due_in(HOUR).send()).unwrap().id;
    // The task that looks is between two polls.
    let looks = queue.wait_for(id.clone(), HOUR);
    first.block_on(async { timeout(Duration::from_millis(5), looks).await.unwrap_err() });
    first.block_on(queue.cancel(id.clone())).unwrap();
    let ended = second.block_on(queue.wait_for(id, MINUTE)).unwrap();
    assert_eq!(ended, Completion::finished(Status::Cancelled));
}
