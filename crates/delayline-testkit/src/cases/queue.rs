//! The vocabulary of the cases: a queue driven by explicit time, and short names.

use std::sync::Arc;

use delayline_core::{
    Applied, At, Cancelled, Check, Claim, ClaimId, Claimed, ConsumerName, Death, DeathReason,
    Delivery, Enqueued, Error, Extend, Extended, Found, HistoryPoint, Lease, List, Message,
    MessageId, Millis, NewMessage, Op, Outcome, Page, Position, Purged, QueueBackend, Redrive,
    Redriven, Reply, Reschedule, Rescheduled, Resolution, Save, Schedule, SetLimits, Settled,
    Settlement, Stats, Status, Timestamp,
};

use crate::clients::Clients;
use crate::oracle;
use crate::workload;

/// The queue under test. Times are in milliseconds after [`at`]`(0)`.
pub(super) struct Queue {
    clients: Clients,
}

/// Unwraps the result of an operation, or fails.
macro_rules! answer {
    ($queue:ident, $ms:expr, $op:expr, $pattern:pat => $value:expr) => {{
        let op = $op;
        match $queue.apply($ms, &op).await.reply {
            $pattern => $value,
            other => panic!("{op:?} was answered {other:?}"),
        }
    }};
}

impl Queue {
    pub(super) fn new(clients: Clients) -> Self {
        Self { clients }
    }

    /// The backend itself, for cases that use the server's clock.
    pub(super) fn backend(&self) -> &Arc<dyn QueueBackend> {
        self.clients.first()
    }

    /// All clients, for cases with several callers.
    pub(super) fn clients(&self) -> &Clients {
        &self.clients
    }

    pub(super) async fn apply(&self, ms: u64, op: &Op) -> Applied {
        let answer = self.try_apply(ms, op).await;
        answer.unwrap_or_else(|error| panic!("{op:?} failed: {error}"))
    }

    pub(super) async fn try_apply(&self, ms: u64, op: &Op) -> Result<Applied, Error> {
        self.backend().apply(At::Fixed(at(ms)), op).await
    }

    pub(super) async fn enqueue(&self, ms: u64, messages: Vec<NewMessage>) -> Vec<Enqueued> {
        answer!(self, ms, Op::Enqueue(messages), Reply::Enqueue(items) => items)
    }

    pub(super) async fn enqueue_one(&self, ms: u64, message: NewMessage) -> Enqueued {
        one(self.enqueue(ms, vec![message]).await)
    }

    pub(super) async fn claim(&self, ms: u64, claim: Claim) -> Claimed {
        answer!(self, ms, Op::Claim(claim), Reply::Claim(claimed) => claimed)
    }

    /// Claims with a token and returns the ids of the delivered messages.
    pub(super) async fn claim_ids(&self, ms: u64, claim: Claim) -> Vec<String> {
        ids(&self.claim(ms, claim).await.deliveries)
    }

    /// Enqueues a message, claims it with token 1 and returns its lease.
    pub(super) async fn leased(&self, ms: u64, message: NewMessage, lease_ms: u64) -> Lease {
        self.leased_as(1, ms, message, lease_ms).await
    }

    /// Enqueues a message, claims it with the n-th token and returns its lease.
    pub(super) async fn leased_as(
        &self,
        n: u8,
        ms: u64,
        message: NewMessage,
        lease_ms: u64,
    ) -> Lease {
        self.enqueue_one(ms, message).await;
        one(self.claim(ms, claim(n, 1, lease_ms)).await.deliveries).lease
    }

    pub(super) async fn settle(&self, ms: u64, items: Vec<Settlement>) -> Vec<Settled> {
        answer!(self, ms, Op::Settle(items), Reply::Settle(items) => items)
    }

    pub(super) async fn end(&self, ms: u64, name: &str, lease: Lease, outcome: Outcome) -> Settled {
        one(self.settle(ms, vec![Settlement::new(id(name), lease, outcome)]).await)
    }

    pub(super) async fn extend(&self, ms: u64, name: &str, lease: Lease, for_ms: u64) -> Extended {
        let extend = Extend::new(vec![(id(name), lease)], millis(for_ms));
        answer!(self, ms, Op::Extend(extend), Reply::Extend(items) => one(items))
    }

    /// Extends a lease for 100 ms, with a save.
    pub(super) async fn save(&self, ms: u64, name: &str, lease: Lease, save: Save) -> Extended {
        let extend = Extend::new(vec![(id(name), lease)], millis(100));
        let extend = extend.saves(vec![(id(name), save)]);
        answer!(self, ms, Op::Extend(extend), Reply::Extend(items) => one(items))
    }

    pub(super) async fn cancel(&self, ms: u64, name: &str) -> Cancelled {
        answer!(self, ms, Op::Cancel(vec![id(name)]), Reply::Cancel(items) => one(items))
    }

    pub(super) async fn reschedule(&self, ms: u64, name: &str, schedule: Schedule) -> Rescheduled {
        let items = vec![Reschedule::new(id(name), schedule)];
        answer!(self, ms, Op::Reschedule(items), Reply::Reschedule(items) => one(items))
    }

    pub(super) async fn redrive(&self, ms: u64, name: &str, schedule: Schedule) -> Redriven {
        let redrive = Redrive::new(vec![id(name)], schedule);
        answer!(self, ms, Op::Redrive(redrive), Reply::Redrive(items) => one(items))
    }

    pub(super) async fn purge(&self, ms: u64, name: &str) -> Purged {
        answer!(self, ms, Op::Purge(vec![id(name)]), Reply::Purge(items) => one(items))
    }

    pub(super) async fn pause(&self, ms: u64) -> bool {
        answer!(self, ms, Op::Pause, Reply::Pause { changed } => changed)
    }

    pub(super) async fn resume(&self, ms: u64) -> bool {
        answer!(self, ms, Op::Resume, Reply::Resume { changed } => changed)
    }

    pub(super) async fn set_limits(&self, ms: u64, set: SetLimits) -> bool {
        answer!(self, ms, Op::SetLimits(set), Reply::SetLimits { changed } => changed)
    }

    pub(super) async fn get(&self, ms: u64, name: &str) -> Found {
        answer!(self, ms, Op::Get(vec![id(name)]), Reply::Get(items) => one(items))
    }

    /// Returns the live message with this id.
    pub(super) async fn live(&self, ms: u64, name: &str) -> Message {
        match self.get(ms, name).await {
            Found::Live(message) => *message,
            other => panic!("{name} is not live but {other:?}"),
        }
    }

    pub(super) async fn list(&self, ms: u64, status: Status, limit: usize) -> Page {
        self.list_after(ms, status, None, limit).await
    }

    pub(super) async fn list_after(
        &self,
        ms: u64,
        status: Status,
        after: Option<Position>,
        limit: usize,
    ) -> Page {
        answer!(self, ms, Op::List(List::new(status, limit).after(after)), Reply::List(page) => page)
    }

    pub(super) async fn stats(&self, ms: u64) -> Stats {
        answer!(self, ms, Op::Stats, Reply::Stats(stats) => *stats)
    }

    /// How many messages are ready, due within each delay in ms, and due later.
    pub(super) async fn forecast(&self, ms: u64, delays: &[u64]) -> (u64, Vec<u64>, u64) {
        let delays = delays.iter().map(|delay| Millis::saturating(*delay)).collect();
        let op = Op::Forecast(delays);
        let forecast = answer!(self, ms, op, Reply::Forecast(forecast) => forecast);
        (forecast.ready, forecast.due, forecast.later)
    }

    /// What the queue was like, and is now.
    pub(super) async fn history(&self, ms: u64, resolution: Resolution) -> Vec<HistoryPoint> {
        answer!(self, ms, Op::History(resolution), Reply::History(history) => history.points)
    }

    /// Audits the whole queue, which must be clean, and returns its number of messages.
    pub(super) async fn check(&self, ms: u64, limit: usize) -> u64 {
        let (mut after, mut examined) = (None, 0);
        loop {
            let op = Op::Check(Check::new(limit).after(after));
            let checked = answer!(self, ms, op, Reply::Check(checked) => checked);
            assert_eq!(checked.findings, [], "the audit found something");
            examined += checked.examined;
            after = checked.next;
            if after.is_none() {
                return examined;
            }
        }
    }

    /// Audits the queue, handles all that can ever be due, and balances the books (G1, G22).
    pub(super) async fn drain(&self) {
        let end = Timestamp::MAX.as_ms() - at(0).as_ms();
        self.check(end, 100).await;
        self.resume(end).await;
        for round in 0..100_000 {
            let claimed = self.claim(end, oracle::drain_claim(round)).await;
            if !claimed.deliveries.is_empty() {
                let acks: Vec<_> = claimed.deliveries.iter().map(oracle::ack).collect();
                let settled = self.settle(end, acks).await;
                let done = Settled::Done { status: Status::Acked };
                assert!(settled.iter().all(|settled| *settled == done), "{settled:?}");
            } else if !claimed.more {
                break;
            }
        }
        let stats = self.stats(end).await;
        assert!(oracle::is_drained(&stats), "not all is accounted for: {stats:#?}");
        assert_eq!(self.check(end, 100).await, stats.dead);
    }
}

/// The instant `ms` milliseconds after the start of the case.
pub(super) fn at(ms: u64) -> Timestamp {
    let start = workload::start().as_ms();
    Timestamp::from_ms(start + ms).unwrap_or_else(|violation| panic!("{violation}"))
}

pub(super) fn millis(ms: u64) -> Millis {
    Millis::new(ms).unwrap_or_else(|violation| panic!("{violation}"))
}

pub(super) fn after(ms: u64) -> Schedule {
    Schedule::In(millis(ms))
}

pub(super) fn id(name: &str) -> MessageId {
    MessageId::try_from(name).unwrap_or_else(|violation| panic!("{violation}"))
}

/// A message that is due at once, with a payload that contains its id.
pub(super) fn message(name: &str) -> NewMessage {
    NewMessage::new(id(name), format!("payload of {name}"))
}

pub(super) fn consumer(name: &str) -> ConsumerName {
    ConsumerName::new(name.to_owned()).unwrap_or_else(|violation| panic!("{violation}"))
}

pub(super) const fn token(n: u8) -> ClaimId {
    ClaimId::from_bytes([n; ClaimId::BYTES])
}

pub(super) const fn lease(n: u8, epoch: u64) -> Lease {
    Lease { claim_id: token(n), epoch }
}

/// A claim with the n-th token, by the n-th consumer.
pub(super) fn claim(n: u8, max: usize, lease_ms: u64) -> Claim {
    Claim::new(consumer(&format!("consumer-{n}")), token(n), max, millis(lease_ms))
}

pub(super) fn retry(delay_ms: u64, error: &str) -> Outcome {
    Outcome::Retry { schedule: Schedule::In(millis(delay_ms)), error: error.to_owned() }
}

pub(super) fn undecodable(delay_ms: u64, error: &str) -> Outcome {
    Outcome::Undecodable { schedule: Schedule::In(millis(delay_ms)), error: error.to_owned() }
}

pub(super) fn reject(error: &str) -> Outcome {
    Outcome::Reject { error: error.to_owned() }
}

pub(super) const fn done(status: Status) -> Settled {
    Settled::Done { status }
}

/// The reply to a repeated settlement that ended its message.
pub(super) const fn ended(status: Status) -> Settled {
    Settled::AlreadyDone { ended: Some(status) }
}

pub(super) fn ids(deliveries: &[Delivery]) -> Vec<String> {
    deliveries.iter().map(|delivery| delivery.message.info.id.to_string()).collect()
}

pub(super) fn listed(page: &Page) -> Vec<String> {
    page.messages.iter().map(|info| info.id.to_string()).collect()
}

/// The value with a change.
pub(super) fn with<T>(mut value: T, change: impl FnOnce(&mut T)) -> T {
    change(&mut value);
    value
}

/// What a claim reports about a message that it made a dead letter.
pub(super) fn death(name: &str, reason: DeathReason) -> Death {
    Death::new(id(name), reason)
}

/// Returns the only item.
#[track_caller]
pub(super) fn one<T: std::fmt::Debug>(items: Vec<T>) -> T {
    match <[T; 1]>::try_from(items) {
        Ok([item]) => item,
        Err(items) => panic!("not one item but {items:?}"),
    }
}
