//! The order in which groups are served.

use std::collections::{BTreeSet, HashSet, VecDeque};

/// The ring of lanes that wait for their turn. A lane that is served goes to its end while it has
/// more messages. Every lane with messages is in it once, unless it waits for a slot; empty lanes
/// leave it when a claim meets them.
#[derive(Clone, Debug, Default)]
pub(super) struct Turns {
    ring: VecDeque<u64>,
    members: HashSet<u64>,
    /// Lanes that wait for a slot of their group.
    blocked: BTreeSet<u64>,
}

impl Turns {
    /// The lane of messages without a group, which stay in the index of their priority.
    pub(super) const NO_GROUP: u64 = 0;

    #[cfg(feature = "serde")]
    pub(super) fn of(ring: Vec<u64>, blocked: Vec<u64>) -> Self {
        Self {
            members: ring.iter().copied().collect(),
            ring: ring.into(),
            blocked: blocked.into_iter().collect(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Whether a lane of a group is in the ring.
    pub(super) fn has_group(&self) -> bool {
        self.ring.len() > usize::from(self.members.contains(&Self::NO_GROUP))
    }

    /// Whether a lane is in the ring, or waits for a slot.
    pub(super) fn contains(&self, lane: u64) -> bool {
        self.members.contains(&lane) || self.blocked.contains(&lane)
    }

    /// Iterates over the lanes of the ring, the next one first.
    pub(super) fn ring(&self) -> impl Iterator<Item = u64> {
        self.ring.iter().copied()
    }

    /// Iterates over the lanes that wait for a slot.
    pub(super) fn blocked(&self) -> impl Iterator<Item = u64> {
        self.blocked.iter().copied()
    }

    /// Adds a lane to the end, unless it is in the ring or waits for a slot.
    pub(super) fn join(&mut self, lane: u64) {
        if !self.blocked.contains(&lane) && self.members.insert(lane) {
            self.ring.push_back(lane);
        }
    }

    /// Lets a lane that is not in the ring wait for a slot.
    pub(super) fn block(&mut self, lane: u64) {
        self.blocked.insert(lane);
    }

    /// Adds a lane that waits for a slot to the end of the ring.
    pub(super) fn unblock(&mut self, lane: u64) {
        if self.blocked.remove(&lane) {
            self.join(lane);
        }
    }

    pub(super) fn unblock_all(&mut self) {
        for lane in std::mem::take(&mut self.blocked) {
            self.join(lane);
        }
    }

    /// Removes the next lane.
    pub(super) fn leave(&mut self) -> Option<u64> {
        let lane = self.ring.pop_front()?;
        self.members.remove(&lane);
        Some(lane)
    }
}
