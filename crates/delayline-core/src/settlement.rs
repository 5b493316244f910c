//! How the handling of a message ended.

use crate::limits::MAX_ERROR_BYTES;
use crate::{Lease, MessageId, Save, Schedule, Violation};

/// The end of one lease.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[non_exhaustive]
pub struct Settlement {
    /// The message.
    pub id: MessageId,
    /// The lease to end. If it is not the current one, nothing changes (G6).
    pub lease: Lease,
    /// How it ended.
    pub outcome: Outcome,
    /// What this holds if it ends the lease: for an answer such as "429, retry after 30 s". If
    /// holds overlap, the latest end counts.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub hold: Option<Hold>,
    /// Whether the caller claims from the queue next, or rings. If all settlements of an operation
    /// say so, it sends no hint for messages that this claim can lease. `false` by default.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::form::is_default"))]
    pub claims_next: bool,
    /// A save (G40), which is stored if this ends the lease and the message stays. An ack removes
    /// the message with its progress and checkpoint.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub save: Option<Box<Save>>,
}

impl Settlement {
    /// The end of `lease` on the message `id`.
    #[must_use]
    pub const fn new(id: MessageId, lease: Lease, outcome: Outcome) -> Self {
        Self { id, lease, outcome, hold: None, claims_next: false, save: None }
    }

    /// Holds the queue or the message's group, if this ends the lease; `None` for no hold.
    #[must_use]
    pub fn hold(mut self, hold: impl Into<Option<Hold>>) -> Self {
        self.hold = hold.into();
        self
    }

    /// Sets whether the caller claims from the queue next: see [`claims_next`](Self::claims_next).
    #[must_use]
    pub const fn claims_next(mut self, claims_next: bool) -> Self {
        self.claims_next = claims_next;
        self
    }

    /// Saves something with the message, if it stays: see [`save`](Self::save). `None` keeps what
    /// was saved.
    #[must_use]
    pub fn save(mut self, save: impl Into<Option<Save>>) -> Self {
        self.save = save.into().map(Box::new);
        self
    }

    /// Returns the number of bytes that it saves.
    pub(crate) fn save_bytes(&self) -> usize {
        self.save.as_ref().map_or(0, |save| save.bytes())
    }

    pub(crate) fn validate(&self) -> Result<(), Violation> {
        self.save.iter().try_for_each(|save| save.validate())?;
        match &self.outcome {
            Outcome::Retry { error, .. }
            | Outcome::Undecodable { error, .. }
            | Outcome::Reject { error } => {
                Violation::at_most("the error text", "bytes", error.len(), MAX_ERROR_BYTES)
            }
            Outcome::Ack | Outcome::Snooze { .. } | Outcome::Release => Ok(()),
        }
    }
}

/// What gets no deliveries for some time, because of how a lease ended. A past instant has no
/// effect. Leases continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum Hold {
    /// The queue, until this instant (G34).
    Queue(Schedule),
    /// The group of the message, until this instant (G38). Without a group, there is no hold.
    Group(Schedule),
}

/// How the handling of a message ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case", deny_unknown_fields)
)]
#[non_exhaustive]
pub enum Outcome {
    /// Handled: the message is finished.
    Ack,
    /// Failed: a failure is counted. The message is due again at `schedule`, or becomes a dead
    /// letter if this was its last allowed failure.
    Retry {
        /// When the next attempt is due. A past instant means now.
        schedule: Schedule,
        /// What went wrong: at most [`MAX_ERROR_BYTES`] bytes.
        error: String,
    },
    /// The payload could not be decoded: it counts as a failure, as [`Retry`](Self::Retry) does. If
    /// it is the last allowed failure, the reason of the death is
    /// [`DeathReason::Undecodable`](crate::DeathReason::Undecodable).
    Undecodable {
        /// When the next attempt is due. A past instant means now.
        schedule: Schedule,
        /// What the codec reported: at most [`MAX_ERROR_BYTES`] bytes.
        error: String,
    },
    /// Postponed: nothing is counted. The message is due again at `schedule`.
    Snooze {
        /// When the next attempt is due. A past instant means now.
        schedule: Schedule,
    },
    /// Not started: nothing is counted. The message is ready again at once (G10).
    Release,
    /// Hopeless: the message becomes a dead letter.
    Reject {
        /// What went wrong: at most [`MAX_ERROR_BYTES`] bytes.
        error: String,
    },
}
