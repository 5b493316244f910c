//! The live messages of a queue, by id.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::{Hash, Hasher};

use super::entry::Entry;
use crate::MessageId;

/// The live messages. Their ids stand only in the messages themselves: a queue may have millions.
#[derive(Clone, Debug, Default)]
pub(super) struct Entries(HashSet<ById>);

/// A message that is compared by its id. Boxed, because messages are taken out and put back with
/// each change.
#[derive(Clone, Debug)]
struct ById(Box<Entry>);

impl Entries {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn get(&self, id: &MessageId) -> Option<&Entry> {
        self.0.get(id).map(|entry| &*entry.0)
    }

    /// Adds a message. Returns whether its id was free; otherwise, nothing changes.
    pub(super) fn insert(&mut self, entry: Box<Entry>) -> bool {
        self.0.insert(ById(entry))
    }

    pub(super) fn remove(&mut self, id: &MessageId) -> Option<Box<Entry>> {
        self.0.take(id).map(|entry| entry.0)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Entry> {
        self.0.iter().map(|entry| &*entry.0)
    }

    /// Changes all messages, but not their ids.
    pub(super) fn change_all(&mut self, mut change: impl FnMut(&mut Entry)) {
        let all = std::mem::take(&mut self.0).into_iter();
        self.0 = all
            .map(|mut entry| {
                change(&mut entry.0);
                entry
            })
            .collect();
    }
}

impl Borrow<MessageId> for ById {
    fn borrow(&self) -> &MessageId {
        &self.0.id
    }
}

impl Hash for ById {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.id.hash(state);
    }
}

impl PartialEq for ById {
    fn eq(&self, other: &Self) -> bool {
        self.0.id == other.0.id
    }
}

impl Eq for ById {}
