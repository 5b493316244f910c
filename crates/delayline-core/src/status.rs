//! What state a message is in, and why it is a dead letter.

use crate::Timestamp;

/// The state of a live message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum MessageState {
    /// Waiting until it is due, for the first time or again.
    Scheduled,
    /// Due, and waiting for a worker.
    Ready,
    /// Held by a worker.
    Leased {
        /// When the lease expires, unless it is extended. An expired lease stays valid until a
        /// claim takes it back (G7).
        deadline: Timestamp,
        /// Whether a cancel was requested: then any end of this lease but an ack ends the message.
        cancel_requested: bool,
    },
    /// A dead letter.
    Dead {
        /// Why.
        reason: DeathReason,
        /// When it died.
        since: Timestamp,
    },
}

impl MessageState {
    /// Returns the state without its details.
    #[must_use]
    pub const fn status(self) -> Status {
        match self {
            Self::Scheduled => Status::Scheduled,
            Self::Ready => Status::Ready,
            Self::Leased { .. } => Status::Leased,
            Self::Dead { .. } => Status::Dead,
        }
    }
}

/// Why a message is a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case", deny_unknown_fields)
)]
#[non_exhaustive]
pub enum DeathReason {
    /// It failed `max_failures` times.
    MaxFailures,
    /// Its lease expired `max_crashes` times.
    MaxCrashes,
    /// A handler rejected it.
    Rejected,
    /// It failed `max_failures` times, the last time because the worker could not decode its
    /// payload.
    Undecodable,
    /// It expired while it waited for its first or next delivery.
    Expired,
    /// Its record has disappeared from the server, or its stored data cannot be read.
    ///
    /// If the record is intact, a redrive revives the message fully, except that its epoch and
    /// errors may be lost. Otherwise only the id is left, and the redrive returns
    /// [`Redriven::Unreadable`](crate::Redriven::Unreadable).
    Unreadable,
}

impl DeathReason {
    /// Every reason.
    pub const ALL: &'static [Self] = &[
        Self::MaxFailures,
        Self::MaxCrashes,
        Self::Rejected,
        Self::Undecodable,
        Self::Expired,
        Self::Unreadable,
    ];

    /// Returns the name used in JSON and metric labels: `max_failures`, `max_crashes`, `rejected`,
    /// `undecodable`, `expired` or `unreadable`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MaxFailures => "max_failures",
            Self::MaxCrashes => "max_crashes",
            Self::Rejected => "rejected",
            Self::Undecodable => "undecodable",
            Self::Expired => "expired",
            Self::Unreadable => "unreadable",
        }
    }
}

/// All states of a message, including finished ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case", deny_unknown_fields)
)]
#[non_exhaustive]
pub enum Status {
    /// Waiting until it is due.
    Scheduled,
    /// Due, and waiting for a worker.
    Ready,
    /// Held by a worker.
    Leased,
    /// A dead letter.
    Dead,
    /// Finished: handled and acked.
    Acked,
    /// Finished: cancelled.
    Cancelled,
    /// Finished: purged from the dead letters.
    Purged,
    /// Finished: moved to a list or stream.
    Relayed,
    /// Finished: an update has taken its place before it was acked.
    Replaced,
}

impl Status {
    /// Returns whether the message is finished: the queue no longer has it, and remembers its id
    /// for a while.
    #[must_use]
    pub const fn is_finished(self) -> bool {
        matches!(
            self,
            Self::Acked | Self::Cancelled | Self::Purged | Self::Relayed | Self::Replaced
        )
    }

    /// All states.
    pub const ALL: &'static [Self] = &[
        Self::Scheduled,
        Self::Ready,
        Self::Leased,
        Self::Dead,
        Self::Acked,
        Self::Cancelled,
        Self::Purged,
        Self::Relayed,
        Self::Replaced,
    ];

    /// Returns the name used in JSON: `scheduled`, `ready` and so on.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Ready => "ready",
            Self::Leased => "leased",
            Self::Dead => "dead",
            Self::Acked => "acked",
            Self::Cancelled => "cancelled",
            Self::Purged => "purged",
            Self::Relayed => "relayed",
            Self::Replaced => "replaced",
        }
    }
}
