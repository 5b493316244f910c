//! The order in which groups are served.

use std::collections::{HashSet, VecDeque};

/// The ring of lanes that wait for their turn. A lane that is served goes to its end while it has
/// more messages. Every lane with messages is in it once; empty lanes leave it when a claim meets
/// them.
#[derive(Clone, Debug, Default)]
pub(super) struct Turns {
    ring: VecDeque<u64>,
    members: HashSet<u64>,
}

impl Turns {
    /// The lane of messages without a group, which stay in the index of their priority.
    pub(super) const NO_GROUP: u64 = 0;

    #[cfg(feature = "serde")]
    pub(super) fn of(ring: Vec<u64>) -> Self {
        Self { members: ring.iter().copied().collect(), ring: ring.into() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    pub(super) fn contains(&self, lane: u64) -> bool {
        self.members.contains(&lane)
    }

    /// Iterates over the lanes, the next one first.
    pub(super) fn all(&self) -> impl Iterator<Item = u64> {
        self.ring.iter().copied()
    }

    /// Adds a lane to the end, unless it is in the ring.
    pub(super) fn join(&mut self, lane: u64) {
        if self.members.insert(lane) {
            self.ring.push_back(lane);
        }
    }

    /// Removes the next lane.
    pub(super) fn leave(&mut self) -> Option<u64> {
        let lane = self.ring.pop_front()?;
        self.members.remove(&lane);
        Some(lane)
    }
}
