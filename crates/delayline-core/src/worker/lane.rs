//! One queue of a worker.

use std::collections::VecDeque;
use std::time::Duration;

use super::bell::Bell;
use super::claims::Claims;
use super::leases::{Held, Leases};
use super::rng::Rng;
use super::settles::{Settles, Settling};
use super::summary::count;
use super::{Action, Moment, QueuePlan};
use crate::{Backoff, Claim, ErrorClass, HandOff, Op, Outcome, Settlement, Timestamp};

/// A queue's claims, leases, settlements and hints, and its share of the worker.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) claims: Claims,
    pub(super) leases: Leases,
    /// The results of handlers.
    pub(super) settles: Settles<Settlement>,
    /// Those with messages that follow, or a result. Apart, since a full server refuses them only.
    pub(super) hand_offs: Settles<HandOff>,
    pub(super) bell: Bell,
    /// Between claims while handlers give everything back at once.
    give_backs: Backoff,
    pub(super) weight: u64,
    /// The maximum number of its handlers at once.
    most: usize,
    /// The slots of the worker.
    slots: usize,
    /// How much it has been served, relative to its weight.
    pub(super) served: u64,
}

/// What a queue may need at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Settlements to send, leases to extend.
    Upkeep,
    /// An open claim to repeat.
    Resend,
    /// An open claim whose slots other queues may use from now on.
    Lend,
    /// A new claim, if the worker has room.
    Claim,
    /// A claim for no messages, if the worker has no room.
    Sort,
    /// A wait for hints, if the worker has room.
    Wait,
    /// A hint, or a promise to the queue, to hand on.
    HandOn,
    /// The same, if handlers have all slots.
    HandOnIfFull,
}

/// The number of kinds of needs.
pub(super) const NEEDS: usize = 8;

/// Totals over queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    /// Running handlers.
    pub(super) handlers: usize,
    /// Slots reserved for open claims.
    pub(super) reserved: usize,
    /// Unconfirmed settlements.
    pub(super) unsettled: usize,
}

impl Lane {
    pub(super) fn new(plan: QueuePlan, slots: usize, longest_poll: Duration) -> Self {
        Self {
            leases: Leases::new(&plan),
            claims: Claims::new(plan.consumer, plan.lease, longest_poll),
            settles: Settles::new(plan.has_parts),
            hand_offs: Settles::new(plan.has_parts),
            bell: Bell::new(),
            give_backs: GIVE_BACKS,
            weight: u64::from(plan.weight.get()),
            most: plan.most,
            slots,
            served: 0,
        }
    }

    /// When it needs what, in the order of [`Need`]. `among_others`: it shares its worker.
    pub(super) fn needs(&self, among_others: bool) -> [Option<Moment>; NEEDS] {
        let Self { claims, leases, settles, hand_offs, bell, .. } = self;
        let upkeep = [settles.next(), hand_offs.next(), leases.next()].into_iter().flatten().min();
        // While nothing can be settled, claimed messages could not be settled either; and a claim
        // could reclaim the expired lease of a waiting settlement.
        let may_claim = !settles.is_failing() && !hand_offs.is_failing();
        let has_room = self.room(usize::MAX) > 0;
        let hears = may_claim && has_room && !claims.is_failing();
        let unheard_since = if among_others { bell.unheard_since() } else { None };
        let hand_on = self.hand_on_at();
        [
            upkeep,
            claims.resend_at().filter(|_| may_claim),
            claims.lend_at().filter(|_| among_others),
            claims.new_at(unheard_since).filter(|_| may_claim && has_room),
            claims.sort_at().filter(|_| may_claim),
            bell.next().filter(|_| hears),
            hand_on.filter(|_| !hears),
            hand_on.filter(|_| hears),
        ]
    }

    /// When to hand on a hint, or a promise to the queue, for lack of room.
    fn hand_on_at(&self) -> Option<Moment> {
        // The reply to a claim may make room.
        if self.bell.ringing || self.claims.is_under_way() {
            return None;
        }
        if self.bell.hint {
            return Some(Moment::START);
        }
        if self.claims.promised { self.claims.new_at(None) } else { None }
    }

    pub(super) const fn settles(&mut self) -> &mut Settles<Settlement> {
        &mut self.settles
    }

    pub(super) const fn hand_offs(&mut self) -> &mut Settles<HandOff> {
        &mut self.hand_offs
    }

    /// Takes the end of a handler. A full server may refuse a hand-off for long, so its lease is
    /// renewed until it is accepted.
    pub(super) fn finish(&mut self, held: Held, item: HandOff) {
        if !item.is_plain() {
            self.leases.keep(held);
        }
        self.settle(item);
    }

    /// Takes a settlement, with messages and a result.
    pub(super) fn settle(&mut self, item: HandOff) {
        if item.is_plain() {
            self.settles.push(item.settlement);
        } else {
            self.hand_offs.push(item);
        }
    }

    /// Returns the settlements, the hand-offs and the extension to send, if it is time for them.
    /// `is_working`: the worker has not been stopped.
    pub(super) fn send(
        &mut self,
        now: Moment,
        is_working: bool,
        rng: &mut Rng,
        todo: &mut VecDeque<Action>,
    ) -> [Option<Op>; 3] {
        let (mut settle, mut hand_off) = (self.settles.send(now), self.hand_offs.send(now));
        let settled = settle.iter().flatten();
        let handed_off = hand_off.iter().flatten().map(|item| &item.settlement);
        let mut outcomes = settled.chain(handed_off).map(|item| &item.outcome).peekable();
        if outcomes.peek().is_some() {
            // Avoids a hot loop of claims and releases.
            let now_there = self.claims.now_there();
            if outcomes.all(|outcome| gives_back_at_once(outcome, now_there)) {
                self.claims.hold(now.after(self.give_backs.next(rng.chance())));
            } else {
                self.give_backs.reset();
                if is_working && self.claims.is_capped() {
                    // This worker claims for the slots that it frees, as after a hint.
                    settle.iter_mut().flatten().for_each(claim_next);
                    hand_off.iter_mut().flatten().for_each(claim_next);
                    self.bell.hint = true;
                    self.claims.hurry(now);
                }
            }
        }
        let extend = self.leases.beat_at(now, todo);
        [settle.map(Op::Settle), hand_off.map(Op::HandOff), extend.map(Op::Extend)]
    }

    /// Returns the claim to send: the unanswered one, or a new one for `room` free slots.
    pub(super) fn claim(&mut self, now: Moment, room: usize, rng: &mut Rng) -> Claim {
        self.bell.used |= self.claims.promised | std::mem::take(&mut self.bell.hint);
        self.claims.send(now, room, rng)
    }

    /// Takes the failure of a claim. While claims fail here, other workers need its hint.
    pub(super) fn claim_failed(
        &mut self,
        now: Moment,
        claim: Claim,
        class: ErrorClass,
        rng: &mut Rng,
    ) {
        self.bell.hint |= std::mem::take(&mut self.bell.used);
        self.claims.failed(now, claim, class, rng);
    }

    /// Returns a claim for no messages. The hint stays for workers with room.
    pub(super) fn sort(&mut self, now: Moment, rng: &mut Rng) -> Claim {
        self.bell.used |= self.claims.promised;
        self.claims.send(now, 0, rng)
    }

    /// The slots that it holds, or reserves for its open claim.
    fn taken(&self) -> usize {
        self.leases.len().saturating_add(self.claims.reserved())
    }

    pub(super) fn totals(&self) -> Totals {
        let (handlers, reserved) = (self.leases.len(), self.claims.reserved());
        Totals { handlers, reserved, unsettled: self.settles.len() + self.hand_offs.len() }
    }

    /// Returns how many of `free` slots it may take. Limits how many settlements pile up.
    pub(super) fn room(&self, free: usize) -> usize {
        let taken = self.taken();
        let backlog = self.settles.backlog().saturating_add(self.hand_offs.backlog());
        let unsettled = self.slots.saturating_mul(2).saturating_sub(backlog);
        free.min(self.most.min(unsettled).saturating_sub(taken))
    }

    /// Whether it may not use all slots of its worker.
    pub(super) const fn is_limited(&self) -> bool {
        self.most < self.slots
    }

    /// Notes that it was served `n` messages, when queues that are never idle had `least`.
    pub(super) fn serve(&mut self, n: u64, least: u64) {
        // Unused shares of idle times are not made up for later.
        let served = self.served.max(least);
        self.served = served.saturating_add(n.saturating_mul(SHARE) / self.weight);
    }
}

fn claim_next(item: &mut impl Settling) {
    item.settlement_mut().claims_next = true;
}

/// Whether a message is due again at once, on a server whose clock shows at least `now`.
fn gives_back_at_once(outcome: &Outcome, now: Timestamp) -> bool {
    match outcome {
        Outcome::Release => true,
        Outcome::Snooze { schedule } => schedule.instant(now) <= now,
        _ => false,
    }
}

/// Returns the share of `room` for `one`, which is an element of `all`: each has a weight and a
/// maximum. What one cannot use goes to the others.
pub(super) fn share(room: usize, one: (u64, usize), mut all: Vec<(u64, usize)>) -> usize {
    let even = |left: usize, weight: u64, weights: u64| {
        let part = u64::try_from(left).unwrap_or(u64::MAX).saturating_mul(weight);
        usize::try_from(part.div_ceil(weights.max(1))).unwrap_or(left)
    };
    // Queues with the lowest maximum for their weight are first: once one can use an even share, so
    // can all others.
    let product = |most: usize, weight: u64| u128::from(count(most)) * u128::from(weight);
    all.sort_by(|a, b| product(a.1, b.0).cmp(&product(b.1, a.0)));
    let mut weights = all.iter().map(|(weight, _)| *weight).sum::<u64>();
    let mut left = room;
    for (weight, most) in all {
        if most >= even(left, weight, weights) {
            break;
        }
        left = left.saturating_sub(most);
        weights = weights.saturating_sub(weight);
    }
    let (weight, most) = one;
    even(left, weight, weights).min(most).min(room)
}

/// One message at weight 1. Divisible by many weights.
const SHARE: u64 = 720_720;
/// Between claims while handlers only give messages back at once.
const GIVE_BACKS: Backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(100));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_go_by_weight_and_nothing_is_left_over() {
        let all = vec![(1, 20), (3, 20), (9, 2)];
        let shares: Vec<_> = all.iter().map(|one| share(20, *one, all.clone())).collect();
        assert_eq!(shares, [5, 14, 2]);
        assert_eq!(share(20, (1, 20), vec![(1, 20)]), 20);
        assert_eq!(share(20, (1, 7), vec![(1, 7)]), 7);
        assert_eq!(share(1, (1, 1), vec![(1, 1), (65_535, 1)]), 1);
        assert_eq!(share(10, (1, 1), vec![(1, 1), (1, 1)]), 1);
        assert_eq!(
            share(usize::MAX, (1, usize::MAX), vec![(1, usize::MAX); 2]),
            usize::MAX / 2 + 1
        );
    }
}
