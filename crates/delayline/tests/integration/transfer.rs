//! Moves between queues: of every kind, killed at every step, with workers on both sides.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use delayline::admin::Transfer;
use delayline::after::Why;
use delayline::backend::{
    Applied, At, Backend, Claim, ClaimId, Error, Found, Lease, List, Millis, NewMessage, Op,
    Outcome, QueueBackend, QueueName, Reply, Save, Schedule, Settlement, Status, Timestamp, Wakeup,
};
use delayline::limits;
use delayline::message::{Headers, MessageState, Priority};
use delayline::{Connect, Connection, Draft, Durability, ErrorKind, Job, MessageId, Queue, Worker};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::support::{Fault, Faulty};

/// Where the process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Death {
    Before,
    After,
}

/// Both queues die at one of their calls: that call and all later ones never return.
#[derive(Debug)]
struct Fate {
    calls: AtomicUsize,
    at: usize,
    death: Death,
    died: Notify,
}

#[derive(Debug)]
struct Mortal(Arc<dyn QueueBackend>, Arc<Fate>);

#[async_trait]
impl Backend for Mortal {
    async fn apply(&self, at: At, op: &Op) -> Result<Applied, Error> {
        let call = self.1.calls.fetch_add(1, Ordering::Relaxed);
        if call > self.1.at || (call == self.1.at && self.1.death == Death::Before) {
            self.1.died.notify_one();
            std::future::pending::<()>().await;
        }
        let applied = self.0.apply(at, op).await;
        if call == self.1.at {
            self.1.died.notify_one();
            std::future::pending::<()>().await;
        }
        applied
    }

    fn queue_name(&self) -> Option<&QueueName> {
        self.0.queue_name()
    }

    async fn apply_durably(&self, at: At, op: &Op, _: Durability) -> Result<Applied, Error> {
        self.apply(at, op).await
    }
}

#[async_trait]
impl Wakeup for Mortal {
    async fn wait(&self, timeout: Duration) -> Result<bool, Error> {
        self.0.wait(timeout).await
    }
}

fn id(text: &str) -> MessageId {
    MessageId::try_from(text).unwrap()
}

fn queue(backend: &Arc<dyn QueueBackend>) -> Queue<u64> {
    Queue::new(Arc::clone(backend))
}

async fn send(draft: Draft) {
    assert!(draft.send().await.unwrap().is_accepted());
}

async fn apply(backend: &Arc<dyn QueueBackend>, op: Op) -> Reply {
    backend.apply(At::Server, &op).await.unwrap().reply
}

/// Claims up to `max` messages.
async fn claim(backend: &Arc<dyn QueueBackend>, max: usize) -> Vec<(MessageId, Lease)> {
    let token = ClaimId::from_bytes(Uuid::new_v4().into_bytes());
    let consumer = "worker".parse().unwrap();
    let claim = Claim::new(consumer, token, max, Millis::new(60_000).unwrap());
    let Reply::Claim(claimed) = apply(backend, Op::Claim(claim)).await else { panic!() };
    claimed.deliveries.into_iter().map(|it| (it.message.info.id, it.lease)).collect()
}

async fn settle(backend: &Arc<dyn QueueBackend>, end: Settlement) {
    apply(backend, Op::Settle(vec![end])).await;
}

/// Handles up to `max` messages.
async fn work(
    backend: &Arc<dyn QueueBackend>,
    max: usize,
    handled: &mut BTreeMap<MessageId, usize>,
) {
    for (id, lease) in claim(backend, max).await {
        settle(backend, Settlement::new(id.clone(), lease, Outcome::Ack)).await;
        *handled.entry(id).or_default() += 1;
    }
}

/// The messages that every move has: some are ready, others are due much later.
fn messages() -> Vec<NewMessage> {
    let later = |n: u64| Schedule::At(Timestamp::from_ms(4_102_444_800_000 + n).unwrap());
    let mut headers = Headers::new();
    headers.set_kind("a-kind").unwrap();
    headers.set("tenant", "7").unwrap();
    let mut all = Vec::new();
    for n in 0..7 {
        let ready = NewMessage::new(id(&format!("ready-{n}")), format!("ready {n}"));
        let past = Schedule::At(Timestamp::from_ms(1_700_000_000_000 + n).unwrap());
        all.push(ready.schedule(past).group((n % 2 == 1).then(|| "a-group".parse().unwrap())));
        let late = NewMessage::new(id(&format!("later-{n}")), format!("later {n}"));
        let late = late.schedule(later(n)).headers(headers.clone()).max_failures(3).max_crashes(2);
        let group = (n % 2 == 0).then(|| "b-group".parse().unwrap());
        let priority = if group.is_none() { Priority::High } else { Priority::Normal };
        all.push(late.group(group).priority(priority).expires(later(1_000 + n)));
    }
    // Never delivered, and too late to be set aside.
    all.push(NewMessage::new(id("never"), "x").schedule(Schedule::At(Timestamp::MAX)));
    all
}

/// Puts the messages into a queue, and three others that cannot be moved at once. Returns the lease
/// of one of these.
async fn fill(from: &Arc<dyn QueueBackend>) -> Lease {
    let now = |name| NewMessage::new(id(name), name.to_owned()).max_failures(1);
    apply(from, Op::Enqueue(vec![now("dead"), now("saved"), now("leased")])).await;
    let mut leases: BTreeMap<_, _> = BTreeMap::new();
    while leases.len() < 3 {
        leases.extend(claim(from, 3).await);
    }
    let end = |name, outcome| Settlement::new(id(name), leases[&id(name)], outcome);
    settle(from, end("dead", Outcome::Reject { error: "no".to_owned() })).await;
    let save = Save::new(1).checkpoint(bytes::Bytes::from("half"));
    let tomorrow = Schedule::In(Millis::new(86_400_000).unwrap());
    settle(from, end("saved", Outcome::Snooze { schedule: tomorrow }).save(save)).await;
    apply(from, Op::Enqueue(messages())).await;
    leases[&id("leased")]
}

/// Moves everything, with a process that dies at one of its calls. Returns whether it has died.
async fn killed(
    from: &Arc<dyn QueueBackend>,
    to: &Arc<dyn QueueBackend>,
    at: usize,
    death: Death,
) -> bool {
    let what = format!("{death:?} call {at}");
    let lease = fill(from).await;
    let fate = Fate { calls: AtomicUsize::new(0), at, death, died: Notify::new() };
    let fate = Arc::new(fate);
    let mortal = |it: &Arc<dyn QueueBackend>| -> Arc<dyn QueueBackend> {
        Arc::new(Mortal(Arc::clone(it), Arc::clone(&fate)))
    };
    let (source, target) = (queue(&mortal(from)), queue(&mortal(to)));
    let mut transfer = source.transfer_to(&target).unwrap();
    let has_died = tokio::select! {
        biased;
        () = fate.died.notified() => true,
        moved = transfer.pass() => { moved.unwrap(); false }
    };
    drop(transfer);
    let mut handled = BTreeMap::new();
    for backend in [from, to, from, to] {
        work(backend, 2, &mut handled).await;
    }
    let mut transfer = queue(from).transfer_to(&queue(to)).unwrap();
    while transfer.pass().await.unwrap() > 0 {}
    let left = |transfer: &Transfer| {
        transfer.left().map(|(id, why)| (id.to_string(), why)).collect::<Vec<_>>()
    };
    let saved = ("saved".to_owned(), "it has a checkpoint, which only a worker can store");
    assert_eq!(left(&transfer), [saved], "{what}");
    // The lease ends, and its message is moved like the others.
    settle(from, Settlement::new(id("leased"), lease, Outcome::Release)).await;
    assert_eq!(transfer.pass().await.unwrap(), 1, "{what}");
    let Reply::Stats(stats) = apply(from, Op::Stats).await else { panic!() };
    let counts = (stats.ready, stats.scheduled, stats.leased, stats.dead);
    assert_eq!(counts, (0, 1, 0, 1), "{what}: what cannot be moved stays");
    for _ in 0..12 {
        work(to, 4, &mut handled).await;
    }
    let ready = (0..7).map(|n| id(&format!("ready-{n}"))).chain([id("leased")]);
    let once: BTreeMap<_, _> = ready.map(|it| (it, 1)).collect();
    assert_eq!(handled, once, "{what}");
    for sent in messages().into_iter().filter(|it| !once.contains_key(&it.id)) {
        let Reply::Get(found) = apply(to, Op::Get(vec![sent.id.clone()])).await else { panic!() };
        let [Found::Live(found)] = &found[..] else { panic!("{what}: {} is lost", sent.id) };
        let info = &found.info;
        let again = NewMessage::new(info.id.clone(), found.payload.clone())
            .headers(found.headers.clone())
            .group(info.group.clone())
            .priority(info.priority)
            .schedule(Schedule::At(info.due))
            .expires(info.expires_at.map(Schedule::At))
            .max_failures(info.max_failures)
            .max_crashes(info.max_crashes);
        assert_eq!(again, sent, "{what}");
    }
    has_died
}

/// A place for queues, with a name for messages of failures.
async fn places() -> Vec<(&'static str, Connection, Box<dyn std::any::Any>)> {
    let memory = delayline::connect("memory:").await.unwrap();
    let mut all: Vec<(_, _, Box<dyn std::any::Any>)> = vec![("memory", memory, Box::new(()))];
    #[cfg(feature = "file")]
    {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("file:{}", directory.path().display());
        all.push(("file", delayline::connect(&url).await.unwrap(), Box::new(directory)));
    }
    for (name, driver) in [
        #[cfg(feature = "redis")]
        ("redis", delayline::RedisClient::Redis),
        #[cfg(feature = "fred")]
        ("fred", delayline::RedisClient::Fred),
    ] {
        let server = delayline_test_server::Server::start();
        let connect = Connect::new(&server.url()).unwrap().client(driver);
        all.push((name, connect.connect().await.unwrap(), Box::new(server)));
    }
    all
}

#[tokio::test]
async fn a_move_that_is_killed_anywhere_loses_nothing_and_repeats_nothing() {
    let places = places().await;
    // Each place is once the source and once the target, and sharded queues are on both sides.
    for (turn, (name, place, _)) in places.iter().enumerate() {
        let (other_name, other, _) = &places[(turn + 1) % places.len()];
        println!("{name} to {other_name}");
        for (at, death) in (0..).flat_map(|at| [(at, Death::Before), (at, Death::After)]) {
            let plain = place.backend(&format!("a-{at}-{death:?}"));
            let sharded = other.backend(&format!("b-{at}-{death:?}")).shards(3);
            let (from, to) = (plain.await.unwrap(), sharded.await.unwrap());
            let has_died = match turn % 2 {
                0 => killed(&from, &to, at, death).await,
                _ => killed(&to, &from, at, death).await,
            };
            if !has_died {
                assert!(at > 10, "all calls of a pass, not {at}");
                break;
            }
        }
    }
}

#[tokio::test]
async fn messages_return_to_a_queue_that_they_have_left() {
    for (name, place, _) in places().await {
        let [a, b]: [Queue<u64>; 2] =
            [place.queue("a").await.unwrap(), place.queue("b").shards(2).await.unwrap()];
        send(a.message(&7).id("order-7")).await;
        for (from, to) in [(&a, &b), (&b, &a), (&a, &b)] {
            assert_eq!(from.transfer_to(to).unwrap().pass().await.unwrap(), 1, "{name}");
            assert_eq!(from.stats().await.unwrap().ready, 0, "{name}");
            assert_eq!(to.stats().await.unwrap().ready, 1, "{name}");
        }
        // A message that the other queue has handled is not created again.
        send(a.message(&7).id("order-8")).await;
        send(b.message(&7).id("order-8")).await;
        send(a.message(&1).id("order-9")).await;
        send(b.message(&2).id("order-9")).await;
        let mut handled = BTreeMap::new();
        for _ in 0..3 {
            work(b.backend(), 9, &mut handled).await;
        }
        assert_eq!(handled.len(), 3, "{name}");
        let mut transfer = a.transfer_to(&b).unwrap();
        assert_eq!(transfer.pass().await.unwrap(), 1, "{name}");
        let left: Vec<_> = transfer.left().collect();
        let order_9 = id("order-9");
        let conflict = "the new queue knows its id with different content";
        assert_eq!(left, [(&order_9, conflict)], "{name}");
        let waiting = a.stats().await.unwrap();
        assert_eq!((waiting.ready, waiting.scheduled), (1, 0), "{name}: it is not set aside");
        assert_eq!(b.stats().await.unwrap().ready, 0, "{name}");
    }
}

#[tokio::test]
async fn the_same_queue_is_refused_under_any_address() {
    let server = delayline_test_server::Server::start();
    let connect = async || delayline::connect(&server.url()).await.unwrap();
    let (one, two) = (connect().await, connect().await);
    let open = async |connection: &Connection| connection.queue::<u64>("orders").await.unwrap();
    let error = open(&one).await.transfer_to(&open(&one).await).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Invalid(_)), "{error}");
    let orders = open(&one).await;
    send(orders.message(&7).id("order-7")).await;
    let mut transfer = orders.transfer_to(&open(&two).await).unwrap();
    let error = transfer.pass().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the target \"orders\" is not valid: a transfer needs two queues, and this is the queue to \
         move from"
    );
    assert_eq!(orders.stats().await.unwrap().ready, 1, "nothing has moved");
}

/// The members of a message are wherever they are when it moves.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_waits_for_others_across_a_move() {
    for (name, place, _) in places().await {
        let [a, b]: [Queue<u64>; 2] =
            [place.queue("a").await.unwrap(), place.queue("b").shards(2).await.unwrap()];
        for n in 0..4 {
            send(a.message(&n).id(format!("part-{n}"))).await;
        }
        let whole = a.message(&9).id("whole").after((0..4).map(|n| format!("part-{n}")));
        send(whole).await;
        // One member ends here, and one is leased while the others move.
        let mut held = Vec::new();
        while held.len() < 2 {
            held.extend(claim(a.backend(), 2 - held.len()).await);
        }
        let (last, lease) = held.pop().unwrap();
        let (first, of_first) = held.pop().unwrap();
        settle(a.backend(), Settlement::new(first, of_first, Outcome::Ack)).await;
        let mut transfer = a.transfer_to(&b).unwrap();
        assert_eq!(transfer.pass().await.unwrap(), 2, "{name}");
        assert_eq!(transfer.left().count(), 1, "{name}: it is set aside");
        let release = Settlement::new(last, lease, Outcome::Release);
        settle(a.backend(), release).await;
        let mut moved = 2;
        while moved < 4 {
            moved += transfer.pass().await.unwrap();
        }
        let worker = Worker::builder(b).until_empty(true).build().unwrap();
        let summary = worker
            .run(async |job: Job<u64>| match (job.payload(), job.members()) {
                (9, Some(members)) if members.why == Why::AllEnded && members.all_acked() => Ok(()),
                (0..4, None) => Ok(()),
                (payload, members) => Err(format!("{payload}: {members:?}")),
            })
            .await;
        assert_eq!((summary.acked, summary.failed), (4, 0), "{name}");
        let waiting = Op::List(List::new(Status::Scheduled, 9));
        let Reply::List(page) = apply(a.backend(), waiting).await else { panic!() };
        assert_eq!(page.messages, [], "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_goes_on_after_a_move_as_it_was() {
    const HOUR: Duration = Duration::from_secs(3_600);
    let start = tokio::time::Instant::now();
    let [from, to]: [Queue<u64>; 2] = [Queue::new(Faulty::new()), Queue::new(Faulty::new())];
    // The queue forgets the end of a member before the move.
    send(from.message(&0).id("part")).await;
    send(from.message(&1).id("failed").after(["part"])).await;
    send(from.message(&2).id("left").after(["never"]).wait_at_most(4 * HOUR)).await;
    let worker = Worker::builder(from.clone()).build().unwrap();
    let working = worker.run(async |job: Job<u64>| {
        let failed = delayline::Outcome::retry_in(4 * HOUR, "busy");
        Ok::<_, &str>(if *job.payload() == 1 { failed } else { delayline::Outcome::Ack })
    });
    assert!(tokio::time::timeout(3 * HOUR, working).await.is_err());
    assert_eq!(from.transfer_to(&to).unwrap().pass().await.unwrap(), 2);
    let worker = Worker::builder(to).until_empty(true).build().unwrap();
    let working = worker.run(move |job: Job<u64>| async move {
        assert!((4 * HOUR..4 * HOUR + HOUR / 60).contains(&start.elapsed()));
        match (job.payload(), job.members().unwrap().why) {
            (1, Why::AllEnded) | (2, Why::TimeLimit) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    let summary = working.await;
    assert_eq!((summary.acked, summary.failed), (2, 0));
}

/// A message whose members have ended is sent with their queue, so the target is asked.
#[tokio::test(start_paused = true)]
async fn nothing_stays_set_aside_that_was_certainly_not_sent() {
    let target = Faulty::with_plan(|op| match op {
        Op::Progress(ids) if ids.contains(&id("part")) => Fault::Denied,
        _ => Fault::None,
    });
    let connection = delayline::connect("memory:").await.unwrap();
    let from: Queue<u64> = connection.queue("from").await.unwrap();
    send(from.message(&1).id("part")).await;
    let held = claim(from.backend(), 1).await.remove(0);
    settle(from.backend(), Settlement::new(held.0, held.1, Outcome::Ack)).await;
    send(from.message(&9).id("whole").after(["part"])).await;
    send(from.message(&2).id("other")).await;
    let mut transfer = from.transfer_to(&Queue::<u64>::new(target.clone())).unwrap();
    while transfer.page().await.is_ok() {}
    // The failure of one does not hold up the other.
    let delayline::Found::Live(whole) = from.get("whole").await.unwrap() else { panic!() };
    assert_eq!(whole.info.state, MessageState::Ready);
    let other = from.get("other").await.unwrap();
    assert!(matches!(other, delayline::Found::Finished(Status::Cancelled)), "{other:?}");
}

/// A cancelled message is never delivered, and a changed one not by both queues.
#[tokio::test(start_paused = true)]
async fn a_message_that_changes_during_an_interrupted_move_is_in_one_queue() {
    for is_cancelled in [true, false] {
        a_message_changes_during_an_interrupted_move(is_cancelled).await;
    }
}

async fn a_message_changes_during_an_interrupted_move(is_cancelled: bool) {
    let backend = Faulty::new();
    let from: Queue<u64> = Queue::new(backend.clone());
    let to: Queue<u64> = delayline::connect("memory:").await.unwrap().queue("to").await.unwrap();
    send(from.message(&1).id("a")).await;
    // Interrupted before its last step.
    backend.set_plan(|op| if matches!(op, Op::Cancel(_)) { Fault::Denied } else { Fault::None });
    from.transfer_to(&to).unwrap().pass().await.unwrap_err();
    if is_cancelled {
        assert_eq!(to.cancel("a").await.unwrap(), delayline::Cancelled::Cancelled);
    } else {
        assert!(to.message(&2).id("a").or_replace().send().await.unwrap().is_accepted());
    }
    backend.set_plan(|_| Fault::None);
    let created = async || to.stats().await.unwrap().totals.enqueued;
    let before = created().await;
    let mut transfer = from.transfer_to(&to).unwrap();
    for _ in 0..2 {
        assert_eq!((transfer.pass().await.unwrap(), transfer.left().count()), (0, 1));
        assert_eq!((from.stats().await.unwrap().ready, created().await), (0, before));
    }
    // An operator who wants it moved all the same says so.
    from.reschedule_in("a", Duration::ZERO).await.unwrap();
    assert_eq!(transfer.pass().await.unwrap(), u64::from(is_cancelled));
    assert_eq!(created().await, before + u64::from(is_cancelled));
    // With another content than there, it is delivered where it is.
    assert_eq!(from.stats().await.unwrap().ready, u64::from(!is_cancelled));
}

/// A moved message needs one header more.
#[tokio::test(start_paused = true)]
async fn a_waiting_message_with_all_headers_stops_no_other() {
    let connection = delayline::connect("memory:").await.unwrap();
    let from: Queue<u64> = connection.queue("from").await.unwrap();
    let to: Queue<u64> = connection.queue("to").await.unwrap();
    let names = (1..limits::MAX_HEADERS).map(|n| format!("h-{n}"));
    let full = names.fold(from.message(&1).id("full"), |draft, name| draft.header(name, "x"));
    send(full.after(["absent"])).await;
    send(from.message(&2).id("other")).await;
    let delayline::Found::Live(before) = from.get("full").await.unwrap() else { panic!() };
    let mut transfer = from.transfer_to(&to).unwrap();
    assert_eq!(transfer.pass().await.unwrap(), 1);
    assert_eq!(transfer.pass().await.unwrap(), 0);
    let left: Vec<_> = transfer.left().map(|(id, why)| format!("{id}: {why}")).collect();
    assert!(left.len() == 1 && left[0].ends_with("room for the header of its move"), "{left:?}");
    let delayline::Found::Live(after) = from.get("full").await.unwrap() else { panic!() };
    assert_eq!(before.info.due, after.info.due);
}
