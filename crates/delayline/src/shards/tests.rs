//! Shards in memory: one shard behaves like a plain queue, and several like several states and the
//! map.

#![allow(clippy::panic, clippy::unwrap_used, reason = "test code")]

mod away;
mod opening;
mod repeating;
mod results;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use delayline_core::{
    Cancelled, Claim, ClaimId, ConsumerName, Delivery, Extend, Extended, Found, List, MessageState,
    Millis, Outcome, Position, Priority, Purged, Redrive, Redriven, Reschedule, Rescheduled,
    Schedule, Settled, Settlement, State, Stats, Status,
};
use delayline_memory::MemoryBackend;
use delayline_testkit::Fixture;

use super::*;

/// A backend that remembers its calls, and loses its replies while it is silent.
#[derive(Debug)]
struct Recorded(MemoryBackend, Mutex<Vec<Op>>, AtomicBool);

#[async_trait]
impl Backend for Recorded {
    async fn apply(&self, at: At, op: &Op) -> Result<Applied, Error> {
        self.1.lock().unwrap().push(op.clone());
        let applied = self.0.apply(at, op).await;
        if self.2.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        applied
    }
}

#[async_trait]
impl Wakeup for Recorded {
    async fn wait(&self, timeout: Duration) -> Result<bool, Error> {
        self.0.wait(timeout).await
    }

    async fn ring(&self) -> Result<(), Error> {
        self.0.ring().await
    }
}

fn shards(number: u32) -> (Shards, Vec<Arc<Recorded>>) {
    let queue = QueueName::new("q").unwrap();
    let names = (0..number).map(|number| queue.shard(number).unwrap());
    let recorded =
        || Arc::new(Recorded(MemoryBackend::new(), Mutex::default(), AtomicBool::new(false)));
    let all: Vec<_> = names.map(|name| (name, recorded())).collect();
    let shards = all.iter().cloned().map(|(name, backend)| Shard { name, backend }).collect();
    (Shards::new(queue, shards), all.into_iter().map(|(_, backend)| backend).collect())
}

/// A place that fails with this error; after a timeout, the call has been executed.
#[derive(Debug)]
struct Failing(MemoryBackend, Mutex<Option<ErrorKind>>);

#[async_trait]
impl Backend for Failing {
    async fn apply(&self, at: At, op: &Op) -> Result<Applied, Error> {
        let failure = self.1.lock().unwrap().clone();
        let applied = match failure {
            None | Some(ErrorKind::Timeout) => Some(self.0.apply(at, op).await?),
            _ => None,
        };
        failure.map_or_else(|| applied.ok_or_else(unexpected), |kind| Err(Error::new(kind)))
    }
}

#[async_trait]
impl Wakeup for Failing {
    async fn wait(&self, timeout: Duration) -> Result<bool, Error> {
        self.0.wait(timeout).await
    }

    async fn ring(&self) -> Result<(), Error> {
        self.0.ring().await
    }
}

/// Two such places, and the queue of which they are the shards.
fn failing() -> (Shards, [Arc<Failing>; 2]) {
    let queue = QueueName::new("q").unwrap();
    let place = || Arc::new(Failing(MemoryBackend::new(), Mutex::default()));
    let all = [place(), place()];
    let shard = |(number, backend): (u32, &Arc<Failing>)| Shard {
        name: queue.shard(number).unwrap(),
        backend: Arc::clone(backend) as _,
    };
    let shards = Shards::new(queue.clone(), (0..).zip(&all).map(shard).collect());
    (shards, all)
}

/// A queue of one shard that behaves like a plain queue: relays go to the shard, and stats have no
/// skew. So do lists: those of a queue with shards are not of one instant.
#[derive(Debug)]
struct One(Shards);

struct Ones;

#[async_trait]
impl Backend for One {
    async fn apply(&self, at: At, op: &Op) -> Result<Applied, Error> {
        match op {
            Op::Relay(_) | Op::List(_) => self.0.shards[0].backend.apply(at, op).await,
            op => {
                let mut applied = self.0.apply(at, op).await?;
                if let Reply::Stats(stats) = &mut applied.reply {
                    assert_eq!(stats.shard_skew.take(), Some(Millis::ZERO));
                }
                Ok(applied)
            }
        }
    }
}

#[async_trait]
impl Wakeup for One {
    async fn wait(&self, timeout: Duration) -> Result<bool, Error> {
        self.0.wait(timeout).await
    }

    async fn ring(&self) -> Result<(), Error> {
        self.0.ring().await
    }
}

#[async_trait]
impl Fixture for Ones {
    async fn fresh(&self) -> Result<Arc<dyn QueueBackend>, Error> {
        Ok(Arc::new(One(shards(1).0)))
    }
}

/// Splitting and merging change nothing: the whole suite, with random histories and faults.
#[test]
fn one_shard_is_a_plain_queue() {
    let runtime = Arc::new(tokio::runtime::Runtime::new().unwrap());
    let seed = fastrand::u64(..);
    for (name, trial) in delayline_testkit::trials(runtime, Ones, 100, seed) {
        println!("{name}, seed {seed}");
        trial();
    }
}

/// Three shards, and the three states and the map that they must equal.
struct Several {
    shards: Shards,
    recorded: Vec<Arc<Recorded>>,
    states: Vec<State>,
    now: Timestamp,
    leased: Vec<Delivery>,
    claims: u8,
}

impl Several {
    fn new() -> Self {
        let (shards, recorded) = shards(3);
        let states = vec![State::new(); 3];
        let now = Timestamp::from_ms(1_800_000_000_000).unwrap();
        Self { shards, recorded, states, now, leased: Vec::new(), claims: 0 }
    }

    async fn apply(&self, op: &Op) -> Reply {
        self.shards.apply(At::Fixed(self.now), op).await.unwrap().reply
    }

    /// Returns the reply of the states to one item: that of its home, or else of the first state
    /// that knows it.
    fn expect(&mut self, home: usize, op: &Op, is_unknown: impl Fn(&Reply) -> bool) -> Reply {
        let now = self.now;
        let own = self.states[home].apply(now, op).reply;
        if !is_unknown(&own) {
            return own;
        }
        let others = (0..3).filter(|&other| other != home);
        let all: Vec<_> = others.map(|other| self.states[other].apply(now, op).reply).collect();
        all.into_iter().find(|reply| !is_unknown(reply)).unwrap_or(own)
    }

    async fn claim(&mut self, max: usize) {
        self.claims = self.claims.wrapping_add(1);
        let consumer = ConsumerName::new(format!("c{}", self.claims % 3)).unwrap();
        let id = ClaimId::from_bytes([self.claims; ClaimId::BYTES]);
        let op = Op::Claim(Claim::new(consumer, id, max, Millis::saturating(40)));
        self.recorded.iter().for_each(|it| it.1.lock().unwrap().clear());
        let Reply::Claim(claimed) = self.apply(&op).await else { panic!("no claim") };
        let mut expected = BTreeSet::new();
        for (state, recorded) in self.states.iter_mut().zip(&self.recorded) {
            for part in recorded.1.lock().unwrap().iter() {
                let Reply::Claim(part) = state.apply(self.now, part).reply else { panic!() };
                expected.extend(part.deliveries.into_iter().map(|it| it.message.info.id));
            }
        }
        let ids: Vec<_> = claimed.deliveries.iter().map(|it| it.message.info.id.clone()).collect();
        assert!(ids.len() <= max, "{} of {max}", ids.len());
        assert_eq!(ids.iter().cloned().collect::<BTreeSet<_>>(), expected);
        let next = self.states.iter().filter_map(State::next_claimable).min();
        let is_left = next.is_some_and(|next| next <= self.now);
        assert!(!ids.is_empty() || !is_left || claimed.more, "a shard starves");
        // A shard with messages in lanes replies with the beginning of time, which means now.
        let [replied, next] = [claimed.next, next].map(|it| it.map(|it| it.max(self.now)));
        let is_in_time = replied.is_some_and(|replied| Some(replied) <= next);
        assert!(next.is_none() || is_in_time, "the next claim would be too late");
        self.leased.extend(claimed.deliveries);
    }

    /// Ends a lease, with exactly one call, at the shard that has granted it.
    async fn settle(&mut self, outcome: Outcome) {
        if self.leased.is_empty() {
            return;
        }
        let delivery = self.leased.swap_remove(fastrand::usize(..self.leased.len()));
        let info = &delivery.message.info;
        let home = place_of(info.group.as_ref(), &info.id, 3);
        let lease = lease::plain(delivery.lease, 3);
        let op = |lease| Op::Settle(vec![Settlement::new(info.id.clone(), lease, outcome.clone())]);
        let missing = Reply::Settle(vec![Settled::Missing]);
        let own = op(lease);
        let expected = self.expect(home, &own, |reply| *reply == missing);
        self.recorded.iter().for_each(|it| it.1.lock().unwrap().clear());
        let reply = self.apply(&op(delivery.lease)).await;
        assert_eq!(reply, expected);
        if matches!(&reply, Reply::Settle(all) if matches!(all[..], [Settled::Done { .. }])) {
            let calls: Vec<_> = self.recorded.iter().map(|it| it.1.lock().unwrap().len()).collect();
            assert_eq!((calls[home], calls.iter().sum::<usize>()), (1, 1), "{calls:?}");
        }
    }

    async fn check(&self) {
        let mut sum = Stats::default();
        let (mut infos, mut ages) = (Vec::new(), Vec::new());
        for state in &self.states {
            let mut state = state.clone();
            let Reply::Stats(one) = state.apply(self.now, &Op::Stats).reply else { panic!() };
            sums::add(&mut sum, &one);
            ages.push(one.earliest_due.map_or(0, |due| self.now.since(due).as_millis()));
            for status in STATUSES {
                let op = Op::List(List::new(status, 100));
                let Reply::List(page) = state.apply(self.now, &op).reply else { panic!() };
                infos.extend(page.messages);
            }
        }
        let skew = ages.iter().max().unwrap() - ages.iter().min().unwrap();
        sum.shard_skew = Some(Millis::saturating(skew.try_into().unwrap()));
        assert_eq!(self.apply(&Op::Stats).await, Reply::Stats(Box::new(sum)));
        for status in STATUSES {
            let (mut listed, mut after) = (Vec::new(), None);
            loop {
                let op = Op::List(List::new(status, 3).after(after));
                let Reply::List(page) = self.apply(&op).await else { panic!() };
                assert!(page.messages.len() <= 3);
                listed.extend(page.messages);
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            let expected = infos.iter().filter(|info| info.state.status() == status);
            let mut expected: Vec<_> = expected.cloned().collect();
            assert_eq!(listed.len(), expected.len(), "{status:?}");
            let key = |info: &MessageInfo| {
                let shard = place_of(info.group.as_ref(), &info.id, 3);
                let position = pages::position_of(status, info);
                (position.is_none(), position, info.group.is_some(), shard)
            };
            expected.sort_by_key(key);
            let keyed = |infos: &[MessageInfo]| {
                infos.iter().map(|info| (key(info).1, key(info).3)).collect::<Vec<_>>()
            };
            assert_eq!(keyed(&listed), keyed(&expected), "{status:?}");
        }
        let (mut examined, mut after) = (0, None::<Position>);
        loop {
            let op = Op::Check(delayline_core::Check::new(2).after(after));
            let Reply::Check(page) = self.apply(&op).await else { panic!() };
            assert_eq!(page.findings, []);
            examined += page.examined;
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(examined, sum.scheduled + sum.ready + sum.leased + sum.dead);
    }
}

const STATUSES: [Status; 4] = [Status::Scheduled, Status::Ready, Status::Leased, Status::Dead];

/// Random operations on three shards have the results of three states and the map. Lists and audits
/// see every message once, in order.
#[tokio::test]
async fn shards_are_states_and_a_map() {
    // With the first seed, a redrive by an id finds a message in one shard and a dead letter in
    // another one.
    for seed in [15_632_137_638_140_830_208, fastrand::u64(..)] {
        println!("seed {seed}");
        fastrand::seed(seed);
        for _ in 0..20 {
            let mut all = Several::new();
            for _ in 0..60 {
                all.now = all.now.after(Millis::saturating(fastrand::u64(..8)));
                random_step(&mut all).await;
                all.check().await;
            }
        }
    }
}

async fn random_step(all: &mut Several) {
    let id = || MessageId::try_from(format!("m{}", fastrand::u8(..14))).unwrap();
    let schedule = Schedule::In(Millis::saturating(fastrand::u64(..12)));
    match fastrand::u8(..12) {
        0..=3 => {
            let ids: BTreeSet<_> = (0..fastrand::usize(1..6)).map(|_| id()).collect();
            let message = |id| {
                let message = NewMessage::new(id, "").schedule(schedule).max_failures(2);
                match fastrand::u8(..4) {
                    0 => message.priority(Priority::High),
                    group @ 1..=2 => message.group(Group::new(format!("g{group}")).unwrap()),
                    _ => message,
                }
            };
            let messages: Vec<_> = ids.into_iter().map(message).collect();
            let reply = all.apply(&Op::Enqueue(messages.clone())).await;
            let one = |message: NewMessage| {
                let home = place_of(message.group.as_ref(), &message.id, 3);
                let Reply::Enqueue(one) =
                    all.states[home].apply(all.now, &Op::Enqueue(vec![message])).reply
                else {
                    panic!()
                };
                one
            };
            assert_eq!(reply, Reply::Enqueue(messages.into_iter().flat_map(one).collect()));
        }
        4..=6 => all.claim(fastrand::usize(1..9)).await,
        7 => all.settle(Outcome::Ack).await,
        8 => all.settle(Outcome::Retry { schedule, error: "no".to_owned() }).await,
        9 => all.settle(Outcome::Reject { error: "no".to_owned() }).await,
        _ => {
            let (id, other) = (id(), id());
            let home = place_of(None, &id, 3);
            let lease = all.leased.first().map(|it| (it.message.info.id.clone(), it.lease));
            let (op, unknown) = match fastrand::u8(..6) {
                0 => (Op::Cancel(vec![id]), Reply::Cancel(vec![Cancelled::NotFound])),
                1 => (
                    Op::Reschedule(vec![Reschedule::new(id, schedule)]),
                    Reply::Reschedule(vec![Rescheduled::NotFound]),
                ),
                2 => (
                    Op::Redrive(Redrive::new(vec![id], schedule)),
                    Reply::Redrive(vec![Redriven::NotFound]),
                ),
                3 => (Op::Purge(vec![id]), Reply::Purge(vec![Purged::NotFound])),
                4 => (Op::Get(vec![id]), Reply::Get(vec![Found::Unknown])),
                _ => {
                    let Some((id, lease)) = lease.filter(|(id, _)| *id != other) else { return };
                    let info = &all.leased[0].message.info;
                    let home = place_of(info.group.as_ref(), &id, 3);
                    let extend = |lease| {
                        Op::Extend(Extend::new(vec![(id.clone(), lease)], Millis::saturating(30)))
                    };
                    let own = extend(lease::plain(lease, 3));
                    let expected =
                        all.expect(home, &own, |it| *it == Reply::Extend(vec![Extended::Missing]));
                    assert_eq!(all.apply(&extend(lease)).await, expected);
                    return;
                }
            };
            let expected = all.expect(home, &op, |reply| *reply == unknown);
            assert_eq!(all.apply(&op).await, expected, "{op:?}");
        }
    }
}

/// A shard with an endless backlog does not keep claims of one message from another shard, of whose
/// message this process does not know.
#[tokio::test(start_paused = true)]
async fn no_shard_starves() {
    let (shards, recorded) = shards(4);
    let ids = (0..).map(|n| MessageId::try_from(format!("m{n}")).unwrap());
    let mut in_first = ids.filter(|id| place_of(None, id, 4) == 0);
    let lost = MessageId::try_from("of another process").unwrap();
    for n in 0_u16..300 {
        // The clock of the shards advances like that of the process.
        let now = Timestamp::from_ms(1_800_000_000_000 + u64::from(n) * 10).unwrap();
        let message = NewMessage::new(in_first.next().unwrap(), "");
        shards.apply(At::Fixed(now), &Op::Enqueue(vec![message])).await.unwrap();
        if n == 50 {
            let message = NewMessage::new(lost.clone(), "");
            recorded[2].apply(At::Fixed(now), &Op::Enqueue(vec![message])).await.unwrap();
        }
        let mut id = [0; ClaimId::BYTES];
        id[..2].copy_from_slice(&n.to_be_bytes());
        let consumer = ConsumerName::new("c").unwrap();
        let lease = Millis::saturating(60_000);
        let claim = Op::Claim(Claim::new(consumer, ClaimId::from_bytes(id), 1, lease));
        let Reply::Claim(claimed) = shards.apply(At::Fixed(now), &claim).await.unwrap().reply
        else {
            panic!()
        };
        if claimed.deliveries.iter().any(|it| it.message.info.id == lost) {
            assert!(n <= 50 + 105, "it came with claim {n}");
            return;
        }
        tokio::time::advance(Duration::from_millis(10)).await;
    }
    panic!("the message was not delivered");
}

/// Clocks of nodes may differ, because the age of a message is by the clock of its shard.
#[tokio::test]
async fn clocks_that_differ_are_no_skew() {
    let (queue, now) =
        (QueueName::new("q").unwrap(), Timestamp::from_ms(1_800_000_000_000).unwrap());
    let clocks = [now.after(Millis::saturating(10_000)), now];
    let shard = |(number, clock)| {
        let name = queue.shard(number).unwrap();
        Shard { name, backend: Arc::new(MemoryBackend::with_manual_clock(clock)) }
    };
    let shards = Shards::new(queue.clone(), (0..).zip(clocks).map(shard).collect());
    let message = |n| NewMessage::new(MessageId::try_from(format!("m{n}")).unwrap(), "");
    let messages: Vec<_> = (0..20).map(message).collect();
    shards.apply(At::Server, &Op::Enqueue(messages)).await.unwrap();
    let Reply::Stats(stats) = shards.apply(At::Server, &Op::Stats).await.unwrap().reply else {
        panic!()
    };
    assert_eq!((stats.ready, stats.shard_skew), (20, Some(Millis::ZERO)));
    let lease = Millis::saturating(30_000);
    let claim =
        Claim::new(ConsumerName::new("c").unwrap(), ClaimId::from_bytes([1; 16]), 20, lease);
    let applied = shards.apply(At::Server, &Op::Claim(claim)).await.unwrap();
    let Reply::Claim(claimed) = applied.reply else { panic!() };
    assert!(claimed.deliveries.len() > 10, "they are of both");
    for delivery in claimed.deliveries {
        let MessageState::Leased { deadline, .. } = delivery.message.info.state else { panic!() };
        assert_eq!(deadline, applied.at.after(lease), "by the clock of the reply");
    }
}

/// A place whose calls take turns at random, and some of which may lose their request or reply.
#[derive(Debug)]
struct Unsteady(MemoryBackend, Arc<Mutex<fastrand::Rng>>, bool);

#[async_trait]
impl Backend for Unsteady {
    async fn apply(&self, at: At, op: &Op) -> Result<Applied, Error> {
        let draw = |most| self.1.lock().unwrap().u32(0..most);
        for _ in 0..draw(6) {
            tokio::task::yield_now().await;
        }
        let lost = if self.2 { draw(300) } else { u32::MAX };
        let applied = if lost == 0 { None } else { Some(self.0.apply(at, op).await?) };
        for _ in 0..draw(6) {
            tokio::task::yield_now().await;
        }
        let lost_reply = Error::with_detail(ErrorKind::Timeout, "lost");
        applied.filter(|_| lost != 1).ok_or(lost_reply)
    }
}

#[async_trait]
impl Wakeup for Unsteady {
    async fn wait(&self, timeout: Duration) -> Result<bool, Error> {
        self.0.wait(timeout).await
    }

    async fn ring(&self) -> Result<(), Error> {
        self.0.ring().await
    }
}

/// A small batch is in one shard or two, and all shards get about as many messages.
#[tokio::test(start_paused = true)]
async fn ids_that_are_generated_together_are_of_one_shard() {
    let generator = Ids::of(6);
    let batch = |size| -> Vec<_> { (0..size).map(|_| generator.generate().unwrap()).collect() };
    let shard = |id: &MessageId| place_of(None, id, 6);
    let mut known = BTreeSet::new();
    let mut counts = [0; 6];
    for size in [100_usize, 100, 1, 1, 1, 1, 1_000, 100] {
        // The pause ends the run of ids.
        tokio::time::advance(Duration::from_millis(1)).await;
        let ids = batch(size);
        assert!(ids.is_sorted(), "they sort by creation");
        let runs: Vec<_> = ids.chunk_by(|a, b| shard(a) == shard(b)).map(<[_]>::len).collect();
        assert_eq!(runs.len(), size.div_ceil(128), "{runs:?}");
        ids.iter().for_each(|id| counts[shard(id)] += 1);
        known.extend(ids);
    }
    assert_eq!(known.len(), 1_304);
    assert!(counts.iter().all(|count| (128..=360).contains(count)), "{counts:?}");
    let next = [(); 2].map(|()| shard(&batch(1)[0]));
    assert_eq!(next[0], next[1], "there was no pause");
}

/// Stored messages depend on the map: they stay where they are.
#[test]
fn the_map_does_not_change() {
    let id = |text: &str| MessageId::try_from(text).unwrap();
    let group = Group::new("tenant-7").unwrap();
    let places = ["order-1", "order-2", "order-3"].map(|text| place_of(None, &id(text), 16));
    assert_eq!(places, [6, 12, 12]);
    assert_eq!(place_of(Some(&group), &id("order-1"), 16), place_of(None, &id("tenant-7"), 16));
}
