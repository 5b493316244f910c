//! The order in which groups are served.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::Timestamp;

/// The ring of lanes that wait for their turn. A lane that was served goes to the end of the ring
/// if it has more messages. Every lane with messages is in the ring once, unless it waits for a
/// slot or is held. Empty lanes leave the ring when a claim meets them.
#[derive(Clone, Debug, Default)]
pub(super) struct Turns {
    /// Lanes by their turns.
    ring: BTreeMap<u64, u64>,
    /// The lanes of the ring, with their turns: a hold may take any of them out.
    members: HashMap<u64, u64>,
    /// The turn of the lane that joins the ring next.
    next: u64,
    /// Lanes that wait for a slot of their group.
    blocked: BTreeSet<u64>,
    /// Lanes that are held, and until when.
    held: HashMap<u64, Timestamp>,
    /// The held lanes by the ends of their holds.
    holds: BTreeSet<(Timestamp, Reverse<u64>)>,
}

impl Turns {
    /// The lane of messages without a group, which stay in the index of their priority.
    pub(super) const NO_GROUP: u64 = 0;

    #[cfg(feature = "serde")]
    pub(super) fn of(ring: Vec<u64>, blocked: Vec<u64>, held: Vec<(u64, Timestamp)>) -> Self {
        let mut turns = Self {
            blocked: blocked.into_iter().collect(),
            holds: held.iter().map(|&(lane, until)| (until, Reverse(lane))).collect(),
            held: held.into_iter().collect(),
            ..Self::default()
        };
        ring.into_iter().for_each(|lane| turns.join(lane));
        turns
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Returns the number of lanes of groups: in the ring, waiting for a slot, or held.
    pub(super) fn groups(&self) -> usize {
        let in_ring = self.ring.len() - usize::from(self.members.contains_key(&Self::NO_GROUP));
        in_ring + self.blocked.len() + self.held.len()
    }

    /// Returns whether a lane is in the ring, waits for a slot, or is held.
    pub(super) fn has_any(&self) -> bool {
        !(self.ring.is_empty() && self.blocked.is_empty() && self.held.is_empty())
    }

    /// Returns whether a lane of a group is in the ring.
    pub(super) fn has_group(&self) -> bool {
        self.ring.len() > usize::from(self.members.contains_key(&Self::NO_GROUP))
    }

    /// Returns whether a lane is in the ring, waits for a slot, or is held.
    pub(super) fn contains(&self, lane: u64) -> bool {
        self.members.contains_key(&lane)
            || self.blocked.contains(&lane)
            || self.held.contains_key(&lane)
    }

    /// Iterates over the lanes of the ring, the next one first.
    pub(super) fn ring(&self) -> impl Iterator<Item = u64> {
        self.ring.values().copied()
    }

    /// Iterates over the lanes that wait for a slot.
    pub(super) fn blocked(&self) -> impl DoubleEndedIterator<Item = u64> {
        self.blocked.iter().copied()
    }

    /// Iterates over the lanes that are held and the ends of their holds, the latest first.
    pub(super) fn held(&self) -> impl DoubleEndedIterator<Item = (u64, Timestamp)> {
        self.holds.iter().rev().map(|&(until, Reverse(lane))| (lane, until))
    }

    /// Returns the end of the hold of a lane, or `None` if it is not held at `now`.
    pub(super) fn held_until(&self, lane: u64, now: Timestamp) -> Option<Timestamp> {
        self.held.get(&lane).copied().filter(|until| *until > now)
    }

    /// Returns the end of the first hold.
    pub(super) fn first_hold(&self) -> Option<Timestamp> {
        self.holds.first().map(|(until, _)| *until)
    }

    /// Takes a lane out of the ring until `until`, or until its present hold ends, if that is
    /// later.
    pub(super) fn hold(&mut self, lane: u64, until: Timestamp) {
        let before = self.held.get(&lane).copied();
        if before.is_some_and(|before| before >= until) {
            return;
        }
        if let Some(before) = before {
            self.holds.remove(&(before, Reverse(lane)));
        }
        self.held.insert(lane, until);
        self.holds.insert((until, Reverse(lane)));
        self.blocked.remove(&lane);
        if let Some(turn) = self.members.remove(&lane) {
            self.ring.remove(&turn);
        }
    }

    /// Adds up to `most` lanes whose holds have ended to the end of the ring. Returns whether there
    /// were any.
    pub(super) fn end_holds(&mut self, now: Timestamp, most: usize) -> bool {
        let ended = self.holds.iter().take_while(|(until, _)| *until <= now).take(most);
        let ended: Vec<_> = ended.copied().collect();
        for hold in &ended {
            let (_, Reverse(lane)) = *hold;
            self.holds.remove(hold);
            self.held.remove(&lane);
            self.join(lane);
        }
        !ended.is_empty()
    }

    /// Adds a lane to the end of the ring, unless it is in it, waits for a slot, or is held.
    pub(super) fn join(&mut self, lane: u64) {
        let is_out = self.blocked.contains(&lane) || self.held.contains_key(&lane);
        if !is_out && !self.members.contains_key(&lane) {
            self.members.insert(lane, self.next);
            self.ring.insert(self.next, lane);
            self.next += 1;
        }
    }

    /// Marks a lane that is not in the ring as waiting for a slot.
    pub(super) fn block(&mut self, lane: u64) {
        self.blocked.insert(lane);
    }

    /// Moves those of `lanes` that are in the ring to the lanes that wait for a slot.
    pub(super) fn block_all(&mut self, lanes: &HashSet<u64>) {
        let is_one = |lane: &u64| *lane != Self::NO_GROUP && lanes.contains(lane);
        self.blocked.extend(self.ring.values().copied().filter(is_one));
        self.ring.retain(|_, lane| !is_one(lane));
        self.members.retain(|lane, _| !is_one(lane));
    }

    /// Adds a lane that waits for a slot to the end of the ring.
    pub(super) fn unblock(&mut self, lane: u64) {
        if self.blocked.remove(&lane) {
            self.join(lane);
        }
    }

    /// Adds all lanes that wait for a slot to the end of the ring.
    pub(super) fn unblock_all(&mut self) {
        for lane in std::mem::take(&mut self.blocked) {
            self.join(lane);
        }
    }

    /// Removes and returns the next lane.
    pub(super) fn leave(&mut self) -> Option<u64> {
        let (_, lane) = self.ring.pop_first()?;
        self.members.remove(&lane);
        Some(lane)
    }
}
