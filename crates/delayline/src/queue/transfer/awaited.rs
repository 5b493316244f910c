//! Which messages must not leave their queue yet.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use delayline_core::MessageId;

/// The members of messages that wait for others and have not moved.
#[derive(Debug, Default)]
pub(super) struct Awaited {
    by: HashMap<MessageId, Vec<MessageId>>,
    /// How many messages wait for each.
    counts: HashMap<MessageId, usize>,
}

impl Awaited {
    pub(super) fn note(&mut self, waiting: MessageId, members: Vec<MessageId>) {
        self.forget(&waiting);
        for member in &members {
            *self.counts.entry(member.clone()).or_default() += 1;
        }
        self.by.insert(waiting, members);
    }

    pub(super) fn forget(&mut self, waiting: &MessageId) {
        for member in self.by.remove(waiting).into_iter().flatten() {
            if let Entry::Occupied(mut count) = self.counts.entry(member) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
    }

    pub(super) fn contain(&self, id: &MessageId) -> bool {
        self.counts.contains_key(id)
    }
}
