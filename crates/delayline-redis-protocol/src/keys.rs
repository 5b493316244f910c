//! The keys of a queue: a fixed list, the same for every script.

use bytes::Bytes;
use delayline_core::QueueName;

/// The keys of every queue, in the order of `KEYS`. Scripts write `key.NAME`.
///
/// | name | type | holds |
/// |---|---|---|
/// | `control` | string | schema version, revision, counters, pause, times of the generations |
/// | `due` | sorted set | scheduled and ready messages by priority level and due instant |
/// | `leased` | sorted set | leased messages by deadline |
/// | `dead` | sorted set | dead letters by the instant of their death |
/// | `records` | hash | id to record: what was enqueued |
/// | `details` | hash | id to details: what has happened since; absent until the first claim |
/// | `contents` | hash | id to headers and payload, where they are too large for the record |
/// | `finished_new`, `finished_old` | hash | id to what is remembered of a finished message |
/// | `journal_new`, `journal_old` | hash | consumer to its last claim |
/// | `bell` | list | at most one element, which wakes one sleeper |
pub const KEY_NAMES: [&str; 12] = [
    "control",
    "due",
    "leased",
    "dead",
    "records",
    "details",
    "contents",
    "finished_new",
    "finished_old",
    "journal_new",
    "journal_old",
    "bell",
];

/// What every key begins with.
pub const KEY_PREFIX: &str = "delayline:";

/// The keys of one queue: `delayline:{QUEUE}:NAME`.
///
/// The braces are a hash tag: all keys of a queue live in one slot of a cluster. A queue's name
/// holds no braces, so that no two queues share a key (G20).
#[derive(Clone, Debug)]
pub struct Keys(Vec<Bytes>);

impl Keys {
    /// The keys of the queue `name`.
    #[must_use]
    pub fn new(name: &QueueName) -> Self {
        let key = |part| Bytes::from(format!("{KEY_PREFIX}{{{name}}}:{part}"));
        Self(KEY_NAMES.into_iter().map(key).collect())
    }

    /// All keys, in the order of `KEYS`.
    #[must_use]
    pub fn all(&self) -> &[Bytes] {
        &self.0
    }

    /// The key that is popped to wait for a hint: the last one.
    pub(crate) fn bell(&self) -> Bytes {
        self.0.last().cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stand_in_one_slot_and_in_a_fixed_order() {
        let keys = Keys::new(&QueueName::new("a:b").unwrap());
        assert_eq!(keys.all()[0], "delayline:{a:b}:control");
        assert_eq!(keys.bell(), "delayline:{a:b}:bell");
    }
}
