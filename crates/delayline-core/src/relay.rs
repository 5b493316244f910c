//! Relays: moving due messages to a list or stream of the user's choice.

use std::fmt;

use bytes::Bytes;

use crate::limits::{
    MAX_BATCH, MAX_DESTINATION_KEY_BYTES, MAX_DESTINATION_LENGTH, MAX_GROUP_BYTES,
};
use crate::names::{bounded, texts};
use crate::{Headers, MessageId, Timestamp, Violation};

/// Moves up to `max` ready messages to a destination, in the order in which a claim would lease
/// them (G12). Each becomes exactly one element and is finished (G28):
/// [`Status::Relayed`](crate::Status::Relayed).
///
/// It does the work of a claim: it moves up to [`MAX_BURIALS`](crate::limits::MAX_BURIALS) expired
/// messages to the dead letters and stops at [`MAX_BATCH_BYTES`](crate::limits::MAX_BATCH_BYTES).
/// It also reclaims up to [`MAX_RECLAIM`](crate::limits::MAX_RECLAIM) expired leases; the next
/// relay moves those messages.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[non_exhaustive]
pub struct Relay {
    /// The destination of the messages.
    pub to: Destination,
    /// Maximum number of messages to move: 1 to [`MAX_BATCH`].
    pub max: usize,
}

/// The list or stream of a relay, and when it is full.
///
/// On a cluster, the key must be in the queue's hash slot: `anything{NAME}` for the queue `NAME`,
/// without other braces before.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case", deny_unknown_fields)
)]
#[non_exhaustive]
pub enum Destination {
    /// The end of a list. An element is the payload of a message, byte for byte.
    List {
        /// The list.
        key: DestinationKey,
        /// The list is full at this length: 1 to [`MAX_DESTINATION_LENGTH`]. `None` means never.
        #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
        max_len: Option<u64>,
    },
    /// A stream. Each message becomes one entry; [`Element`] has the names of its fields.
    Stream {
        /// The stream.
        key: DestinationKey,
        /// When the stream is full. `None` means never.
        #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
        backlog: Option<Backlog>,
    },
}

/// Maximum number of entries of a stream that a consumer group may leave unfinished.
///
/// An `XACK` does not shorten a stream, so its length says nothing about its consumers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[non_exhaustive]
pub struct Backlog {
    /// The group. Until it exists, the whole stream counts as its backlog.
    pub group: GroupName,
    /// The stream is full when the group has this many entries, not delivered or not acknowledged:
    /// 1 to [`MAX_DESTINATION_LENGTH`]. If the server does not know how many entries are
    /// undelivered, because entries were deleted, all entries of the stream count as undelivered.
    pub max: u64,
}

impl Backlog {
    /// At most `max` unfinished entries of `group`.
    #[must_use]
    pub const fn new(group: GroupName, max: u64) -> Self {
        Self { group, max }
    }
}

impl Destination {
    /// Returns the key.
    #[must_use]
    pub const fn key(&self) -> &DestinationKey {
        match self {
            Self::List { key, .. } | Self::Stream { key, .. } => key,
        }
    }

    /// Returns the length at which the destination is full, or `None` if it never is.
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        match self {
            Self::List { max_len, .. } => *max_len,
            Self::Stream { backlog, .. } => backlog.as_ref().map(|backlog| backlog.max),
        }
    }
}

impl Relay {
    /// A relay of up to `max` messages.
    #[must_use]
    pub const fn new(to: Destination, max: usize) -> Self {
        Self { to, max }
    }

    pub(crate) fn validate(&self) -> Result<(), Violation> {
        let max = u64::try_from(self.max).unwrap_or(u64::MAX);
        Violation::within("the relay's max", max, 1, MAX_BATCH as u64)?;
        self.to.limit().map_or(Ok(()), |limit| {
            let what = "the length at which the destination is full";
            Violation::within(what, limit, 1, MAX_DESTINATION_LENGTH)
        })
    }
}

/// A message in a destination.
///
/// In a list it is the payload alone. In a stream it is an entry with the fields [`ID`](Self::ID),
/// [`DUE`](Self::DUE), [`PAYLOAD`](Self::PAYLOAD), in this order. Then comes one field for each
/// header, whose name follows [`HEADER`](Self::HEADER).
///
/// Its `Debug` output omits the payload.
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[non_exhaustive]
pub struct Element {
    /// The id of the message.
    pub id: MessageId,
    /// When it was due.
    pub due: Timestamp,
    /// The headers.
    pub headers: Headers,
    /// The payload.
    #[cfg_attr(feature = "serde", serde(with = "crate::form::bytes"))]
    pub payload: Bytes,
}

impl Element {
    /// The field of a stream's entry with the id, byte for byte.
    pub const ID: &str = "id";
    /// The field with the due time, in milliseconds since 1970, as decimal digits.
    pub const DUE: &str = "due";
    /// The field with the payload, byte for byte.
    pub const PAYLOAD: &str = "payload";
    /// The prefix of a header's field, followed by the header's name.
    pub const HEADER: &str = "header:";

    /// An element without headers.
    #[must_use]
    pub fn new(id: MessageId, due: Timestamp, payload: Bytes) -> Self {
        Self { id, due, headers: Headers::default(), payload }
    }
}

impl fmt::Debug for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Element")
            .field("id", &self.id)
            .field("due", &self.due)
            .field("payload_bytes", &self.payload.len())
            .finish_non_exhaustive()
    }
}

/// The key of a destination: 1 to 512 bytes that do not begin with `delayline:`, where the queues
/// themselves are.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DestinationKey(Bytes);

impl DestinationKey {
    /// The prefix of the keys of queues.
    pub const RESERVED: &str = "delayline:";

    /// Creates a key after checking it.
    ///
    /// # Errors
    ///
    /// [`Violation::Empty`], [`Violation::TooLong`], or [`Violation::Malformed`] if it could be a
    /// key of a queue.
    pub fn new(key: impl Into<Bytes>) -> Result<Self, Violation> {
        let key = key.into();
        bounded("the destination's key", key.len(), MAX_DESTINATION_KEY_BYTES)?;
        if key.starts_with(Self::RESERVED.as_bytes()) {
            return Err(Violation::Malformed {
                what: "the destination's key",
                value: key.escape_ascii().to_string(),
                reason: format!("keys that begin with {} belong to queues", Self::RESERVED),
            });
        }
        Ok(Self(key))
    }

    /// Returns the bytes of the key.
    #[must_use]
    pub const fn as_bytes(&self) -> &Bytes {
        &self.0
    }
}

texts!(DestinationKey);

impl fmt::Display for DestinationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for DestinationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DestinationKey({self})")
    }
}

/// The name of a consumer group of a stream: 1 to 128 bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupName(Bytes);

impl GroupName {
    /// Creates a name after checking it.
    ///
    /// # Errors
    ///
    /// [`Violation::Empty`] or [`Violation::TooLong`].
    pub fn new(name: impl Into<Bytes>) -> Result<Self, Violation> {
        let name = name.into();
        bounded("the group name", name.len(), MAX_GROUP_BYTES)?;
        Ok(Self(name))
    }

    /// Returns the bytes of the name.
    #[must_use]
    pub const fn as_bytes(&self) -> &Bytes {
        &self.0
    }
}

texts!(GroupName);

impl fmt::Debug for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GroupName({})", self.0.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_queues_are_no_destinations() {
        for key in ["orders", "{q}", "delayline", "x:delayline:{q}:index", &"k".repeat(512)] {
            assert_eq!(DestinationKey::new(key.to_owned()).unwrap().as_bytes(), key.as_bytes());
        }
        for key in ["", "delayline:", "delayline:{q}:index", &"k".repeat(513)] {
            assert!(DestinationKey::new(key.to_owned()).is_err(), "{key}");
        }
        let refused = DestinationKey::try_from("delayline:{q}:bell").unwrap_err().to_string();
        assert!(refused.contains("belong to queues"), "{refused}");
        assert_eq!(
            format!("{:?}", DestinationKey::new(&b"a\n"[..]).unwrap()),
            "DestinationKey(a\\n)"
        );
    }

    #[test]
    fn limits_of_relays_are_checked() {
        let key = DestinationKey::try_from("k").unwrap();
        let list =
            |max, max_len| Relay { to: Destination::List { key: key.clone(), max_len }, max };
        let group = GroupName::try_from("g").unwrap();
        let stream = |most| {
            let backlog = Some(Backlog { group: group.clone(), max: most });
            Relay { to: Destination::Stream { key: key.clone(), backlog }, max: 1 }
        };
        for sound in [list(1, None), list(1000, Some(1)), list(1, Some(1_000_000_000)), stream(1)] {
            assert_eq!(sound.validate(), Ok(()));
        }
        for wrong in [list(0, None), list(1001, None), list(1, Some(0)), stream(1_000_000_001)] {
            assert!(wrong.validate().is_err(), "{wrong:?}");
        }
        assert!(GroupName::new("g".repeat(129)).is_err());
        assert!(!format!("{:?}", stream(1)).is_empty());
    }

    #[test]
    fn payloads_are_not_in_debug_output() {
        let (id, due) = (MessageId::new("order-1").unwrap(), Timestamp::MIN);
        let element = Element { id, due, headers: Headers::default(), payload: "hunter2".into() };
        let shown = format!("{element:?}");
        assert!(shown.contains("order-1") && !shown.contains("hunter2"), "{shown}");
    }
}
