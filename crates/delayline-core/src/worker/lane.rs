//! One queue of a worker.

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
    pub(super) fn new(plan: QueuePlan) -> Self {
        Self {
            leases: Leases::new(&plan),
            claims: Claims::new(plan.consumer, plan.lease),
            settles: Settles::new(),
            bell: Bell::new(),
            census: Census::default(),
            weight: u64::from(plan.weight.get()),
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
    pub(super) fn wants_to_claim(&self, now: Moment, has_room: bool) -> bool {
        self.may_claim() && self.claims.next(has_room).is_some_and(|due| now >= due)
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

/// One message at weight 1. A multiple of many weights.
const SHARE: u64 = 720_720;
