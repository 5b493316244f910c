//! What an enqueue does to a message that the queue knows already.

use std::fmt;

use crate::limits::{MAX_UPDATE_BYTES, MAX_UPDATE_TOKENS};
use crate::{Millis, Schedule, Timestamp, Violation};

/// What an enqueue does if a message of its id is in the queue.
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

/// How an enqueue updates the message of its id.
///
/// `content` and `due` say what happens to a message that waits, scheduled or ready. A worker that
/// holds the message is left in peace: the update becomes its *follower*, and takes its place when
/// the lease ends, however it ends. There is one follower at most; `content` and `due` apply to it
/// like to a message that waits. The update takes the place of a dead letter, whatever `content`
/// and `due` say. It is created if the id is unknown, or has finished and
/// [`FinishedIds::Reuse`](crate::FinishedIds::Reuse) is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[non_exhaustive]
pub struct Update {
    /// Whether the content is replaced: payload, headers, priority, limits and expiry.
    pub content: UpdateContent,
    /// When the message is due then.
    pub due: UpdateDue,
    /// A random token, new for every new update, and the same when one is repeated.
    pub token: UpdateToken,
}

/// What an update does to the content of a message that waits.
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

/// What an update does to the due time of a message that waits.
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
    /// It becomes that of the update if that is later, but not later than `at_most` after the
    /// message was first enqueued: so a message that is updated again and again is delivered in the
    /// end.
    Later {
        /// The longest time between the first enqueue and the due time.
        at_most: Millis,
    },
}

/// The random token of an update: the same token again changes nothing.
///
/// The latest [`MAX_UPDATE_TOKENS`] are remembered with the id, also when its message has finished.
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

/// The tokens of the latest updates of an id, the latest last; 0 where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Tokens([[u8; UpdateToken::BYTES]; MAX_UPDATE_TOKENS]);

impl Tokens {
    pub(crate) fn contain(&self, token: UpdateToken) -> bool {
        self.0.contains(&token.0)
    }

    /// Adds a token, and forgets the oldest.
    pub(crate) fn note(&mut self, token: UpdateToken) {
        self.0.rotate_left(1);
        if let Some(last) = self.0.last_mut() {
            *last = token.0;
        }
    }
}

impl Update {
    /// What happens to the content and the due time, and a random token.
    #[must_use]
    pub const fn new(content: UpdateContent, due: UpdateDue, token: UpdateToken) -> Self {
        Self { content, due, token }
    }

    /// Returns the due time of a waiting message after this update: of one that is due at `due` and
    /// was first enqueued at `enqueued_at`.
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

    /// Checks the update of a message whose content has that many bytes.
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
