//! The serialized form of a whole queue: what no derive can do.
//!
//! Indexes are built anew, and the limits are those of the version that reads.

use std::collections::BTreeMap;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::entries::Entries;
use super::entry::{Entry, Place};
use super::results::{Kept, Results};
use super::turns::Turns;
use super::windows::Windows;
use super::{Index, State};
use crate::limits::{FINISHED_RETENTION_MS, JOURNAL_RETENTION_MS, MAX_FINISHED, MAX_JOURNAL};
use crate::{MessageId, Priority, Timestamp};

impl Serialize for State {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for State {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut state = Self::deserialize(deserializer)?;
        state.finished.limit(FINISHED_RETENTION_MS, MAX_FINISHED);
        state.journal.limit(JOURNAL_RETENTION_MS, MAX_JOURNAL);
        if !state.build_indexes() {
            return Err(D::Error::custom("two messages have the same sequence number"));
        }
        Ok(state)
    }
}

impl State {
    /// Builds the indexes of the entries. Returns whether no two messages share a place.
    fn build_indexes(&mut self) -> bool {
        let mut due: [Vec<_>; Priority::ALL.len()] = Default::default();
        let (mut grouped, mut lanes) = (Vec::new(), Vec::new());
        let (mut leased, mut dead) = (Vec::new(), Vec::new());
        let holders = self.entries.values().filter(|entry| entry.has_slot);
        self.slots = holders.map(|entry| (entry.slot_key(), entry.id.clone())).collect();
        for entry in self.entries.values() {
            let found = match entry.place {
                Place::Waiting if entry.group.is_some() => &mut grouped,
                Place::Waiting => &mut due[usize::from(entry.priority.level())],
                Place::Lane => &mut lanes,
                Place::Leased { .. } => &mut leased,
                Place::Dead { .. } => &mut dead,
            };
            found.push((entry.key(), entry.id.clone()));
        }
        // A map is built faster from many sorted entries than one by one.
        let index = |mut found: Vec<((Timestamp, u64), MessageId)>| -> Index {
            found.sort_unstable_by_key(|(key, _)| *key);
            found.into_iter().collect()
        };
        self.due = due.map(index);
        (self.grouped, self.lanes) = (index(grouped), index(lanes));
        (self.leased, self.dead) = (index(leased), index(dead));
        let others = [&self.lanes, &self.leased, &self.dead];
        self.waiting().chain(others).map(Index::len).sum::<usize>() == self.entries.len()
    }
}

/// The messages, in the order of their sequence numbers.
impl Serialize for Entries {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut all: Vec<_> = self.values().collect();
        all.sort_unstable_by_key(|entry| entry.sequence);
        serializer.collect_seq(all)
    }
}

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut entries = Self::default();
        for entry in Vec::<Box<Entry>>::deserialize(deserializer)? {
            if !entries.insert(entry) {
                return Err(D::Error::custom("two messages have the same id"));
            }
        }
        Ok(entries)
    }
}

/// The lanes of the ring, the next one first, then lanes that wait for a slot, and held lanes.
pub(super) mod turns {
    use super::{Deserialize, Deserializer, Serialize, Serializer, Turns};

    pub(in crate::state) fn serialize<S: Serializer>(
        turns: &Turns,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let (ring, blocked): (Vec<_>, Vec<_>) = (turns.ring().collect(), turns.blocked().collect());
        (ring, blocked, turns.held().collect::<Vec<_>>()).serialize(serializer)
    }

    pub(in crate::state) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Turns, D::Error> {
        let (ring, blocked, held) = Deserialize::deserialize(deserializer)?;
        Ok(Turns::of(ring, blocked, held))
    }
}

impl Serialize for Results {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.all().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Results {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        BTreeMap::<MessageId, Kept>::deserialize(deserializer).map(Self::of)
    }
}

impl Serialize for Windows {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.all().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Windows {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let windows = Vec::<(Timestamp, MessageId)>::deserialize(deserializer)?;
        let number = windows.len();
        Some(Self::of(windows))
            .filter(|windows| windows.all().len() == number)
            .ok_or_else(|| D::Error::custom("an id is throttled twice"))
    }
}
