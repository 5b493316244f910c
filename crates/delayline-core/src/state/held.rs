//! What keeps a queue from being removed.

use super::State;
use crate::Timestamp;

/// What a queue holds that its removal would lose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Held {
    /// Messages in any state.
    pub messages: u64,
    /// Results of acks that are kept.
    pub results: u64,
    /// Ids that are throttled.
    pub throttled: u64,
    /// Elements that relays have moved, until a program takes them.
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
    /// Returns what the queue holds at the instant `now`. Ids of finished messages do not count:
    /// they keep repeated sends away for an hour only.
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
