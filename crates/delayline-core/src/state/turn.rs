//! Settlements and a claim in one step.

use super::{Changes, State};
use crate::{Timestamp, Turn, Turned};

impl State {
    /// Ends leases, then claims, also what that has given back.
    pub(super) fn turn(&mut self, now: Timestamp, turn: &Turn, changes: &mut Changes) -> Turned {
        let settled = turn.settlements.iter().map(|item| self.settle(now, item, changes)).collect();
        Turned { settled, claimed: self.claim(now, &turn.claim, changes) }
    }
}
