//! Heartbeats: extends the leases of running handlers, and notifies handlers of lost ones.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;

use super::plan::FAILURES;
use super::rng::Rng;
use super::saving::Saving;
use super::{Action, CancelReason, Moment, QueuePlan, Slot};
use crate::limits::{MAX_BATCH, MAX_BATCH_BYTES};
use crate::{Backoff, Extend, Extended, Lease, MessageId, Millis, Progress, Save, Settlement};

/// The leases of all running handlers of one queue. However a handler ends, it is removed, and its
/// lease is no longer extended, except while a hand-off is not confirmed.
#[derive(Debug)]
pub(super) struct Leases {
    lease: Millis,
    cancel_within: Option<Duration>,
    max_age: Option<Duration>,
    stuck_after: Option<Duration>,
    held: HashMap<Slot, Held>,
    /// The latest handler of each message.
    latest: HashMap<MessageId, Slot>,
    /// The leases of hand-offs that the queue has not confirmed.
    kept: HashMap<MessageId, Kept>,
    under_way: Option<Extension>,
    /// The earliest time of the next extension that saves something.
    saves_at: Moment,
    /// After a failure: no earlier than this.
    retry_at: Option<Moment>,
    backoff: Backoff,
    /// Whether parts of the queue can fail alone.
    has_parts: bool,
    /// How many suspects are extended together: more while that succeeds.
    together: usize,
    /// The earliest time at which a lease that failed alone is extended.
    failing_at: Moment,
    /// The earliest time at which something must be done.
    next: Option<Moment>,
}

/// The handlers of an extension in progress, in order.
#[derive(Debug)]
struct Extension {
    slots: Vec<Slot>,
    /// The messages of the hand-offs that follow them.
    kept: Vec<MessageId>,
    sent: Moment,
    of_suspects: bool,
}

/// The lease of an unconfirmed hand-off.
#[derive(Debug)]
struct Kept {
    lease: Lease,
    /// When it was certainly valid last.
    since: Moment,
    /// When it is too old to be extended.
    ages_at: Option<Moment>,
    suspect: Option<Moment>,
}

/// A running handler.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) id: MessageId,
    pub(super) lease: Lease,
    pub(super) state: LeaseState,
    /// When the lease is too old to be extended; `None` once it is.
    ages_at: Option<Moment>,
    is_too_old: bool,
    /// When it counts as stuck; `None` once it does.
    stuck_at: Option<Moment>,
    started: Moment,
    /// When the lease was certainly valid last: before the claim or extension was sent.
    since: Moment,
    cancelled: bool,
    asked: Asked,
    /// If its extension failed, and parts of the queue can fail alone: when it failed alone, or the
    /// start if it has only failed with others.
    suspect: Option<Moment>,
    /// Boxed, because most handlers save nothing.
    saving: Option<Box<Saving>>,
}

/// Whether to extend a lease at once, because its message may have been cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    No,
    Yes,
    /// The extension in progress was sent after that.
    Sent,
}

/// The knowledge about a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseState {
    /// Held.
    Held,
    /// Held, but no longer extended.
    NotExtended,
    /// Expired by this process's clock; the queue may not have taken it back (G7).
    Expired,
    /// No longer the current lease, according to the queue (G6).
    Lost,
}

impl Leases {
    pub(super) fn new(plan: &QueuePlan) -> Self {
        Self {
            lease: plan.lease,
            cancel_within: plan.cancel_within,
            max_age: plan.max_lease_age,
            stuck_after: plan.stuck_after,
            held: HashMap::new(),
            latest: HashMap::new(),
            kept: HashMap::new(),
            under_way: None,
            saves_at: Moment::START,
            retry_at: None,
            backoff: FAILURES,
            has_parts: plan.has_parts,
            together: 1,
            failing_at: Moment::START,
            next: None,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    pub(super) fn slots(&self) -> impl Iterator<Item = Slot> {
        self.held.keys().copied()
    }

    /// Adds a handler whose lease may have been running since `since`.
    pub(super) fn insert(
        &mut self,
        (slot, id, lease): (Slot, MessageId, Lease),
        (started, since): (Moment, Moment),
        todo: &mut VecDeque<Action>,
    ) {
        // A redelivered message has cost an earlier handler in this process its lease.
        let earlier = self.latest.insert(id.clone(), slot);
        if let Some((slot, held)) =
            earlier.and_then(|slot| self.held.get_mut(&slot).map(|held| (slot, held)))
        {
            held.lose(slot, LeaseState::Lost, todo);
        }
        // Nor is that of its hand-off.
        self.kept.remove(&id);
        let held = Held {
            id,
            lease,
            state: LeaseState::Held,
            ages_at: self.max_age.map(|age| since.after(age)),
            is_too_old: false,
            stuck_at: self.stuck_after.map(|time| started.after(time)),
            started,
            since,
            cancelled: false,
            asked: Asked::No,
            suspect: None,
            saving: None,
        };
        let first = held.next(self.beat(), self.lease());
        self.next = self.next.into_iter().chain(first).min();
        self.held.insert(slot, held);
    }

    pub(super) fn remove(&mut self, slot: Slot) -> Option<Held> {
        let held = self.held.remove(&slot)?;
        if self.latest.get(&held.id) == Some(&slot) {
            self.latest.remove(&held.id);
        }
        Some(held)
    }

    /// Continues to extend the lease of a handler that has ended with a hand-off, as if it were
    /// still running, unless it is too old.
    pub(super) fn keep(&mut self, held: Held) {
        if !held.is_too_old {
            let Held { id, lease, since, ages_at, suspect, .. } = held;
            let kept = Kept { lease, since, ages_at, suspect };
            self.next = self.next.into_iter().chain([kept.next(self.beat())]).min();
            self.kept.insert(id, kept);
        }
    }

    /// Forgets the leases of hand-offs that the queue has answered.
    pub(super) fn settled<'a>(&mut self, items: impl Iterator<Item = &'a Settlement>) {
        if !self.kept.is_empty() {
            items.for_each(|item| {
                if self.kept.get(&item.id).is_some_and(|kept| kept.lease == item.lease) {
                    self.kept.remove(&item.id);
                }
            });
        }
    }

    pub(super) fn cancel_all(&mut self, reason: CancelReason, todo: &mut VecDeque<Action>) {
        for (slot, held) in &mut self.held {
            held.cancel(*slot, reason, todo);
        }
    }

    /// Extends the lease of a message at once, if it has a handler: it may have been cancelled.
    pub(super) fn ask(&mut self, id: &MessageId) {
        let held = self.latest.get(id).and_then(|slot| self.held.get_mut(slot));
        if let Some(held) = held.filter(|held| held.state == LeaseState::Held && !held.cancelled) {
            held.asked = Asked::Yes;
            self.plan();
        }
    }

    /// Takes what a handler saves. An extension stores it at once, or a second after the latest one
    /// that stored something.
    pub(super) fn save(
        &mut self,
        slot: Slot,
        progress: Option<Progress>,
        checkpoint: Option<Bytes>,
    ) {
        let Some(held) = self.held.get_mut(&slot) else { return };
        held.saving.get_or_insert_default().note(progress, checkpoint);
        if held.state == LeaseState::Held && self.under_way.is_none() {
            let at = self.retry_at.unwrap_or(Moment::START).max(self.saves_at);
            self.next = self.next.into_iter().chain([at]).min();
        }
    }

    /// When to call [`beat_at`](Self::beat_at) next.
    pub(super) const fn next(&self) -> Option<Moment> {
        self.next
    }

    /// Notes expired leases, and returns an extension if it is time for one.
    pub(super) fn beat_at(&mut self, now: Moment, todo: &mut VecDeque<Action>) -> Option<Extend> {
        if self.next.is_none_or(|next| now < next) {
            return None;
        }
        let lease = self.lease();
        for (slot, held) in &mut self.held {
            held.grow_older(now, *slot, lease, todo);
        }
        self.kept.retain(|_, kept| kept.ages_at.is_none_or(|ages_at| now < ages_at));
        let ready = self.under_way.is_none() && self.retry_at.is_none_or(|retry| now >= retry);
        let extend = if ready {
            self.extension(now, false).or_else(|| self.extension(now, true))
        } else {
            None
        };
        self.plan();
        extend
    }

    /// Returns an extension if it is time for one: of suspects, or of all other leases.
    fn extension(&mut self, now: Moment, of_suspects: bool) -> Option<Extend> {
        let beat = self.beat();
        let is_wanted = |suspect: Option<Moment>| match suspect {
            Some(failed) => of_suspects && (failed == Moment::START || now >= self.failing_at),
            None => !of_suspects,
        };
        let firm = || {
            let held = self.held.iter();
            held.filter(|(_, it)| it.state == LeaseState::Held && is_wanted(it.suspect))
        };
        let kept = || self.kept.iter().filter(|(_, it)| is_wanted(it.suspect));
        let is_asked = firm().any(|(_, held)| held.asked == Asked::Yes);
        let mut since =
            firm().map(|(_, held)| held.since).chain(kept().map(|(_, kept)| kept.since));
        let saves = now >= self.saves_at && firm().any(|(_, held)| held.is_unsaved());
        if !is_asked && !saves && !since.any(|since| now >= since.after(beat)) {
            return None;
        }
        // The others are included unless quite fresh: one extension instead of many.
        let is_due = |since: Moment| now >= since.after(beat / 2);
        let saves_now = |held: &Held| saves && held.is_unsaved();
        let due = firm()
            .filter(|(_, held)| held.asked == Asked::Yes || is_due(held.since) || saves_now(held));
        let mut slots: Vec<_> = due.collect();
        let mut hand_offs: Vec<_> = kept().filter(|(_, kept)| is_due(kept.since)).collect();
        if of_suspects {
            // First the leases that have not failed alone, then the one with the oldest failure.
            let of_slots = slots.iter().map(|(_, held)| held.suspect);
            let first = of_slots.chain(hand_offs.iter().map(|(_, kept)| kept.suspect)).min();
            slots.retain(|(_, held)| Some(held.suspect) == first);
            hand_offs.retain(|(_, kept)| Some(kept.suspect) == first);
            let fresh = first == Some(Some(Moment::START));
            let most = if fresh { self.together } else { 1 };
            slots.truncate(most);
            hand_offs.truncate(most.saturating_sub(slots.len()));
        }
        hand_offs.truncate(MAX_BATCH.saturating_sub(slots.len()));
        let held = slots.iter().map(|(_, held)| (held.id.clone(), held.lease));
        let kept = hand_offs.iter().map(|(id, kept)| ((*id).clone(), kept.lease));
        let leases: Vec<_> = held.chain(kept).collect();
        let kept = hand_offs.into_iter().map(|(id, _)| id.clone()).collect();
        let slots: Vec<_> = slots.into_iter().map(|(slot, _)| *slot).collect();
        for slot in &slots {
            self.held.entry(*slot).and_modify(|held| held.asked.sent());
        }
        let saves = if saves { self.take_saves(now, &slots) } else { Vec::new() };
        self.under_way = Some(Extension { slots, kept, sent: now, of_suspects });
        Some(Extend::new(leases, self.lease).saves(saves))
    }

    /// Returns the saves of these slots that are not stored yet. Saves beyond one operation wait
    /// for the next.
    fn take_saves(&mut self, now: Moment, slots: &[Slot]) -> Vec<(MessageId, Save)> {
        let (mut saves, mut bytes) = (Vec::new(), 0);
        for slot in slots {
            let Some(held) = self.held.get_mut(slot) else { continue };
            let Some(saving) = held.saving.as_mut() else { continue };
            let Some(save) = saving.unsaved() else { continue };
            bytes += save.bytes();
            if bytes > MAX_BATCH_BYTES {
                break;
            }
            saving.sent();
            saves.push((held.id.clone(), save));
        }
        self.saves_at = now.after(SAVES);
        saves
    }

    pub(super) fn extended(&mut self, items: Vec<Extended>, todo: &mut VecDeque<Action>) {
        let Some(extension) = self.under_way.take() else { return };
        let Extension { slots, kept, sent, of_suspects } = extension;
        self.retry_at = None;
        if of_suspects {
            self.together = self.together.saturating_mul(2).min(MAX_BATCH);
        }
        if of_suspects || !self.has_parts {
            self.backoff.reset();
        }
        let was_failing = slots.iter().any(|slot| {
            self.held.get(slot).is_some_and(|it| it.suspect.is_some_and(|at| at > Moment::START))
        });
        if was_failing {
            // That part works again.
            let again = |suspect: &mut Option<Moment>| *suspect = suspect.map(|_| Moment::START);
            self.held.values_mut().for_each(|held| again(&mut held.suspect));
            self.kept.values_mut().for_each(|kept| again(&mut kept.suspect));
        }
        let mut items = items.into_iter();
        for (slot, extended) in slots.into_iter().zip(items.by_ref()) {
            let Some(held) = self.held.get_mut(&slot) else { continue };
            held.asked.answered();
            held.suspect = None;
            match extended {
                Extended::Done { cancel_requested, .. } => {
                    held.since = sent;
                    held.saving.iter_mut().for_each(|saving| saving.confirmed());
                    if cancel_requested {
                        held.cancel(slot, CancelReason::Requested, todo);
                    }
                }
                Extended::Stale | Extended::Missing => held.lose(slot, LeaseState::Lost, todo),
            }
        }
        for (id, extended) in kept.into_iter().zip(items) {
            match extended {
                Extended::Done { .. } => {
                    let is_extended = |kept: &mut Kept| (kept.since, kept.suspect) = (sent, None);
                    self.kept.entry(id).and_modify(is_extended);
                }
                Extended::Stale | Extended::Missing => {
                    self.kept.remove(&id);
                }
            }
        }
        self.plan();
    }

    pub(super) fn failed(&mut self, now: Moment, rng: &mut Rng) {
        let Some(Extension { slots, kept, .. }) = self.under_way.take() else { return };
        let retry_at = now.after(self.backoff.next(rng.chance()));
        // Of several, only some may have failed.
        let is_alone = slots.len() + kept.len() == 1;
        let suspect = self.has_parts.then_some(if is_alone { now } else { Moment::START });
        for slot in slots {
            self.held.entry(slot).and_modify(|held| {
                held.asked.failed();
                held.saving.iter_mut().for_each(|saving| saving.failed());
                held.suspect = suspect;
            });
        }
        for id in kept {
            self.kept.entry(id).and_modify(|kept| kept.suspect = suspect);
        }
        if self.has_parts {
            self.together = 1;
            if is_alone {
                self.failing_at = retry_at;
            }
        } else {
            self.retry_at = Some(retry_at);
        }
        self.plan();
    }

    /// Held leases are extended after a third of their duration, or more often. While that is
    /// impossible, the next event is that one expires.
    fn plan(&mut self) {
        let (lease, beat) = (self.lease(), self.beat());
        let retry_at = self.retry_at.unwrap_or(Moment::START);
        let beats = self.under_way.is_none();
        let retry_at = |suspect: Option<Moment>| match suspect {
            None => retry_at,
            Some(Moment::START) => Moment::START,
            Some(_) => self.failing_at,
        };
        let next = |held: &Held| {
            let retry_at = retry_at(held.suspect);
            let beat = match held.asked {
                _ if !beats => lease,
                Asked::Yes => retry_at.since(held.since),
                _ => retry_at.since(held.since).max(beat),
            };
            held.next(beat, lease)
        };
        let held = self.held.values().filter_map(next);
        let kept = self.kept.values().filter(|_| beats);
        let kept = kept.map(|kept| kept.next(retry_at(kept.suspect).since(kept.since).max(beat)));
        let is_unsaved = |held: &&Held| held.state == LeaseState::Held && held.is_unsaved();
        let unsaved = self.held.values().filter(|_| beats).filter(is_unsaved);
        let saves = unsaved.map(|held| retry_at(held.suspect).max(self.saves_at)).min();
        self.next = held.chain(kept).chain(saves).min();
    }

    fn beat(&self) -> Duration {
        let third = self.lease() / 3;
        self.cancel_within.map_or(third, |within| third.min(within))
    }

    fn lease(&self) -> Duration {
        Duration::from(self.lease)
    }
}

impl Asked {
    fn sent(&mut self) {
        self.change(Self::Yes, Self::Sent);
    }

    fn answered(&mut self) {
        self.change(Self::Sent, Self::No);
    }

    fn failed(&mut self) {
        self.change(Self::Sent, Self::Yes);
    }

    fn change(&mut self, from: Self, to: Self) {
        if *self == from {
            *self = to;
        }
    }
}

impl Kept {
    /// When something must be done about it, if it is extended `beat` after the last time.
    fn next(&self, beat: Duration) -> Moment {
        self.ages_at.into_iter().fold(self.since.after(beat), Moment::min)
    }
}

impl Held {
    /// Returns what the queue has not confirmed of what the handler has saved.
    pub(super) fn unsaved(&self) -> Option<Save> {
        self.saving.as_ref().and_then(|saving| saving.unsaved())
    }

    fn is_unsaved(&self) -> bool {
        self.saving.as_ref().is_some_and(|saving| saving.is_unsaved())
    }

    /// When something must be done about it, if it is extended `beat` after the last time.
    fn next(&self, beat: Duration, lease: Duration) -> Option<Moment> {
        let end = match self.state {
            LeaseState::Held => Some(self.since.after(beat.min(lease))),
            LeaseState::NotExtended => Some(self.since.after(lease)),
            LeaseState::Expired | LeaseState::Lost => None,
        };
        [end, self.ages_at, self.stuck_at].into_iter().flatten().min()
    }

    fn grow_older(
        &mut self,
        now: Moment,
        slot: Slot,
        lease: Duration,
        todo: &mut VecDeque<Action>,
    ) {
        if self.ages_at.is_some_and(|ages_at| now >= ages_at) {
            (self.ages_at, self.is_too_old) = (None, true);
            if self.state == LeaseState::Held {
                self.state = LeaseState::NotExtended;
                self.cancel(slot, CancelReason::LeaseTooOld, todo);
            }
        }
        if self.stuck_at.is_some_and(|stuck_at| now >= stuck_at) {
            self.stuck_at = None;
            todo.push_back(Action::Stuck { slot, running: now.since(self.started) });
        }
        let holds = matches!(self.state, LeaseState::Held | LeaseState::NotExtended);
        if holds && now >= self.since.after(lease) {
            self.lose(slot, LeaseState::Expired, todo);
        }
    }

    fn lose(&mut self, slot: Slot, state: LeaseState, todo: &mut VecDeque<Action>) {
        self.state = state;
        self.cancel(slot, CancelReason::LeaseLost, todo);
    }

    /// The first reason wins.
    fn cancel(&mut self, slot: Slot, reason: CancelReason, todo: &mut VecDeque<Action>) {
        if !self.cancelled {
            self.cancelled = true;
            todo.push_back(Action::Cancel { slot, reason });
        }
    }
}

/// The shortest time between two extensions of a queue's leases that save something.
const SAVES: Duration = Duration::from_secs(1);
