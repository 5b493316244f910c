//! The ids of a queue that are throttled.

use std::collections::{BTreeSet, HashMap};

use crate::limits::MAX_THROTTLED_IDS;
use crate::{MessageId, Millis, Timestamp};

/// A window begins when a message with `throttle` is created, and nothing but time ends it.
#[derive(Clone, Debug, Default)]
pub(super) struct Windows {
    by_id: HashMap<MessageId, Timestamp>,
    by_end: BTreeSet<(Timestamp, MessageId)>,
}

impl Windows {
    #[cfg(feature = "serde")]
    pub(super) const fn all(&self) -> &BTreeSet<(Timestamp, MessageId)> {
        &self.by_end
    }

    /// The last window of an id counts.
    #[cfg(feature = "serde")]
    pub(super) fn of(windows: Vec<(Timestamp, MessageId)>) -> Self {
        let by_id: HashMap<_, _> = windows.into_iter().map(|(end, id)| (id, end)).collect();
        let by_end = by_id.iter().map(|(id, end)| (*end, id.clone())).collect();
        Self { by_id, by_end }
    }

    /// Returns when the window of an id ends, if it has not ended.
    pub(super) fn end(&self, now: Timestamp, id: &MessageId) -> Option<Timestamp> {
        self.by_id.get(id).copied().filter(|end| *end > now)
    }

    /// Returns the number of windows that have not ended.
    pub(super) fn open(&self, now: Timestamp) -> usize {
        self.by_end.iter().rev().take_while(|(end, _)| *end > now).count()
    }

    /// Begins a window for an id that has none, and removes the two oldest of those that have
    /// ended: so they go faster than they come. Returns whether there was room for it.
    pub(super) fn begin(&mut self, now: Timestamp, id: &MessageId, length: Millis) -> bool {
        for _ in 0..2 {
            let oldest = self.by_end.first().filter(|(end, _)| *end <= now);
            if let Some((_, id)) = oldest.cloned() {
                self.remove(&id);
            }
        }
        self.remove(id);
        if self.by_id.len() == MAX_THROTTLED_IDS {
            return false;
        }
        let end = now.after(length);
        self.by_end.insert((end, id.clone()));
        self.by_id.insert(id.clone(), end);
        true
    }

    fn remove(&mut self, id: &MessageId) {
        if let Some(end) = self.by_id.remove(id) {
            self.by_end.remove(&(end, id.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_ms(ms).unwrap()
    }

    /// A refused send leaves the revision as it is, and so the queue.
    #[test]
    fn a_window_without_room_changes_nothing() {
        let id = |text: &str| MessageId::try_from(text).unwrap();
        let length = Millis::new(1_000).unwrap();
        let mut windows = Windows::default();
        for n in 0..MAX_THROTTLED_IDS {
            assert!(windows.begin(at(0), &id(&n.to_string()), length));
        }
        let before = windows.by_end.clone();
        assert!(!windows.begin(at(999), &id("new"), length));
        assert_eq!((windows.by_id.len(), &windows.by_end), (MAX_THROTTLED_IDS, &before));
        assert!(windows.begin(at(1_000), &id("new"), length), "two windows have ended");
    }

    /// Whether or not it is among the oldest, which make room for the first.
    #[test]
    fn an_ended_window_of_the_same_id_makes_room_once() {
        let id = |text: &str| MessageId::try_from(text).unwrap();
        let length = Millis::new(1_000).unwrap();
        let mut going_on = Windows::default();
        for n in 0..MAX_THROTTLED_IDS - 3 {
            assert!(going_on.begin(at(999), &id(&n.to_string()), length));
        }
        for ended in [&["own"][..], &["other", "own"], &["1st", "2nd", "own"]] {
            let mut windows = Windows::default();
            for (begun, name) in (0..).zip(ended) {
                windows.begin(at(begun), &id(name), length);
            }
            windows.by_id.extend(going_on.by_id.clone());
            windows.by_end.extend(going_on.by_end.clone());
            for n in ended.len()..3 {
                assert!(windows.begin(at(999), &id(&format!("{n} more")), length));
            }
            let names = ["own", "new 1", "new 2", "new 3"];
            let begun = names.map(|name| windows.begin(at(1_500), &id(name), length));
            let expected = [0, 1, 2, 3].map(|n| n < ended.len());
            assert_eq!(begun, expected, "{ended:?}");
            assert_eq!(
                (windows.by_id.len(), windows.by_end.len()),
                (MAX_THROTTLED_IDS, MAX_THROTTLED_IDS)
            );
            assert_eq!(windows.end(at(1_500), &id("own")), Some(at(2_500)));
        }
    }
}
