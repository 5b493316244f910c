//! Messages that wait for others: delivered with the last end, never early and never lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use delayline::after::{Ended, OnFailure, Waiting, Why};
use delayline::message::{DeathReason, Status};
use delayline::{
    Cancelled, Completion, Connect, Connection, Enqueued, ErrorKind, Found, Job, Outcome, Queue,
    Worker, Workers,
};
use delayline_core::{Hold, Op, Schedule};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, timeout};

use crate::support::{Fault, Faulty};

const DAY: Duration = Duration::from_secs(86_400);
/// Longer than any wait here, unless something is wrong.
const PATIENCE: Duration = Duration::from_secs(20);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Runs a case on each backend of this build.
async fn on_every_backend(case: impl AsyncFn(&Connection)) {
    case(&delayline::connect("memory:").await.unwrap()).await;
    #[cfg(feature = "file")]
    {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("file:{}", directory.path().display());
        case(&delayline::connect(&url).await.unwrap()).await;
    }
    for driver in [
        #[cfg(feature = "redis")]
        delayline::RedisClient::Redis,
        #[cfg(feature = "fred")]
        delayline::RedisClient::Fred,
    ] {
        let server = delayline_test_server::Server::start();
        let connect = Connect::new(&server.url()).unwrap().client(driver);
        case(&connect.connect().await.unwrap()).await;
    }
}

/// What a handler was given: the id, why, and the ends of the members.
type Delivered = (String, Option<Why>, Vec<Completion>);

/// Handles the messages of both queues: payloads of 1 are rejected, others acked with a result.
fn work(parts: Queue<u64>, wholes: Queue<u64>) -> (Working, UnboundedReceiver<Delivered>) {
    let (seen, delivered) = unbounded_channel();
    let part = async |job: Job<u64>| match job.payload() {
        1 => Ok(Outcome::reject("no")),
        n => Ok::<_, &str>(Outcome::AckWith(n.to_string().into())),
    };
    let whole = move |job: Job<u64>| {
        let why = job.members().map(|members| members.why);
        let ended = job.members().map_or(&[][..], |members| &members.ended);
        let ends = ended.iter().map(|Ended { completion, .. }| completion.clone()).collect();
        seen.send((job.id().to_string(), why, ends)).unwrap();
        async { Ok::<_, &str>(()) }
    };
    let workers = Workers::sharing(4).unwrap();
    let workers = workers.add(1, Worker::builder(parts), part).unwrap();
    let workers = workers.add(1, Worker::builder(wholes), whole).unwrap();
    (
        Working(tokio::spawn(async {
            let _ = workers.run().await;
        })),
        delivered,
    )
}

struct Working(tokio::task::JoinHandle<()>);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_delivered_with_the_ends_and_results_of_its_members() {
    on_every_backend(async |connection| {
        let parts: Queue<u64> = connection.queue("parts").await.unwrap();
        let wholes: Queue<u64> = connection.queue("wholes").await.unwrap();
        let members = || (0..20).map(|n| parts.message(&n).keep_result(DAY));
        let inner = || wholes.message(&7).id("inner");
        // The members are not handled before the outer message waits for both.
        let outer = wholes.message(&8).id("outer").after(["inner", "late"]);
        assert!(outer.clone().send().await.unwrap().is_accepted());
        let sent = inner().wakes("outer").send_with_members(members()).await.unwrap();
        assert!(sent.is_accepted() && sent.members.len() == 20);

        let Found::Live(found) = wholes.get("inner").await.unwrap() else { panic!("gone") };
        assert_eq!((found.payload, found.waiting.unwrap().members.len()), (7, 20));
        let (working, mut delivered) = work(parts.clone(), wholes.clone());
        let (id, why, ends) = timeout(PATIENCE, delivered.recv()).await.unwrap().unwrap();
        assert_eq!((id.as_str(), why), ("inner", Some(Why::AllEnded)));
        let expected = (0..20).map(|n| match n {
            1 => Completion::Dead(DeathReason::Rejected),
            n => Completion::acked_with(n.to_string()),
        });
        assert_eq!(ends, expected.collect::<Vec<_>>());

        // A member may be sent after the message that waits for it.
        assert!(wholes.message(&9).id("late").wakes("outer").send().await.unwrap().is_accepted());
        let (late, outer) = (delivered.recv().await.unwrap(), delivered.recv().await.unwrap());
        assert_eq!((late.0.as_str(), outer.0.as_str()), ("late", "outer"));
        assert_eq!(outer.2, vec![Completion::finished(Status::Acked); 2]);
        drop(working);

        // What has been handled is not sent again, even if the members are forgotten.
        let completion = wholes.wait_for("inner", PATIENCE).await.unwrap();
        assert_eq!(completion, Completion::finished(Status::Acked));
        let sent = inner().wakes("outer").send_with_members(members()).await.unwrap();
        assert!(sent.is_accepted() && sent.members.is_empty());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_counts_delivers_or_cancels_and_a_limit_ends_the_wait() {
    on_every_backend(async |connection| {
        let parts: Queue<u64> = connection.queue("parts").await.unwrap();
        let wholes: Queue<u64> = connection.queue("wholes").await.unwrap();
        assert!(parts.message(&1).id("bad").send().await.unwrap().is_accepted());
        assert!(parts.message(&2).id("later").due_in(DAY).send().await.unwrap().is_accepted());
        let both = || ["bad", "later"].map(|id| parts.member(id).unwrap());
        let waits = |id: &str| wholes.message(&0).id(id).after(both());
        for draft in [
            waits("counts").on_failure(OnFailure::Wait),
            waits("delivers").on_failure(OnFailure::Deliver),
            waits("cancels").on_failure(OnFailure::Cancel),
            waits("limited").wait_at_most(ms(50)),
            wholes.message(&0).id("none").after([""; 0]),
        ] {
            assert!(draft.send().await.unwrap().is_accepted());
        }
        let (_working, mut delivered) = work(parts.clone(), wholes.clone());
        let mut seen = BTreeMap::new();
        for _ in 0..3 {
            let (id, why, ends) = timeout(PATIENCE, delivered.recv()).await.unwrap().unwrap();
            seen.insert(id, (why.unwrap(), ends.len(), ends.last() == Some(&Completion::Pending)));
        }
        let expected = [
            ("delivers", (Why::Failure, 2, true)),
            ("limited", (Why::TimeLimit, 2, true)),
            ("none", (Why::AllEnded, 0, false)),
        ];
        assert_eq!(seen, expected.map(|(id, it)| (id.to_owned(), it)).into());
        let cancelled = wholes.wait_for("cancels", PATIENCE).await.unwrap();
        assert_eq!(cancelled, Completion::finished(Status::Cancelled));
        // A cancelled member has ended, too.
        assert_eq!(parts.cancel("later").await.unwrap(), Cancelled::Cancelled);
        let (id, why, ends) = timeout(PATIENCE, delivered.recv()).await.unwrap().unwrap();
        assert_eq!((id.as_str(), why), ("counts", Some(Why::AllEnded)));
        let expected =
            [Completion::Dead(DeathReason::Rejected), Completion::finished(Status::Cancelled)];
        assert_eq!(ends, expected);
    })
    .await;
}

#[tokio::test]
async fn what_cannot_wait_is_refused_before_anything_is_sent() {
    let connection = delayline::connect("memory:").await.unwrap();
    let queue: Queue<u64> = connection.queue("queue").await.unwrap();
    let elsewhere = delayline::connect("memory:").await.unwrap();
    let other: Queue<u64> = elsewhere.queue("queue").await.unwrap();
    let waits = || queue.message(&0).id("w").after(["a"]);
    let ids = |count: usize| (0..count).map(|n| n.to_string());
    assert!(queue.message(&0).id("most").after(ids(10_000)).send().await.unwrap().is_accepted());
    let refused = [
        (queue.message(&0).id("w").after(ids(10_001)), "10001 items long; at most 10000"),
        (waits().after([other.member("b").unwrap()]), "it is on another connection"),
        (queue.message(&0).id("b").wakes(other.member("w").unwrap()), "on another connection"),
        (waits().after(["w"]), "it would wait for itself"),
        (waits().after(["b", "a", ""]), "the message id is empty"),
        (waits().group("g"), "group"),
        (waits().due_in(ms(1)), "leave the due time out"),
        (waits().priority(delayline::message::Priority::High), "has normal priority"),
        (waits().debounce(DAY), "neither an update nor throttled"),
        (waits().wait_at_most(Duration::ZERO), "must be from 1 to"),
        (queue.message(&0).wait_at_most(ms(1)), "are for messages with after"),
        (queue.message(&0).on_failure(OnFailure::Cancel), "are for messages with after"),
        (
            queue.message(&0).id("w").after((0..10_000).map(|n| format!("{n:0<128}x"))),
            "at most 128 are allowed",
        ),
        (
            queue
                .message(&0)
                .id("w")
                .after((0..10_000).map(|n| format!("{:0<64}", format!("{n:05}")).repeat(2))),
            "the payload with the ids of the members",
        ),
    ];
    for (draft, reason) in refused {
        let error = draft.send().await.unwrap_err();
        assert!(error.is_invalid() && error.to_string().contains(reason), "{error}: {reason}");
    }
    let members = |kept| [queue.message(&1).id("a").keep_result(kept)];
    let short = queue.message(&0).id("w").send_with_members(members(ms(1))).await;
    assert!(short.unwrap_err().to_string().contains("keep the result for longer"));
    let unnamed = queue.message(&0).send_with_members(members(DAY)).await.unwrap_err();
    assert!(matches!(unnamed.kind(), ErrorKind::Invalid(_)), "{unnamed}");
    let foreign = queue.message(&0).id("w").send_with_members([other.message(&1)]).await;
    assert!(foreign.unwrap_err().to_string().contains("on another connection"));
    let stats = queue.stats().await.unwrap();
    assert_eq!((stats.totals.enqueued, other.stats().await.unwrap().totals.enqueued), (1, 0));
    assert_eq!(Waiting::new().at_most, DAY);
}

#[tokio::test(start_paused = true)]
async fn checks_are_rare_and_the_last_end_delivers_at_once() {
    let backend = Faulty::new();
    let queue: Queue<u64> = Queue::new(backend.clone());
    let start = Instant::now();
    // Half an hour apart from the send, so that checks without a wake-up are 30 s apart.
    let last = 1_800_000;
    let times = (0..1_000).map(|n| last - 5_000 + n * 5).chain([last + 1_000]);
    let members = times.clone().map(|at| queue.message(&1).due_in(ms(at)));
    let sent = queue.message(&0).id("w").send_with_members(members).await.unwrap();
    assert!(sent.is_accepted());
    let (seen, mut delivered) = unbounded_channel();
    let worker = Worker::builder(queue.clone()).concurrency(50).build().unwrap();
    let _working = Working(tokio::spawn(async move {
        let handler = move |job: Job<u64>| {
            if job.members().is_some() {
                seen.send(start.elapsed()).unwrap();
            }
            async { Ok::<_, &str>(()) }
        };
        let _ = worker.run(handler).await;
    }));
    let delivered = delivered.recv().await.unwrap();
    let late = delivered.saturating_sub(ms(last + 1_000));
    assert!(late <= ms(50), "{late:?} after the last end");
    // Each check queries a thousand members in one operation, or a thousand and one in two.
    let checks: Vec<_> = backend.sent("progress").into_iter().map(|(at, _)| at).collect();
    let before = checks.iter().filter(|at| **at < ms(last - 5_000)).count();
    assert!(before <= 2 * 120, "{before} queries in half an hour");
    let seconds = ms(last - 4_000)..ms(last - 1_000);
    let during = checks.iter().filter(|at| seconds.contains(*at));
    assert!((4..=8).contains(&during.count()), "{checks:?}");
    // Those that have ended are not queried again, but for their results.
    let queried = backend.sent("progress").into_iter().filter(|(at, _)| *at > ms(last));
    let queried = queried.map(|(_, op)| op.ids().len()).collect::<Vec<_>>();
    assert!(queried.iter().filter(|ids| **ids > 20).count() <= 3, "{queried:?}");
}

#[tokio::test(start_paused = true)]
async fn a_wakeup_keeps_no_queue_open() {
    let backend = Faulty::new();
    let queue: Queue<u64> = Queue::new(backend.clone());
    let members = [queue.message(&1)];
    let _ = queue.message(&0).id("w").send_with_members(members).await.unwrap();
    let worker = Worker::builder(queue).build().unwrap();
    let handle = worker.handle();
    let summary = worker.run(move |_: Job<u64>| {
        handle.stop(PATIENCE);
        async { Ok::<_, &str>(()) }
    });
    assert_eq!(summary.await.acked, 1);
    assert_eq!(Arc::strong_count(&backend), 1, "the queue was dropped with its worker");
}

#[tokio::test(start_paused = true)]
async fn a_lost_wakeup_delays_by_half_a_minute_at_most() {
    let backend = Faulty::with_plan(|op| match op {
        Op::Reschedule(_) => Fault::Denied,
        _ => Fault::None,
    });
    let queue: Queue<u64> = Queue::new(backend.clone());
    let members = [queue.message(&1).due_in(Duration::from_secs(3_600))];
    let _ = queue.message(&0).id("w").send_with_members(members).await.unwrap();
    let worker = Worker::builder(queue.clone()).until_empty(true).build().unwrap();
    assert_eq!(worker.run(async |_: Job<u64>| Ok::<_, &str>(())).await.acked, 2);
    assert!(!backend.sent("reschedule").is_empty());
    let late = backend.elapsed().saturating_sub(Duration::from_secs(3_600));
    assert!(late <= Duration::from_secs(31), "{late:?}");
}

#[tokio::test]
async fn a_message_is_explained_although_its_members_cannot_be_queried() {
    let backend = Faulty::new();
    let queue: Queue<u64> = Queue::new(backend.clone());
    let _ = queue.message(&0).id("w").after(["a", "b"]).send().await.unwrap();
    assert!(queue.explain("w").await.unwrap().to_string().starts_with("It waits for 2 of 2 "));
    backend.set_plan(|op| match op {
        Op::Progress(_) => Fault::Denied,
        _ => Fault::None,
    });
    let explained = queue.explain("w").await.unwrap().to_string();
    assert!(explained.starts_with("It waits for 2 messages."), "{explained}");
}

#[tokio::test(start_paused = true)]
async fn a_message_that_was_delivered_early_comes_again_when_its_handler_says() {
    for (again, second) in [
        (Outcome::retry_in(Duration::from_secs(60), "busy"), (61, Why::AllEnded)),
        (Outcome::Snooze(Duration::from_secs(10)), (11, Why::Failure)),
        (Outcome::Snooze(Duration::from_secs(10)).hold_group(ms(1)), (11, Why::Failure)),
    ] {
        let queue: Queue<u64> = Queue::new(Faulty::new());
        let start = Instant::now();
        // The first one fails, and each of the others wakes the message later.
        let members = (1..=20).map(|n| queue.message(&n).due_in(Duration::from_secs(n)));
        let waiting = queue.message(&0).id("w").on_failure(OnFailure::Deliver);
        let _ = waiting.send_with_members(members).await.unwrap();
        let (seen, mut delivered) = unbounded_channel();
        let handler = move |job: Job<u64>| {
            let outcome = match job.payload() {
                0 => {
                    let at = start.elapsed().as_secs();
                    seen.send((at, job.members().unwrap().why)).unwrap();
                    if at == 1 { again.clone() } else { Outcome::Ack }
                }
                1 => Outcome::reject("no"),
                _ => Outcome::Ack,
            };
            async { Ok::<_, &str>(outcome) }
        };
        let worker = Worker::builder(queue.clone()).until_empty(true).build().unwrap();
        worker.run(handler).await;
        let deliveries = [delivered.recv().await.unwrap(), delivered.recv().await.unwrap()];
        assert_eq!(deliveries, [(1, Why::Failure), second]);
    }
}

/// A wake-up may find the message with its handler. It is sent again after that.
#[tokio::test(start_paused = true)]
async fn a_late_wakeup_does_not_end_the_pause_before_a_retry() {
    const RETRY: Duration = Duration::from_secs(60);
    for apart in (0..200).step_by(20) {
        let slow =
            |op: &Op| if matches!(op, Op::Claim(_)) { Fault::SlowReply } else { Fault::None };
        let queue: Queue<u64> = Queue::new(Faulty::with_plan(slow));
        let first = Duration::from_secs(1);
        let members = [first, first + ms(apart)].map(|due| queue.message(&1).due_in(due));
        let _ = queue.message(&0).id("w").send_with_members(members).await.unwrap();
        let (seen, mut delivered) = unbounded_channel();
        let handler = move |job: Job<u64>| {
            let is_first = *job.payload() == 0 && job.failures() == 0;
            if *job.payload() == 0 {
                seen.send(Instant::now()).unwrap();
            }
            let retried = Outcome::retry_in(RETRY, "busy");
            async move { Ok::<_, &str>(if is_first { retried } else { Outcome::Ack }) }
        };
        let worker = Worker::builder(queue).until_empty(true).build().unwrap();
        worker.run(handler).await;
        let deliveries = [delivered.recv().await.unwrap(), delivered.recv().await.unwrap()];
        assert!(deliveries[1] - deliveries[0] >= RETRY, "members {apart} ms apart");
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiting_message_can_be_rescheduled_before_and_after_its_delivery() {
    const HOUR: Duration = Duration::from_secs(3_600);
    let queue: Queue<u64> = Queue::new(Faulty::new());
    let _ = queue.message(&0).id("w").send_with_members([queue.message(&1)]).await.unwrap();
    let _ = queue.reschedule_in("w", HOUR).await.unwrap();
    let start = Instant::now();
    let (seen, mut delivered) = unbounded_channel();
    let handler = move |job: Job<u64>| {
        let is_first = *job.payload() == 0 && job.failures() == 0;
        if *job.payload() == 0 {
            seen.send(start.elapsed()).unwrap();
        }
        let retried = Outcome::retry_in(HOUR, "busy");
        async move { Ok::<_, &str>(if is_first { retried } else { Outcome::Ack }) }
    };
    let worker = Worker::builder(queue.clone()).until_empty(true).build().unwrap();
    let _working = Working(tokio::spawn(async {
        worker.run(handler).await;
    }));
    // The wake-up of its only member does not make it due.
    let first = delivered.recv().await.unwrap();
    assert!(first >= HOUR, "{first:?}");
    tokio::time::sleep(ms(1_000)).await;
    let _ = queue.reschedule_in("w", Duration::ZERO).await.unwrap();
    let second = delivered.recv().await.unwrap();
    assert!(second - first < 2 * ms(1_000), "{second:?}");
}

#[tokio::test(start_paused = true)]
async fn an_update_during_the_check_that_cancels_takes_the_place_of_the_message() {
    let slow = |op: &Op| if matches!(op, Op::Progress(_)) { Fault::SlowReply } else { Fault::None };
    let queue: Queue<u64> = Queue::new(Faulty::with_plan(slow));
    let _ = queue.message(&1).id("part").due_in(DAY).send().await.unwrap();
    assert_eq!(queue.cancel("part").await.unwrap(), Cancelled::Cancelled);
    let waiting = queue.message(&0).id("w").after(["part"]).on_failure(OnFailure::Cancel);
    let _ = waiting.send().await.unwrap();
    let worker = Worker::builder(queue.clone()).until_empty(true).build().unwrap();
    let working = tokio::spawn(worker.run(async |job: Job<u64>| {
        assert_eq!(*job.payload(), 2);
        Ok::<_, &str>(())
    }));
    tokio::time::sleep(ms(50)).await;
    let update = queue.message(&2).id("w").or_replace().send().await.unwrap();
    assert_eq!(update.outcome, Enqueued::Following { replaced: false });
    assert_eq!(working.await.unwrap().acked, 1);
}

/// With many members left, the message is held between two checks, but not beyond its limit.
#[tokio::test(start_paused = true)]
async fn a_wait_for_many_members_is_not_held_beyond_its_limit() {
    let (seen, mut settlements) = unbounded_channel();
    let backend = Faulty::with_plan(move |op| {
        if let Op::Settle(items) = op {
            items.iter().for_each(|it| drop(seen.send((it.hold, it.outcome.clone()))));
        }
        Fault::None
    });
    let queue: Queue<u64> = Queue::new(backend);
    let members: Vec<_> = (0..12).map(|n| format!("part-{n}")).collect();
    let whole = queue.message(&1).id("whole").after(members).wait_at_most(ms(1_250));
    assert!(whole.send().await.unwrap().is_accepted());
    let worker = Worker::builder(queue).until_empty(true).build().unwrap();
    assert_eq!(worker.run(async |_| Ok::<_, &str>(())).await.acked, 1);
    let mut holds = 0;
    while let Ok((hold, outcome)) = settlements.try_recv() {
        let delayline::backend::Outcome::Snooze { schedule: Schedule::In(pause) } = outcome else {
            continue;
        };
        let Some(Hold::Group(Schedule::In(hold))) = hold else { panic!("{hold:?}") };
        assert!(hold <= pause, "{hold:?} {pause:?}");
        holds += 1;
    }
    assert!(holds > 0);
}

/// Senders choose how many queues there are, and a directory has room for 1,000.
#[cfg(feature = "file")]
#[tokio::test]
async fn members_in_many_queues_leave_room_for_others() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("file:{}", directory.path().display());
    let connection = delayline::connect(&url).await.unwrap();
    let queue: Queue<u64> = connection.queue("wholes").await.unwrap();
    let mut members = Vec::new();
    for n in 0..1_100 {
        let parts: Queue<u64> = connection.queue(&format!("parts-{n}")).await.unwrap();
        members.push(parts.member("a").unwrap());
    }
    let whole = queue.message(&1).id("whole").after(members).wait_at_most(ms(1));
    assert!(whole.send().await.unwrap().is_accepted());
    let worker = Worker::builder(queue).until_empty(true).build().unwrap();
    assert_eq!(worker.run(async |_| Ok::<_, &str>(())).await.acked, 1);
    let other: Queue<u64> = connection.queue("other").await.unwrap();
    assert!(other.send(&1).await.is_ok());
}
