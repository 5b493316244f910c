//! The contents that keep a queue from being removed.

use super::State;
use crate::Timestamp;

/// The contents of a queue that its removal would lose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Held {
    /// Number of messages, in any state.
    pub messages: u64,
    /// Number of results of acks that are kept.
    pub results: u64,
    /// Number of ids that are throttled.
    pub throttled: u64,
    /// Number of elements that relays have moved and no program has taken yet.
    pub relayed: u64,
}

impl Held {
    /// Returns `true` if the queue holds nothing.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.messages == 0 && self.results == 0 && self.throttled == 0 && self.relayed == 0
    }
}

impl State {
    /// Returns the contents at the instant `now`. Ids of finished messages do not count, because
    /// they are remembered for a short time only.
    #[must_use]
    pub fn held(&self, now: Timestamp) -> Held {
        let count = |len: usize| u64::try_from(len).unwrap_or(u64::MAX);
        Held {
            messages: count(self.entries.len()),
            results: count(self.results.kept(now)),
            throttled: count(self.windows.open(now)),
            relayed: count(self.destinations.values().map(Vec::len).sum()),
        }
    }
}
