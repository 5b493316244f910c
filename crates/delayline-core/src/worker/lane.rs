//! One queue of a worker.

use std::time::Duration;

use super::bell::Bell;
use super::claims::Claims;
use super::leases::Leases;
use super::settles::Settles;
use super::{Moment, QueuePlan};

/// One queue's claims, leases, settlements and hints, and its share of the worker.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) claims: Claims,
    pub(super) leases: Leases,
    pub(super) settles: Settles,
    pub(super) bell: Bell,
    pub(super) census: Census,
    pub(super) weight: u64,
    /// How many of its messages may be handled at once.
    most: usize,
    /// How much it has been served, in shares of its weight.
    pub(super) served: u64,
}

/// The question whether the queue is empty.
#[derive(Debug, Default)]
pub(super) struct Census {
    pub(super) under_way: bool,
    /// Something has happened since it was asked last.
    pub(super) ask: bool,
    pub(super) empty: bool,
}

impl Lane {
    pub(super) fn new(plan: QueuePlan, longest_poll: Duration) -> Self {
        Self {
            leases: Leases::new(&plan),
            claims: Claims::new(plan.consumer, plan.lease, longest_poll),
            settles: Settles::new(),
            bell: Bell::new(),
            census: Census::default(),
            weight: u64::from(plan.weight.get()),
            most: plan.most,
            served: 0,
        }
    }

    /// Whether claims may be sent: while nothing can be settled, what would be claimed could not be
    /// settled either; and what waits to be settled must not run out because a claim takes it back
    /// first.
    pub(super) const fn may_claim(&self) -> bool {
        !self.settles.is_failing()
    }

    /// Whether a claim is to be sent now.
    pub(super) fn wants_to_claim(&self, now: Moment, room: usize) -> bool {
        let next = self.claims.next(self.room(room) > 0);
        self.may_claim() && next.is_some_and(|due| now >= due)
    }

    /// Slots that it holds, or keeps free for its open claim.
    pub(super) fn taken(&self) -> usize {
        self.leases.len().saturating_add(self.claims.reserved())
    }

    /// How many of so many free slots it may have.
    pub(super) fn room(&self, free: usize) -> usize {
        free.min(self.most.saturating_sub(self.taken()))
    }

    /// Notes that it was served `n` messages, when queues that are never idle had `least`.
    pub(super) fn serve(&mut self, n: u64, least: u64) {
        // What it did not use while it was idle it does not get afterwards.
        let served = self.served.max(least);
        self.served = served.saturating_add(n.saturating_mul(SHARE) / self.weight);
    }

    pub(super) fn is_idle(&self) -> bool {
        self.leases.len() == 0 && self.settles.len() == 0
    }
}

/// The share of `room` that belongs to `one` among `all` of which it is one: each has a weight, and
/// the most it can use. What one cannot use, the others have.
pub(super) fn share(room: usize, one: (u64, usize), mut all: Vec<(u64, usize)>) -> usize {
    let (weight, most) = one;
    let mut left = room;
    loop {
        let weights = all.iter().map(|(weight, _)| *weight).sum::<u64>().max(1);
        let even = |weight: u64| {
            let part = u64::try_from(left).unwrap_or(u64::MAX).saturating_mul(weight);
            usize::try_from(part.div_ceil(weights)).unwrap_or(left)
        };
        let narrow = all.iter().position(|(weight, most)| *most < even(*weight));
        match narrow {
            Some(narrow) => left = left.saturating_sub(all.swap_remove(narrow).1),
            None => return even(weight).min(most).min(room),
        }
    }
}

/// One message at weight 1. A multiple of many weights.
const SHARE: u64 = 720_720;

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
