//! The effect of an enqueue on a message that the queue already knows.

use std::fmt;

use crate::limits::{MAX_UPDATE_BYTES, MAX_UPDATE_TOKENS};
use crate::{Millis, Schedule, Timestamp, Violation};

/// The effect of an enqueue if a message with its id is in the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case", deny_unknown_fields)
)]
#[non_exhaustive]
pub enum Known {
    /// Keeps the existing message and returns its status. The default.
    #[default]
    Refuse,
    /// Changes it, revives it, or follows it.
    Update(Update),
}

/// An update of the message with the same id.
///
/// `content` and `due` apply to a message that is scheduled or ready. If a worker holds the
/// message, the worker is not affected: the update becomes the message's *follower*, and takes its
/// place when the lease ends in any way. There is at most one follower; `content` and `due` apply
/// to it as to a waiting message. The update replaces a dead letter, whatever `content` and `due`
/// are. It is created if the id is unknown, or has finished and
/// [`FinishedIds::Reuse`](crate::FinishedIds::Reuse) is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[non_exhaustive]
pub struct Update {
    /// Whether the content is replaced: payload, headers, priority, group, limits and expiry.
    pub content: UpdateContent,
    /// The due time of the message after the update.
    pub due: UpdateDue,
    /// A random token, new for every new update, and the same for a repeated one.
    pub token: UpdateToken,
}

/// The effect of an update on the content of a waiting message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case", deny_unknown_fields)
)]
#[non_exhaustive]
pub enum UpdateContent {
    /// It stays.
    Keep,
    /// It is replaced, unless it is the same. A replaced message counts as
    /// [`Status::Replaced`](crate::Status::Replaced); the new one has a new sequence number, and
    /// its failures and crashes count from 0.
    Replace,
}

/// The effect of an update on the due time of a waiting message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case", deny_unknown_fields)
)]
#[non_exhaustive]
pub enum UpdateDue {
    /// It stays.
    Keep,
    /// It becomes that of the update.
    Set,
    /// It becomes that of the update if that is later, but at most `at_most` after the message was
    /// first enqueued. So a message with constant updates is delivered eventually.
    Later {
        /// Maximum time between the first enqueue and the due time.
        at_most: Millis,
    },
}

/// The random token of an update: an update with a known token changes nothing.
///
/// The latest [`MAX_UPDATE_TOKENS`] tokens are remembered with the id, even after its message has
/// finished.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct UpdateToken([u8; Self::BYTES]);

impl UpdateToken {
    /// Length of a token, in bytes.
    pub const BYTES: usize = 8;

    /// Creates a token from the given random bytes. They must not all be 0.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// Creates a token from the bytes of a random UUID (version 4), whose version keeps it from
    /// being 0.
    #[must_use]
    pub fn from_uuid(uuid: [u8; 16]) -> Self {
        let mut token = [0; Self::BYTES];
        token.iter_mut().zip(uuid).for_each(|(byte, random)| *byte = random);
        Self(token)
    }

    /// Returns the bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }
}

impl fmt::Debug for UpdateToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UpdateToken({:016x})", u64::from_be_bytes(self.0))
    }
}

/// The tokens of the latest updates of an id, the latest last; 0 where there is none. Boxed,
/// because most ids have none.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(from = "Latest", into = "Latest")
)]
pub(crate) struct Tokens(Option<Box<Latest>>);

type Latest = [[u8; UpdateToken::BYTES]; MAX_UPDATE_TOKENS];

impl Tokens {
    pub(crate) const NONE: Self = Self(None);

    pub(crate) fn contain(&self, token: UpdateToken) -> bool {
        self.0.as_ref().is_some_and(|latest| latest.contains(&token.0))
    }

    /// Adds a token, and forgets the oldest.
    pub(crate) fn note(&mut self, token: UpdateToken) {
        let latest = self.0.get_or_insert_default();
        latest.rotate_left(1);
        if let Some(last) = latest.last_mut() {
            *last = token.0;
        }
    }
}

impl From<Latest> for Tokens {
    fn from(latest: Latest) -> Self {
        Self((latest != Latest::default()).then(|| Box::new(latest)))
    }
}

impl From<Tokens> for Latest {
    fn from(tokens: Tokens) -> Self {
        tokens.0.map(|latest| *latest).unwrap_or_default()
    }
}

impl Update {
    /// Creates an update with these effects on content and due time. `token` must be a new one for
    /// each update.
    #[must_use]
    pub const fn new(content: UpdateContent, due: UpdateDue, token: UpdateToken) -> Self {
        Self { content, due, token }
    }

    /// Returns the due time after this update of a waiting message that is due at `due` and was
    /// first enqueued at `enqueued_at`.
    #[must_use]
    pub fn due_after(
        &self,
        now: Timestamp,
        schedule: Schedule,
        due: Timestamp,
        enqueued_at: Timestamp,
    ) -> Timestamp {
        match self.due {
            UpdateDue::Keep => due,
            UpdateDue::Set => schedule.instant(now),
            UpdateDue::Later { at_most } => {
                schedule.instant(now).min(enqueued_at.after(at_most)).max(due)
            }
        }
    }

    /// Checks the update of a message whose content has this number of bytes.
    pub(crate) fn validate(&self, content_bytes: usize) -> Result<(), Violation> {
        if self.token.0 == [0; UpdateToken::BYTES] {
            return Err(Violation::Malformed {
                what: "the update's token",
                value: format!("{:?}", self.token),
                reason: "it must be random, not 0".to_owned(),
            });
        }
        Violation::at_most("the update's content", "bytes", content_bytes, MAX_UPDATE_BYTES)
    }
}
