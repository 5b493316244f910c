//! The ids of a queue that are throttled.

use std::collections::{BTreeSet, HashMap};

use crate::limits::MAX_WINDOWS;
use crate::{MessageId, Millis, Timestamp};

/// A window begins when a message with `once_per` is created, and nothing but time ends it.
#[derive(Clone, Debug, Default)]
pub(super) struct Windows {
    by_id: HashMap<MessageId, Timestamp>,
    by_end: BTreeSet<(Timestamp, MessageId)>,
}

impl Windows {
    /// Returns when the window of an id ends, if it has not ended.
    pub(super) fn end(&self, now: Timestamp, id: &MessageId) -> Option<Timestamp> {
        self.by_id.get(id).copied().filter(|end| *end > now)
    }

    /// Begins a window for an id that has none, and removes the two oldest of those that have ended:
    /// so they go faster than they come. Returns whether there was room for it.
    pub(super) fn begin(&mut self, now: Timestamp, id: &MessageId, length: Millis) -> bool {
        for _ in 0..2 {
            let oldest = self.by_end.first().filter(|(end, _)| *end <= now);
            if let Some((_, id)) = oldest.cloned() {
                self.remove(&id);
            }
        }
        self.remove(id);
        if self.by_id.len() == MAX_WINDOWS {
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
