//! The configuration of a worker, built by its builder.

use std::num::NonZeroU16;
use std::time::Duration;

use delayline_core::limits::{MAX_BATCH, MAX_DELAY_MS, MAX_LEASE_MS};
use delayline_core::worker::QueuePlan;
use delayline_core::{Claim, ClaimId, ConsumerName, Durability, Millis, Op, Violation};

use super::handler::Rules;
use super::hook::Hook;
use super::retry::Retry;
use super::stuck::Stuck;
use crate::Error;

/// The configuration of a worker.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// Maximum number of handlers at once.
    pub(super) concurrency: usize,
    pub(super) lease: Millis,
    pub(super) cancel_within: Option<Duration>,
    pub(super) max_lease_age: Option<Duration>,
    pub(super) retry: Retry,
    pub(super) rules: Rules,
    pub(super) stuck_after: Option<Duration>,
    pub(super) on_stuck: Option<Hook<Stuck>>,
    pub(super) on_refusal: Option<Hook<Error>>,
    pub(super) stop_grace: Duration,
    pub(super) until_empty: bool,
    pub(super) consumer: ConsumerName,
    pub(super) claim_durability: Durability,
}

impl Config {
    pub(super) fn queue_plan(&self, weight: NonZeroU16, has_parts: bool) -> QueuePlan {
        QueuePlan {
            consumer: self.consumer.clone(),
            lease: self.lease,
            weight,
            most: self.concurrency,
            cancel_within: self.cancel_within,
            max_lease_age: self.max_lease_age,
            stuck_after: self.stuck_after,
            has_parts,
        }
    }

    /// Checks the limits. Validating a claim for all slots covers the limits of claims.
    pub(super) fn validate(&self) -> Result<(), Violation> {
        self.claim_durability.validate()?;
        if self.concurrency == 0 || self.concurrency > MAX_BATCH {
            return Err(out_of_range("the concurrency", self.concurrency, MAX_BATCH));
        }
        if let Some(bound) = self.cancel_within.filter(|bound| *bound < SHORTEST_BEAT) {
            let (what, most) = ("the milliseconds within which to cancel", MAX_LEASE_MS);
            let actual = u64::try_from(bound.as_millis()).unwrap_or(u64::MAX);
            return Err(Violation::OutOfRange { what, actual, least: 10, most });
        }
        // Dropped before its first poll, each handler would fail.
        if self.rules.limit == Some(Duration::ZERO) {
            return Err(zero("the handler timeout in ms"));
        }
        if self.stuck_after == Some(Duration::ZERO) {
            return Err(zero("the time after which a handler is stuck, in ms,"));
        }
        if self.max_lease_age == Some(Duration::ZERO) {
            return Err(zero("the maximum age of a lease in ms"));
        }
        let claim = Claim::new(
            self.consumer.clone(),
            ClaimId::from_bytes([0; 16]),
            self.concurrency,
            self.lease,
        );
        Op::Claim(claim).validate()
    }
}

/// The error for a time of zero, where leaving the option out means no limit.
const fn zero(what: &'static str) -> Violation {
    Violation::OutOfRange { what, actual: 0, least: 1, most: MAX_DELAY_MS }
}

/// The error for a number of handlers or a weight outside 1 to `most`.
pub(super) fn out_of_range(what: &'static str, actual: usize, most: usize) -> Violation {
    let number = |number| u64::try_from(number).unwrap_or(u64::MAX);
    Violation::OutOfRange { what, actual: number(actual), least: 1, most: number(most) }
}

/// With more heartbeats, the server would do little else.
const SHORTEST_BEAT: Duration = Duration::from_millis(10);
