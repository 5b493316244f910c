//! The state machine of a queue: the specification.
//!
//! The scripts in `delayline-redis-protocol/lua` implement the same with Redis data structures: one
//! script per operation, with the same function names. Its `tests/port.rs` compares the two.

mod changes;
mod entries;
mod entry;
mod hand_off;
mod held;
mod history;
mod index;
mod invariants;
mod limiter;
mod lost_claims;
mod read;
mod ready;
mod relay;
mod results;
mod ring;
mod settling;
mod slots;
#[cfg(feature = "serde")]
mod stored;
mod turns;
mod updates;
mod windows;

use std::collections::BTreeMap;

use self::changes::{Changes, Finished};
use self::entries::Entries;
use self::entry::{Entry, OutcomeKind, Place};
pub use self::held::Held;
use self::index::{Index, up_to};
use self::limiter::Limiter;
use self::results::Results;
use self::ring::Ring;
use self::turns::Turns;
use self::windows::Windows;
use crate::generations::Generations;
use crate::known::Tokens;
use crate::limits::{
    FINISHED_RETENTION_MS, JOURNAL_RETENTION_MS, MAX_FINISHED, MAX_JOURNAL, MAX_RECLAIM,
};
use crate::{
    Applied, AttemptOutcome, Cancelled, Claim, ClaimId, Claimed, ConsumerName, Death, DeathReason,
    Delivery, DestinationKey, Element, Enqueued, Extend, Extended, FinishedIds, Hold, Known, Lease,
    MessageId, NewMessage, Op, Priority, Purged, Redrive, Redriven, Reply, Reschedule, Rescheduled,
    Resolution, Save, Settled, Settlement, Status, Timestamp, Totals,
};

/// A whole queue.
///
/// Total and deterministic: every operation at every instant has exactly one result, even if the
/// clock steps back (G19).
#[derive(Clone, Debug)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(remote = "Self", default, deny_unknown_fields)
)]
pub struct State {
    /// The number of operations that have changed something.
    revision: u64,
    /// The number of messages enqueued is also the sequence number of the latest one.
    totals: Totals,
    /// The epochs that belong to no claim: see [`skip_epochs`](Self::skip_epochs).
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "crate::form::is_default"))]
    skipped_epochs: u64,
    paused: bool,
    limiter: Limiter,
    /// The start of the minute of the latest snapshot.
    minute: Timestamp,
    /// Snapshots of the past.
    minutes: Ring,
    hours: Ring,
    entries: Entries,
    /// Scheduled and ready messages without a group by due time, one index per priority.
    #[cfg_attr(feature = "serde", serde(skip))]
    due: [Index; Priority::ALL.len()],
    /// Scheduled and ready messages with a group by due time.
    #[cfg_attr(feature = "serde", serde(skip))]
    grouped: Index,
    /// Ready messages that wait for the turn of their group, by its lane.
    #[cfg_attr(feature = "serde", serde(skip))]
    lanes: Index,
    #[cfg_attr(feature = "serde", serde(with = "stored::turns"))]
    turns: Turns,
    /// Messages that hold slots of their groups, by lane.
    #[cfg_attr(feature = "serde", serde(skip))]
    slots: Index,
    /// Leased messages by deadline.
    #[cfg_attr(feature = "serde", serde(skip))]
    leased: Index,
    /// Dead letters by time of death.
    #[cfg_attr(feature = "serde", serde(skip))]
    dead: Index,
    /// Finished messages, for as long as they are remembered.
    finished: Generations<MessageId, Finished>,
    /// The leases of each consumer's latest claim.
    journal: Generations<ConsumerName, (ClaimId, Vec<MessageId>)>,
    /// The elements that relays have moved, until a consumer takes them.
    destinations: BTreeMap<DestinationKey, Vec<Element>>,
    results: Results,
    windows: Windows,
}

impl Default for State {
    fn default() -> Self {
        Self::new()
    }
}

impl State {
    /// Creates an empty queue.
    #[must_use]
    pub fn new() -> Self {
        Self {
            revision: 0,
            totals: Totals::default(),
            skipped_epochs: 0,
            paused: false,
            limiter: Limiter::default(),
            minute: Timestamp::MIN,
            minutes: Ring::new(Resolution::Minutes),
            hours: Ring::new(Resolution::Hours),
            entries: Entries::default(),
            due: Default::default(),
            grouped: Index::new(),
            lanes: Index::new(),
            turns: Turns::default(),
            slots: Index::new(),
            leased: Index::new(),
            dead: Index::new(),
            finished: Generations::new(FINISHED_RETENTION_MS, MAX_FINISHED),
            journal: Generations::new(JOURNAL_RETENTION_MS, MAX_JOURNAL),
            destinations: BTreeMap::new(),
            results: Results::default(),
            windows: Windows::default(),
        }
    }

    /// Executes `op` at the instant `now`.
    ///
    /// Does not check limits; call [`Op::validate`] first.
    pub fn apply(&mut self, now: Timestamp, op: &Op) -> Applied {
        let snapshot = if op.is_read_only() { None } else { self.look_at_minute(now) };
        let sends = matches!(op, Op::Enqueue(_) | Op::HandOff(_));
        let into_lanes = sends && self.sends_into_lanes(now);
        let mut changes = Changes { snapshot, into_lanes, ..Changes::default() };
        let reply = match op {
            Op::Enqueue(messages) => Reply::Enqueue(
                messages.iter().map(|item| self.enqueue(now, item, &mut changes)).collect(),
            ),
            Op::Claim(claim) => Reply::Claim(self.claim(now, claim, &mut changes)),
            Op::Relay(relay) => Reply::Relay(self.relay(now, relay, &mut changes)),
            Op::Settle(items) => Reply::Settle(
                items.iter().map(|item| self.settle(now, item, &mut changes)).collect(),
            ),
            Op::HandOff(items) => Reply::HandOff(self.hand_off(now, items, &mut changes)),
            Op::Extend(extend) => Reply::Extend(self.extend(now, extend, &mut changes)),
            Op::Cancel(ids) => {
                Reply::Cancel(ids.iter().map(|id| self.cancel(now, id, &mut changes)).collect())
            }
            Op::Reschedule(items) => Reply::Reschedule(
                items.iter().map(|item| self.reschedule(now, item, &mut changes)).collect(),
            ),
            Op::Redrive(redrive) => Reply::Redrive(
                redrive.ids.iter().map(|id| self.redrive(now, redrive, id, &mut changes)).collect(),
            ),
            Op::Purge(ids) => {
                Reply::Purge(ids.iter().map(|id| self.purge(now, id, &mut changes)).collect())
            }
            Op::Pause => Reply::Pause { changed: self.set_paused(true, &mut changes) },
            Op::Resume => Reply::Resume { changed: self.set_paused(false, &mut changes) },
            Op::SetLimits(set) => {
                Reply::SetLimits { changed: self.set_limits(now, set, &mut changes) }
            }
            Op::Get(ids) => Reply::Get(ids.iter().map(|id| self.get(now, id)).collect()),
            Op::Progress(ids) => Reply::Progress(self.progress(now, ids)),
            Op::List(list) => Reply::List(self.list(now, list)),
            Op::Stats => Reply::Stats(Box::new(self.stats(now))),
            Op::Forecast(delays) => Reply::Forecast(self.forecast(now, delays)),
            Op::History(resolution) => Reply::History(self.history(now, *resolution)),
            Op::Check(check) => Reply::Check(self.check(check)),
            // The model has nothing to repair.
            Op::Repair(check) => Reply::Repair(self.check(check)),
        };
        self.commit(now, changes);
        Applied::new(now, self.revision, reply)
    }

    /// Like [`apply`](Self::apply), and also returns whether a sleeper must be woken by a hint.
    ///
    /// Sleepers wake up when the next message they know of is due, so they need a hint for a
    /// message that is due sooner. If a claim got fewer messages than it asked for, its worker
    /// waits for the next message. Otherwise it does not, and leaves the next message to other
    /// workers.
    pub fn apply_and_hint(&mut self, now: Timestamp, op: &Op) -> (Applied, bool) {
        let before = self.next_claimable();
        let applied = self.apply(now, op);
        let after = self.next_claimable();
        let hint = match (op, &applied.reply) {
            (Op::Claim(claim), Reply::Claim(claimed)) => {
                let is_full = claimed.deliveries.len() >= claim.max;
                after.is_some_and(|after| is_full || after <= now)
            }
            (Op::Relay(relay), Reply::Relay(relayed)) => {
                let is_full = relayed.ids.len() >= relay.max;
                // A relay that is held back retries anyway.
                !relayed.held_back && after.is_some_and(|after| is_full || after <= now)
            }
            _ => after.is_some_and(|after| {
                // The caller's next claim leases it, or sends the hint.
                let is_expected = after <= now && op.claims_next();
                before.is_none_or(|before| after < before) && !is_expected
            }),
        };
        (applied, hint)
    }

    /// Returns the earliest instant at which a claim can succeed: a due time or the end of a lease.
    /// `None` if no message is waiting or leased, or while the queue is paused.
    #[must_use]
    pub fn next_claimable(&self) -> Option<Timestamp> {
        self.next_deliverable(Some(self.leased.len()))
    }

    /// Like `next_claimable` with this number of leases, or, for a relay, without counting leases.
    fn next_deliverable(&self, leased: Option<usize>) -> Option<Timestamp> {
        if self.paused {
            return None;
        }
        let has_turn = !self.lanes.is_empty() && self.turns.has_group();
        let in_lanes = has_turn.then_some(Timestamp::MIN);
        let held = self.turns.first_hold().filter(|_| !self.lanes.is_empty());
        let waiting = self.waiting().filter_map(first).chain(in_lanes).chain(held).min();
        let open_at = self.limiter.open_at(leased);
        let next = waiting.zip(open_at).map(|(waiting, open_at)| waiting.max(open_at));
        next.into_iter().chain(first(&self.leased)).min()
    }

    fn enqueue(&mut self, now: Timestamp, message: &NewMessage, changes: &mut Changes) -> Enqueued {
        if let Known::Update(update) = message.known {
            return self.update(now, message, update, changes);
        }
        let digest = message.digest();
        let known = match self.entries.get(&message.id) {
            Some(entry) => Some((entry.digest, entry.state(now).status())),
            None if message.finished_ids == FinishedIds::Reuse => None,
            None => self.finished.get(now, &message.id).map(|past| (past.digest, past.status)),
        };
        match known {
            Some((known, status)) if known == digest => Enqueued::Duplicate { status },
            Some((_, status)) => {
                self.throttle(now, message).unwrap_or(Enqueued::Conflict { status })
            }
            None => self.create(now, message, digest, Tokens::default(), changes),
        }
    }

    fn claim(&mut self, now: Timestamp, claim: &Claim, changes: &mut Changes) -> Claimed {
        let mut deaths = Vec::new();
        let deliveries = match self.journal.get(now, &claim.consumer) {
            Some((claim_id, ids)) if *claim_id == claim.claim_id => {
                self.claimed_before(now, claim.claim_id, &ids.clone())
            }
            _ => {
                self.reclaim(now, &mut deaths, changes);
                if self.paused { Vec::new() } else { self.take(now, claim, &mut deaths, changes) }
            }
        };
        let next = self.next_claimable();
        let capped = !self.paused && self.limiter.is_capped(self.leased.len());
        let more = next.is_some_and(|next| next <= now);
        Claimed { deliveries, more, next, capped, unsorted: changes.unsorted, deaths }
    }

    /// Returns the leases of a repeated claim that are still held (G16).
    fn claimed_before(
        &self,
        now: Timestamp,
        claim_id: ClaimId,
        ids: &[MessageId],
    ) -> Vec<Delivery> {
        let held = |entry: &Entry| {
            entry.life.claim_id == Some(claim_id)
                && matches!(entry.place, Place::Leased { deadline, .. } if deadline > now)
        };
        let entries = ids.iter().filter_map(|id| self.entries.get(id));
        entries.filter(|entry| held(entry)).map(|entry| entry.delivery(now)).collect()
    }

    /// Reclaims expired leases (G21).
    fn reclaim(&mut self, now: Timestamp, deaths: &mut Vec<Death>, changes: &mut Changes) {
        let expired: Vec<_> = up_to(&self.leased, now).take(MAX_RECLAIM).cloned().collect();
        for id in expired {
            let Some(mut entry) = self.remove(&id) else {
                continue;
            };
            changes.any = true;
            if entry.cancel_requested() || entry.life.follower.is_some() {
                let cancelled = entry.cancel_requested();
                let status = if cancelled { Status::Cancelled } else { Status::Replaced };
                self.totals.crashed += u64::from(!cancelled);
                self.finish(now, entry, status, None, changes);
                continue;
            }
            entry.crashes += 1;
            self.totals.crashed += 1;
            entry.note_attempt(now, AttemptOutcome::Crashed, "");
            entry.life.settled = None;
            entry.place = Place::Waiting;
            if entry.crashes >= entry.max_crashes {
                entry.place = self.bury(now, DeathReason::MaxCrashes);
                deaths.push(Death { id, reason: DeathReason::MaxCrashes });
            }
            self.look_at_slot(&mut entry);
            self.insert(entry);
        }
    }

    /// Leases ready messages, and makes expired ones dead letters.
    fn take(
        &mut self,
        now: Timestamp,
        claim: &Claim,
        deaths: &mut Vec<Death>,
        changes: &mut Changes,
    ) -> Vec<Delivery> {
        let mut deliveries = Vec::new();
        let (admitted, caught_up) = self.limiter.admit(now, Some(self.leased.len()));
        changes.any |= caught_up;
        let (max, share) = (claim.max.min(admitted), self.share(claim.several_in_order));
        for mut entry in self.take_ready(now, max, share, deaths, changes) {
            entry.epoch += 1;
            entry.life.claim_id = Some(claim.claim_id);
            entry.life.settled = None;
            let deadline = now.after(claim.lease);
            entry.place = Place::Leased { deadline, cancel_requested: false };
            let delivery = entry.delivery(now);
            self.totals.count_delivery(delivery.lateness(now));
            deliveries.push(delivery);
            self.insert(entry);
        }
        self.limiter.spend(now, deliveries.len());
        if !deliveries.is_empty() {
            let ids = deliveries.iter().map(|delivery| delivery.message.info.id.clone()).collect();
            self.journal.rotate(now, &claim.consumer);
            self.journal.insert(claim.consumer.clone(), (claim.claim_id, ids));
        }
        deliveries
    }

    fn settle(&mut self, now: Timestamp, item: &Settlement, changes: &mut Changes) -> Settled {
        let Some(entry) = self.entries.get(&item.id) else {
            return self.settle_without_details(now, item);
        };
        if !entry.was_leased_as(item.lease) {
            return Settled::Stale;
        }
        let Place::Leased { cancel_requested, .. } = entry.place else {
            return match entry.life.settled {
                Some((kind, ended)) if kind == item.outcome.kind() => {
                    let died = entry.died_of_settlement().then_some(Status::Dead);
                    Settled::AlreadyDone { ended: ended.or(died) }
                }
                _ => Settled::Stale,
            };
        };
        let Some(entry) = self.remove(&item.id) else {
            return Settled::Missing;
        };
        changes.any = true;
        match item.hold {
            Some(Hold::Queue(until)) => self.limiter.hold(until.instant(now)),
            Some(Hold::Group(until)) if entry.group.is_some() && until.instant(now) > now => {
                self.turns.hold(entry.lane(), until.instant(now));
            }
            _ => {}
        }
        Settled::Done { status: self.end_lease(now, entry, cancel_requested, item, changes) }
    }

    fn extend(&mut self, now: Timestamp, extend: &Extend, changes: &mut Changes) -> Vec<Extended> {
        let deadline = now.after(extend.lease);
        let mut extend_one = |id: &MessageId, lease: Lease, save: Option<&Save>| {
            let Some(entry) = self.entries.get(id) else {
                return Extended::Missing;
            };
            let Place::Leased { cancel_requested, .. } = entry.place else {
                return Extended::Stale;
            };
            if !entry.was_leased_as(lease) {
                return Extended::Stale;
            }
            let Some(mut entry) = self.remove(id) else {
                return Extended::Missing;
            };
            changes.any = true;
            entry.place = Place::Leased { deadline, cancel_requested };
            save.into_iter().for_each(|save| entry.save(save));
            self.insert(entry);
            Extended::Done { deadline, cancel_requested }
        };
        let items = extend.leases.iter().zip(extend.saves_in_order());
        items.map(|((id, lease), save)| extend_one(id, *lease, save)).collect()
    }

    fn cancel(&mut self, now: Timestamp, id: &MessageId, changes: &mut Changes) -> Cancelled {
        let Some(mut entry) = self.remove(id) else {
            return match self.finished.get(now, id) {
                Some(past) if past.status == Status::Cancelled => Cancelled::Cancelled,
                _ => Cancelled::NotFound,
            };
        };
        if let Place::Leased { deadline, cancel_requested } = entry.place {
            changes.any |= !cancel_requested || entry.life.follower.is_some();
            entry.place = Place::Leased { deadline, cancel_requested: true };
            entry.life.follower = None;
            self.insert(entry);
            return Cancelled::InFlight;
        }
        changes.any = true;
        self.finish(now, entry, Status::Cancelled, None, changes);
        Cancelled::Cancelled
    }

    fn reschedule(
        &mut self,
        now: Timestamp,
        item: &Reschedule,
        changes: &mut Changes,
    ) -> Rescheduled {
        match self.entries.get(&item.id).map(|entry| entry.place) {
            None => return Rescheduled::NotFound,
            Some(Place::Leased { .. }) => return Rescheduled::InFlight,
            Some(Place::Dead { .. }) => return Rescheduled::Dead,
            Some(Place::Waiting | Place::Lane) => {}
        }
        let Some(mut entry) = self.remove(&item.id) else {
            return Rescheduled::NotFound;
        };
        changes.any = true;
        let due = item.schedule.instant(now);
        entry.due = due;
        entry.place = Place::Waiting;
        self.insert(entry);
        Rescheduled::Done { due }
    }

    fn redrive(
        &mut self,
        now: Timestamp,
        redrive: &Redrive,
        id: &MessageId,
        changes: &mut Changes,
    ) -> Redriven {
        match self.entries.get(id).map(|entry| entry.place) {
            None => return Redriven::NotFound,
            Some(Place::Waiting | Place::Lane | Place::Leased { .. }) => return Redriven::NotDead,
            Some(Place::Dead { .. }) => {}
        }
        let Some(mut entry) = self.remove(id) else {
            return Redriven::NotFound;
        };
        changes.any = true;
        self.totals.redriven += 1;
        let due = redrive.schedule.instant(now);
        entry.due = due;
        entry.failures = 0;
        entry.crashes = 0;
        entry.expires_at = None;
        entry.life.settled = None;
        entry.place = Place::Waiting;
        self.insert(entry);
        Redriven::Done { due }
    }

    fn purge(&mut self, now: Timestamp, id: &MessageId, changes: &mut Changes) -> Purged {
        match self.entries.get(id).map(|entry| entry.place) {
            None => {
                return match self.finished.get(now, id) {
                    Some(past) if past.status == Status::Purged => Purged::Purged,
                    _ => Purged::NotFound,
                };
            }
            Some(Place::Waiting | Place::Lane | Place::Leased { .. }) => return Purged::NotDead,
            Some(Place::Dead { .. }) => {}
        }
        let Some(entry) = self.remove(id) else {
            return Purged::NotFound;
        };
        changes.any = true;
        self.finish(now, entry, Status::Purged, None, changes);
        Purged::Purged
    }

    fn set_paused(&mut self, paused: bool, changes: &mut Changes) -> bool {
        let changed = self.paused != paused;
        self.paused = paused;
        changes.any |= changed;
        changed
    }

    /// Counts a death, and returns the place of a message that dies now.
    const fn bury(&mut self, now: Timestamp, reason: DeathReason) -> Place {
        self.totals.count_death(reason);
        Place::Dead { reason, since: now }
    }

    /// Counts a removed message as finished, and records it for later lookups, unless another
    /// message takes its place.
    fn finish(
        &mut self,
        now: Timestamp,
        mut entry: Box<Entry>,
        status: Status,
        settled: Option<(Lease, OutcomeKind)>,
        changes: &mut Changes,
    ) {
        self.free_slot(&mut entry);
        match status {
            Status::Acked => self.totals.acked += 1,
            Status::Purged => self.totals.purged += 1,
            Status::Relayed => self.totals.relayed += 1,
            Status::Replaced => self.totals.replaced += 1,
            _ => self.totals.cancelled += 1,
        }
        if let Some(follower) = entry.life.follower.take() {
            entry.life.settled = settled.map(|(_, kind)| (kind, Some(status)));
            return self.take_over(now, *entry, *follower);
        }
        let (digest, tokens) = (entry.digest, entry.life.take().tokens);
        let lease = settled.map(|(lease, _)| lease);
        changes.finished.push((entry.id, Finished { status, digest, lease, tokens }));
    }

    /// Does the work at the end of each operation, once for all its items.
    fn commit(&mut self, now: Timestamp, changes: Changes) {
        if let Some((first, _)) = changes.finished.first() {
            self.finished.rotate(now, first);
            for (id, finished) in changes.finished {
                self.finished.insert(id, finished);
            }
        }
        for id in changes.reused {
            self.finished.forget(now, &id);
        }
        if let Some(snapshot) = changes.snapshot.filter(|_| changes.any) {
            self.store_snapshot(snapshot);
        }
        self.revision += u64::from(changes.any);
    }

    /// Puts a message into the index of its place.
    fn insert(&mut self, entry: Box<Entry>) {
        let (key, id) = (entry.key(), entry.id.clone());
        self.index_mut(&entry).insert(key, id);
        self.entries.insert(entry);
    }

    /// Removes a message from the entries and from its index.
    fn remove(&mut self, id: &MessageId) -> Option<Box<Entry>> {
        let entry = self.entries.remove(id)?;
        self.index_mut(&entry).remove(&entry.key());
        Some(entry)
    }

    /// The indexes of messages that are neither leased nor dead, nor in a lane.
    fn waiting(&self) -> impl Iterator<Item = &Index> {
        self.due.iter().chain([&self.grouped])
    }

    fn index_mut(&mut self, entry: &Entry) -> &mut Index {
        match entry.place {
            Place::Waiting if entry.group.is_some() => &mut self.grouped,
            Place::Waiting => &mut self.due[usize::from(entry.priority.level())],
            Place::Lane => &mut self.lanes,
            Place::Leased { .. } => &mut self.leased,
            Place::Dead { .. } => &mut self.dead,
        }
    }
}

/// Returns the earliest instant in an index.
fn first(index: &Index) -> Option<Timestamp> {
    index.first_key_value().map(|((instant, _), _)| *instant)
}
