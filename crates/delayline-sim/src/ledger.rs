//! The known facts about each message, from the server and from the handlers, and the promises to
//! check.

use std::collections::{BTreeMap, HashMap, HashSet};

use bytes::Bytes;
use delayline_core::{
    Applied, Cancelled, DeathReason, Element, Enqueued, Extended, Found, HandOff, HandedOff, Known,
    Lease, MessageId, MessageState, NewMessage, NewResult, Op, Outcome, Purged, Redriven, Reply,
    Rescheduled, Settled, Settlement, Status, Timestamp,
};

use crate::met::{Counts, Met};
use crate::story::Ms;

/// A message of a queue.
pub(crate) type Key = (usize, MessageId);

/// A promise that was broken, in words.
pub(crate) type Violation = String;

/// The end of a handler: its outcome, and the messages and the result that come with it.
pub(crate) type Answer = (Outcome, Vec<NewMessage>, Option<NewResult>);

/// All events so far.
#[derive(Default)]
pub(crate) struct Ledger {
    messages: BTreeMap<Key, Record>,
    started: HashSet<(Key, u64)>,
    /// How the handler of each lease has ended.
    answers: HashMap<(Key, Lease), Answer>,
    /// The leases that were settled together with messages.
    handed_off: HashSet<(Key, u64)>,
    /// The messages of each queue that were relayed, in that order.
    relayed: BTreeMap<usize, Vec<MessageId>>,
    /// The latest instant that the server's clock has shown.
    latest: Timestamp,
    pub(crate) totals: Totals,
}

/// The events of one message.
#[derive(Default)]
struct Record {
    created: bool,
    epoch: u64,
    /// When its current state began.
    changed_at: Ms,
    /// A handler has asked for so much time.
    not_before: Option<Timestamp>,
    /// When its lease runs out, by the server's clock.
    leased_until: Option<Timestamp>,
    /// Since when it could have been claimed, by the server's clock, when it was claimed last.
    ready_at: Option<Timestamp>,
    /// It has left the queue.
    finished: Option<Status>,
    /// The content of an update that is still to be delivered.
    update: Option<Bytes>,
    /// An update takes its place when its lease ends.
    followed: bool,
    starts: u64,
    /// Answers of handlers, by kind.
    acks: u64,
    retries: u64,
    undecoded: u64,
    postponed: u64,
    rejects: u64,
    /// Operations on it that were executed.
    cancels: u64,
    purges: u64,
    redrives: u64,
    updates: u64,
}

/// Sums over simulations.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) messages: u64,
    pub(crate) calls: u64,
    pub(crate) starts: u64,
    pub(crate) simulated_ms: u64,
    pub(crate) met: Counts,
}

impl Ledger {
    /// The server has executed an operation.
    pub(crate) fn executed(
        &mut self,
        now: Ms,
        queue: usize,
        op: &Op,
        applied: &Applied,
    ) -> Result<(), Violation> {
        self.latest = self.latest.max(applied.at);
        match (op, &applied.reply) {
            (Op::Enqueue(messages), Reply::Enqueue(outcomes)) => {
                for (message, outcome) in messages.iter().zip(outcomes) {
                    self.enqueued(now, queue, message, *outcome)?;
                }
            }
            (Op::Relay(_), Reply::Relay(relayed)) => {
                for id in &relayed.ids {
                    let record = self.record(queue, id);
                    record.finished = Some(Status::Relayed);
                    self.relayed.entry(queue).or_default().push(id.clone());
                }
            }
            (Op::HandOff(items), Reply::HandOff(results)) => {
                for (item, result) in items.iter().zip(results) {
                    if let Settled::Done { status } = result.settled {
                        self.settled(now, queue, applied.at, item, status)?;
                    }
                    let sent = Reply::Enqueue(result.messages.clone());
                    let sent = Applied::new(applied.at, applied.revision, sent);
                    self.executed(now, queue, &Op::Enqueue(item.messages.clone()), &sent)?;
                    self.handed_off(queue, item, result)?;
                }
            }
            (Op::Claim(claim), Reply::Claim(claimed)) => {
                for delivery in &claimed.deliveries {
                    let info = &delivery.message.info;
                    let epoch = delivery.lease.epoch;
                    // Once its group waits for its turn, it stays ready if the clock is set back.
                    let at = if info.group.is_some() { self.latest } else { applied.at };
                    let record = self.record(queue, &info.id);
                    if epoch > record.epoch && record.followed {
                        // An update has taken its place and was not postponed.
                        record.not_before = None;
                    }
                    // A repeated claim can come after the clock has been set back.
                    if epoch > record.epoch && info.due > at {
                        return Err(format!("{} was delivered early", info.id));
                    }
                    if epoch > record.epoch {
                        let content = &delivery.message.payload;
                        let met = record.takes_update(&info.id, content)?;
                        self.totals.met.note_many(Met::Updated, met);
                    }
                    let record = self.record(queue, &info.id);
                    let met = match epoch {
                        1 => Met::Delivery,
                        _ if epoch == record.epoch => Met::SameLease,
                        _ => Met::Redelivery,
                    };
                    let postponed = epoch > record.epoch && record.not_before.is_some();
                    if epoch > record.epoch {
                        record.ready_at = record.leased_until.max(Some(info.due));
                        record.leased_until = Some(applied.at.after(claim.lease));
                    }
                    record.epoch = epoch;
                    self.totals.met.note(met);
                    self.totals.met.note_many(Met::Postponed, u64::from(postponed));
                }
            }
            (Op::Extend(extend), Reply::Extend(results)) => {
                for ((id, _), result) in extend.leases.iter().zip(results) {
                    if let Extended::Done { deadline, .. } = *result {
                        self.record(queue, id).leased_until = Some(deadline);
                        self.totals.met.note(Met::Extension);
                    }
                }
            }
            (Op::Settle(items), Reply::Settle(results)) => {
                for (item, result) in items.iter().zip(results) {
                    if let Settled::Done { status } = *result {
                        let alone = HandOff::new(item.clone(), Vec::new());
                        self.settled(now, queue, applied.at, &alone, status)?;
                    }
                }
            }
            (Op::Cancel(ids), Reply::Cancel(results)) => {
                for (id, result) in ids.iter().zip(results) {
                    let record = self.record(queue, id);
                    let found = *result != Cancelled::NotFound;
                    let met = found && record.finished.is_none();
                    record.cancels += u64::from(found);
                    if found {
                        (record.update, record.followed) = (None, false);
                    }
                    if *result == Cancelled::Cancelled {
                        record.finished = Some(Status::Cancelled);
                    }
                    self.totals.met.note_many(Met::Cancel, u64::from(met));
                }
            }
            (Op::Purge(ids), Reply::Purge(results)) => {
                for (id, result) in ids.iter().zip(results) {
                    if *result == Purged::Purged {
                        let record = self.record(queue, id);
                        record.purges += 1;
                        record.update = None;
                        record.finished = Some(Status::Purged);
                        self.totals.met.note(Met::Purge);
                    }
                }
            }
            (Op::Redrive(redrive), Reply::Redrive(results)) => {
                for (id, result) in redrive.ids.iter().zip(results) {
                    if matches!(result, Redriven::Done { .. }) {
                        let record = self.record(queue, id);
                        record.redrives += 1;
                        (record.changed_at, record.not_before) = (now, None);
                        self.totals.met.note(Met::Redrive);
                    }
                }
            }
            (Op::Reschedule(items), Reply::Reschedule(results)) => {
                for (item, result) in items.iter().zip(results) {
                    if matches!(result, Rescheduled::Done { .. }) {
                        let record = self.record(queue, &item.id);
                        (record.changed_at, record.not_before) = (now, None);
                        self.totals.met.note(Met::Reschedule);
                    }
                }
            }
            (Op::Pause, Reply::Pause { changed: true }) => self.totals.met.note(Met::Pause),
            (Op::Resume, Reply::Resume { changed: true })
            | (Op::SetLimits(_), Reply::SetLimits { changed: true }) => {
                for (_, record) in self.messages.iter_mut().filter(|((of, _), _)| *of == queue) {
                    record.changed_at = now;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// A message was sent, or updated.
    fn enqueued(
        &mut self,
        now: Ms,
        queue: usize,
        message: &NewMessage,
        outcome: Enqueued,
    ) -> Result<(), Violation> {
        let id = &message.id;
        let is_update = message.known != Known::Refuse;
        let record = self.record(queue, id);
        match outcome {
            Enqueued::Conflict { .. } if is_update || record.updates == 0 => {
                return Err(format!("{id} conflicts with itself"));
            }
            Enqueued::Updated { .. } | Enqueued::Following { .. } if !is_update => {
                return Err(format!("{id} was updated, but no call did that"));
            }
            Enqueued::Updated { .. } | Enqueued::Following { .. } if record.finished.is_some() => {
                return Err(format!("{id} was updated after its end"));
            }
            Enqueued::Created { .. }
            | Enqueued::Updated { .. }
            | Enqueued::Following { .. }
            | Enqueued::Duplicate { .. }
            | Enqueued::Conflict { .. } => {}
            other => return Err(format!("{other:?} is not known here")),
        }
        let is_new = !matches!(outcome, Enqueued::Duplicate { .. } | Enqueued::Conflict { .. });
        if is_new {
            record.changed_at = now;
        }
        record.created = true;
        if is_update && is_new {
            record.updates += 1;
            record.update = Some(message.payload.clone());
            let met = if matches!(outcome, Enqueued::Following { .. }) {
                record.followed = true;
                Met::Follow
            } else {
                record.not_before = None;
                Met::Update
            };
            self.totals.met.note(met);
        }
        Ok(())
    }

    /// A lease has ended as its handler has said, or was released before a handler began.
    fn settled(
        &mut self,
        now: Ms,
        queue: usize,
        at: Timestamp,
        item: &HandOff,
        status: Status,
    ) -> Result<(), Violation> {
        let HandOff { settlement, messages, result, .. } = item;
        let Settlement { id, lease, outcome, .. } = settlement;
        let answer = self.answers.get(&((queue, id.clone()), *lease));
        let is_right = match answer {
            Some(said) => (&said.0, &said.1, &said.2) == (outcome, messages, result),
            None => *outcome == Outcome::Release && messages.is_empty(),
        };
        if !is_right {
            return Err(format!("{item:?} was settled, and its handler said {answer:?}"));
        }
        let record = self.record(queue, id);
        (record.changed_at, record.leased_until) = (now, None);
        if std::mem::take(&mut record.followed) {
            record.not_before = None;
            return Ok(());
        }
        if status == Status::Replaced {
            return Err(format!("{id} is replaced, but no call did that"));
        }
        record.not_before = match outcome {
            Outcome::Retry { schedule, .. }
            | Outcome::Undecodable { schedule, .. }
            | Outcome::Snooze { schedule } => Some(schedule.instant(at)),
            _ => None,
        };
        if matches!(status, Status::Acked | Status::Cancelled) {
            record.finished = Some(status);
        }
        Ok(())
    }

    /// What a relay has moved is in its list, once and in this order (G28).
    pub(crate) fn relayed(&mut self, queue: usize, elements: &[Element]) -> Result<(), Violation> {
        let relayed = self.relayed.remove(&queue).unwrap_or_default();
        if !relayed.iter().eq(elements.iter().map(|element| &element.id)) {
            return Err(format!("{relayed:?} were relayed, and the list has {elements:?}"));
        }
        for Element { id, payload, .. } in elements {
            let met = self.record(queue, id).takes_update(id, payload)?;
            self.totals.met.note_many(Met::Updated, met);
            self.totals.met.note(Met::Relay);
        }
        Ok(())
    }

    /// What follows from a handling is created if and only if its settlement is done (G31), and the
    /// result of an ack is kept (G32).
    fn handed_off(
        &mut self,
        queue: usize,
        item: &HandOff,
        result: &HandedOff,
    ) -> Result<(), Violation> {
        let HandOff { settlement, messages, .. } = item;
        let (id, epoch) = (&settlement.id, settlement.lease.epoch);
        let lease = ((queue, id.clone()), epoch);
        if matches!(result.settled, Settled::Done { .. }) {
            self.handed_off.insert(lease.clone());
            if item.result.is_some() != result.result_kept {
                return Err(format!("{id} is done, and result kept: {}", result.result_kept));
            }
            self.totals.met.note_many(Met::Result, u64::from(result.result_kept));
        }
        let is_done = self.handed_off.contains(&lease);
        let created = messages.iter().filter(|message| self.record(queue, &message.id).created);
        let created = created.count();
        if created != if is_done { messages.len() } else { 0 } {
            return Err(format!("{id} is {:?}, and {created} messages follow", result.settled));
        }
        self.totals
            .met
            .note_many(Met::HandOff, u64::try_from(result.messages.len()).unwrap_or(u64::MAX));
        Ok(())
    }

    /// Since when a message has been as it is, and since when its last claim could have had it.
    pub(crate) fn ready_since(&self, queue: usize, id: &MessageId) -> (Ms, Option<Timestamp>) {
        let record = self.messages.get(&(queue, id.clone()));
        record.map_or((0, None), |record| (record.changed_at, record.ready_at))
    }

    /// A handler begins when the server's clock shows `clock`, if that has never been set back.
    pub(crate) fn started(
        &mut self,
        queue: usize,
        id: &MessageId,
        lease: Lease,
        due: Timestamp,
        clock: Option<Timestamp>,
    ) -> Result<(), Violation> {
        if clock.is_some_and(|clock| due > clock) {
            return Err(format!("the handler of {id} began early"));
        }
        if !self.started.insert(((queue, id.clone()), lease.epoch)) {
            return Err(format!("epoch {} of {id} was handled twice", lease.epoch));
        }
        self.totals.starts += 1;
        self.record(queue, id).starts += 1;
        Ok(())
    }

    /// A handler has answered.
    pub(crate) fn answered(&mut self, queue: usize, id: &MessageId, lease: Lease, answer: Answer) {
        let record = self.record(queue, id);
        match answer.0 {
            Outcome::Ack => record.acks += 1,
            Outcome::Retry { .. } => record.retries += 1,
            Outcome::Undecodable { .. } => record.undecoded += 1,
            Outcome::Reject { .. } => record.rejects += 1,
            _ => record.postponed += 1,
        }
        self.answers.insert(((queue, id.clone()), lease), answer);
    }

    /// Whether a message is in the queue, as far as was seen.
    pub(crate) fn created(&self) -> impl Iterator<Item = &Key> {
        self.messages.iter().filter(|(_, record)| record.created).map(|(key, _)| key)
    }

    /// Where a message stands at the end, and whether that has come about as it should.
    pub(crate) fn ended(
        &mut self,
        key: &Key,
        found: &Found,
        peaceful: bool,
    ) -> Result<(), Violation> {
        let Some(record) = self.messages.get(key) else { return Ok(()) };
        let id = &key.1;
        let totals = &mut self.totals;
        if record.update.is_some() {
            return Err(format!("an update of {id} was lost: it is {found:?}"));
        }
        totals.messages += 1;
        match found {
            Found::Finished(Status::Acked) => totals.met.note(Met::Acked),
            Found::Finished(Status::Cancelled) => totals.met.note(Met::Cancelled),
            Found::Finished(Status::Purged) => totals.met.note(Met::Purged),
            _ => {}
        }
        match found {
            Found::Finished(Status::Acked) if record.acks == 0 => {
                return Err(format!("{id} is acked, and no handler did"));
            }
            Found::Finished(Status::Cancelled) if record.cancels == 0 => {
                return Err(format!("{id} is cancelled, but no call did that"));
            }
            Found::Finished(Status::Purged) if record.purges == 0 => {
                return Err(format!("{id} is purged, but no call did that"));
            }
            Found::Finished(Status::Relayed) if record.finished != Some(Status::Relayed) => {
                return Err(format!("{id} is relayed, but no call did that"));
            }
            Found::Finished(_) => {}
            Found::Live(message) => {
                let info = &message.info;
                let MessageState::Dead { reason, .. } = info.state else {
                    return Err(format!("{id} has come to no end: {info:?}"));
                };
                match reason {
                    DeathReason::MaxFailures | DeathReason::Undecodable => {
                        totals.met.note(Met::Failed);
                    }
                    DeathReason::MaxCrashes => totals.met.note(Met::Crashed),
                    DeathReason::Rejected => totals.met.note(Met::Rejected),
                    _ => {}
                }
                let max_failures = u64::from(info.max_failures);
                let failures = record.retries + record.undecoded;
                let explained = match reason {
                    DeathReason::MaxFailures => record.retries > 0 && failures >= max_failures,
                    DeathReason::Undecodable => record.undecoded > 0 && failures >= max_failures,
                    DeathReason::MaxCrashes => !peaceful,
                    DeathReason::Rejected => record.rejects > 0,
                    _ => false,
                };
                if !explained {
                    return Err(format!("{id} is dead without a reason: {info:?}"));
                }
            }
            _ => return Err(format!("{id} is lost")),
        }
        if peaceful {
            totals.met.note_many(Met::Asked, record.starts.saturating_sub(1));
        }
        let again = record.retries + record.undecoded + record.postponed + record.redrives;
        let asked_for = 1 + again + record.updates;
        if peaceful && record.starts > asked_for {
            return Err(format!(
                "{id} was handled {} times for nothing",
                record.starts - asked_for
            ));
        }
        Ok(())
    }

    fn record(&mut self, queue: usize, id: &MessageId) -> &mut Record {
        self.messages.entry((queue, id.clone())).or_default()
    }
}

impl Record {
    /// It is delivered or relayed with this content, and not for the first time under its lease:
    /// the latest update is no longer due. Returns the number of those updates.
    fn takes_update(&mut self, id: &MessageId, content: &Bytes) -> Result<u64, Violation> {
        self.followed = false;
        match self.update.take() {
            Some(update) if update != content => {
                Err(format!("{id} came as {content:?}, after its update to {update:?}"))
            }
            update => Ok(u64::from(update.is_some())),
        }
    }
}

impl Totals {
    pub(crate) fn add(&mut self, other: &Self) {
        self.messages += other.messages;
        self.calls += other.calls;
        self.starts += other.starts;
        self.simulated_ms += other.simulated_ms;
        self.met.add(&other.met);
    }
}
