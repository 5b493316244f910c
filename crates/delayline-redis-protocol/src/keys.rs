//! The keys of a queue: a fixed list, of which each script gets those that it uses.

use bytes::Bytes;
use delayline_core::{Destination, DestinationKey, QueueName};

/// The keys of every queue. Scripts write `key.NAME`; each script gets the keys that it uses as
/// `KEYS`, in this order.
///
/// | name | type | holds |
/// |---|---|---|
/// | `control` | string | schema version, revision, counters, pause, times of the generations |
/// | `index` | sorted set | each message once, by priority level and due time, deadline, or time of death |
/// | `records` | hash | id to record: what was enqueued |
/// | `details` | hash | id to details: what has happened since; absent until the first claim |
/// | `contents` | hash | id to headers and payload, if they are too large for the record |
/// | `updates` | hash | id to the tokens of its latest updates and to its follower; only ids that were updated |
/// | `finished_new`, `finished_old` | hash | id to what is remembered of a finished message |
/// | `journal_new`, `journal_old` | hash | consumer to its last claim |
/// | `bell` | list | at most one element, which wakes one sleeper |
/// | `fence` | string | nothing; it is written before a wait for replicas or the disk, and expires |
/// | `totals` | string | how often each thing has happened that `control` does not count |
/// | `history` | hash | what the queue was like when a minute or hour began; expires |
/// | `results` | hash | id to the result of its ack; expires |
/// | `results_until` | sorted set | those ids by when their results are over; expires |
/// | `windows` | sorted set | throttled ids by when that ends; expires |
/// | `turns` | sorted set | the lanes of groups by when it is their turn |
/// | `slots` | sorted set | the messages that hold a slot of their group, by its lane |
pub const KEY_NAMES: [&str; 19] = [
    "control",
    "index",
    "records",
    "details",
    "contents",
    "updates",
    "finished_new",
    "finished_old",
    "journal_new",
    "journal_old",
    "bell",
    "fence",
    "totals",
    "history",
    "results",
    "results_until",
    "windows",
    "turns",
    "slots",
];

/// The key that is popped while waiting for a hint.
pub(crate) const BELL: &str = "bell";
/// The key that is written before a wait for replicas or the disk.
pub(crate) const FENCE: &str = "fence";
/// The key that every used queue has.
pub(crate) const CONTROL: &str = "control";

/// The name of the key that a relay moves messages to. It belongs to the user, not to the queue, so
/// it is in no queue's keys.
pub(crate) const DESTINATION: &str = "destination";

/// The prefix of every key.
pub const KEY_PREFIX: &str = DestinationKey::RESERVED;

/// The keys of one queue: `delayline:{QUEUE}:NAME`.
///
/// The braces are a hash tag: all keys of a queue are in one slot of a cluster. A queue's name
/// contains no braces, so no two queues share a key (G20).
#[derive(Clone, Debug)]
pub struct Keys {
    own: Vec<Bytes>,
    destination: Option<Destination>,
}

impl Keys {
    /// The keys of the queue `name`.
    #[must_use]
    pub fn new(name: &QueueName) -> Self {
        let key = |part| Bytes::from(format!("{KEY_PREFIX}{{{name}}}:{part}"));
        Self { own: KEY_NAMES.into_iter().map(key).collect(), destination: None }
    }

    /// The keys of the queue with this bell; `None` if no queue has it.
    pub(crate) fn of_bell(bell: &[u8]) -> Option<Self> {
        let bell = std::str::from_utf8(bell).ok()?;
        let name = bell.strip_prefix(KEY_PREFIX)?.strip_prefix('{')?;
        let name = name.strip_suffix(BELL)?.strip_suffix("}:")?;
        QueueName::from_stored(name).ok().map(|name| Self::new(&name))
    }

    /// The same keys, and the destination of a relay.
    pub(crate) fn with_destination(&self, to: &Destination) -> Self {
        Self { own: self.own.clone(), destination: Some(to.clone()) }
    }

    /// Whether a script that calls this command on the key with this name does so with these keys.
    pub(crate) fn need(&self, command: &str, name: &str) -> bool {
        let commands: &[_] = match &self.destination {
            _ if name != DESTINATION => return true,
            None => &[],
            Some(Destination::List { .. }) => &["LLEN", "RPUSH"],
            Some(Destination::Stream { backlog: None, .. }) => &["XLEN", "XADD"],
            Some(Destination::Stream { .. }) => &["EXISTS", "XLEN", "XADD"],
            // `encode` refuses it.
            Some(_) => &[],
        };
        commands.contains(&command)
    }

    /// All keys, in the order of [`KEY_NAMES`].
    #[must_use]
    pub fn all(&self) -> &[Bytes] {
        &self.own
    }

    /// The key with this name; empty if there is none.
    pub(crate) fn named(&self, name: &str) -> Bytes {
        if name == DESTINATION {
            let key = self.destination.as_ref().map(Destination::key);
            return key.map(|key| key.as_bytes().clone()).unwrap_or_default();
        }
        let position = KEY_NAMES.iter().position(|known| *known == name);
        position.and_then(|position| self.own.get(position).cloned()).unwrap_or_default()
    }

    /// The keys with these names, in their order: the `KEYS` of a script.
    pub(crate) fn of(&self, names: &[&str]) -> Vec<Bytes> {
        names.iter().map(|name| self.named(name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stand_in_one_slot_and_in_a_fixed_order() {
        let keys = Keys::new(&QueueName::new("a:b").unwrap());
        assert_eq!(keys.all()[0], "delayline:{a:b}:control");
        assert_eq!(keys.named(BELL), "delayline:{a:b}:bell");
        let same = Keys::of_bell(b"delayline:{a:b}:bell").unwrap();
        assert_eq!(same.all(), keys.all());
        assert!(Keys::of_bell(b"bell").is_none());
    }
}
