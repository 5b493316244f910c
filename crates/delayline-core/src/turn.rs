//! Turns: settlements and a claim in one step.

use crate::limits::MAX_BATCH;
use crate::op::{batch, validate_claim};
use crate::{Claim, Claimed, Settled, Settlement, Violation};

/// Ends leases, then claims: what a worker does between two messages, in one call.
///
/// The settlements come first, so the claim may lease a message that one of them has just given back.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Turn {
    /// The leases to end: at least one. Settlements and [`Claim::max`] together are at most
    /// [`MAX_BATCH`].
    pub settlements: Vec<Settlement>,
    /// The claim. While the queue is paused, the turn settles only.
    pub claim: Claim,
}

impl Turn {
    /// Settlements, and the claim that follows them.
    #[must_use]
    pub const fn new(settlements: Vec<Settlement>, claim: Claim) -> Self {
        Self { settlements, claim }
    }
}

/// The result of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Turned {
    /// The result of each settlement, in order.
    pub settled: Vec<Settled>,
    /// The result of the claim.
    pub claimed: Claimed,
}

impl Turned {
    /// The results of the settlements and of the claim.
    #[must_use]
    pub const fn new(settled: Vec<Settled>, claimed: Claimed) -> Self {
        Self { settled, claimed }
    }
}

pub(crate) fn validate(turn: &Turn) -> Result<(), Violation> {
    const WHAT: &str = "the turn";
    batch(WHAT, turn.settlements.iter().map(|item| &item.id))?;
    turn.settlements.iter().try_for_each(Settlement::validate)?;
    validate_claim(&turn.claim)?;
    let items = turn.settlements.len() + turn.claim.max;
    Violation::at_most(WHAT, "settlements and messages", items, MAX_BATCH)
}
