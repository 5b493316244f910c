//! A memory of the past, bounded by time and by count without a timer.

use std::collections::BTreeMap;

use crate::Timestamp;

/// A map that forgets: it has two generations, and drops the older one as a whole.
///
/// An entry is remembered for at least `retention_ms`, unless the younger generation fills up, and
/// for less than three times that time: a generation that is nearly two retentions old still
/// becomes the older one. The Redis scripts keep the same two generations in two hashes.
#[derive(Clone, Debug)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(
        bound(deserialize = "K: serde::Deserialize<'de> + Ord, V: serde::Deserialize<'de>"),
        deny_unknown_fields
    )
)]
pub(crate) struct Generations<K, V> {
    #[cfg_attr(feature = "serde", serde(skip))]
    retention_ms: u64,
    #[cfg_attr(feature = "serde", serde(skip))]
    capacity: usize,
    /// When the younger generation began.
    started: Timestamp,
    younger: BTreeMap<K, V>,
    older: BTreeMap<K, V>,
}

impl<K: Ord, V> Generations<K, V> {
    pub(crate) const fn new(retention_ms: u64, capacity: usize) -> Self {
        Self {
            retention_ms,
            capacity,
            started: Timestamp::MIN,
            younger: BTreeMap::new(),
            older: BTreeMap::new(),
        }
    }

    /// Sets the limits, which are not serialized: those of this version apply.
    #[cfg(feature = "serde")]
    pub(crate) const fn limit(&mut self, retention_ms: u64, capacity: usize) {
        (self.retention_ms, self.capacity) = (retention_ms, capacity);
    }

    pub(crate) fn get(&self, now: Timestamp, key: &K) -> Option<&V> {
        let age = self.age_ms(now);
        let younger = if age < 2 * self.retention_ms { self.younger.get(key) } else { None };
        let older = if age < self.retention_ms { self.older.get(key) } else { None };
        younger.or(older)
    }

    /// Makes room for the entries written at `now`, including `first`. Call it once per operation,
    /// before the first insert. Replacing an entry needs no room.
    pub(crate) fn rotate(&mut self, now: Timestamp, first: &K) {
        let age = self.age_ms(now);
        if age >= 2 * self.retention_ms {
            self.younger.clear();
            self.older.clear();
            self.started = now;
        } else if age >= self.retention_ms
            || self.younger.len() >= self.capacity && !self.younger.contains_key(first)
        {
            self.older = std::mem::take(&mut self.younger);
            self.started = now;
        }
    }

    /// Adds an entry to the younger generation, where it hides one in the older.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        self.younger.insert(key, value);
    }

    /// Forgets an entry if it is still remembered.
    pub(crate) fn forget(&mut self, now: Timestamp, key: &K) {
        if self.get(now, key).is_some() {
            self.younger.remove(key);
            self.older.remove(key);
        }
    }

    fn age_ms(&self, now: Timestamp) -> u64 {
        now.as_ms().saturating_sub(self.started.as_ms())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_ms(ms).unwrap()
    }

    fn insert(map: &mut Generations<u8, ()>, now: u64, key: u8) {
        map.rotate(at(now), &key);
        map.insert(key, ());
    }

    fn known(map: &Generations<u8, ()>, now: u64) -> Vec<u8> {
        (0..10).filter(|key| map.get(at(now), key).is_some()).collect()
    }

    #[test]
    fn what_is_forgotten_is_forgotten_in_both_generations() {
        let mut map = Generations::new(100, 2);
        for key in [1, 2, 1] {
            insert(&mut map, 1_001, key);
        }
        assert_eq!(known(&map, 1_001), [1, 2]);
        map.forget(at(1_001), &1);
        assert_eq!(known(&map, 1_001), [2]);
    }

    #[test]
    fn a_full_generation_makes_way() {
        let mut map = Generations::new(100, 2);
        for key in 0..5 {
            insert(&mut map, 1_000, key);
        }
        assert_eq!(known(&map, 1_000), [2, 3, 4]);
        insert(&mut map, 1_000, 3);
        insert(&mut map, 1_000, 4);
        assert_eq!(known(&map, 1_000), [2, 3, 4], "what is there already needs no room");
    }
}
