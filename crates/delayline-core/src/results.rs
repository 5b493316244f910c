//! Results of acks, and the progress of messages.

use std::fmt;

use bytes::Bytes;

use crate::limits::{MAX_RESULT_BYTES, MAX_RESULT_RETENTION_MS};
use crate::{DeathReason, Millis, Status, Violation};

/// The result of an ack, for callers that wait for the message.
///
/// Its `Debug` output omits the bytes.
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[non_exhaustive]
pub struct NewResult {
    /// The result: at most [`MAX_RESULT_BYTES`].
    #[cfg_attr(feature = "serde", serde(with = "crate::form::bytes"))]
    pub bytes: Bytes,
    /// How long the queue keeps it: 1 ms to [`MAX_RESULT_RETENTION_MS`].
    pub retention: Millis,
}

impl NewResult {
    /// A result that the queue keeps for `retention`.
    #[must_use]
    pub fn new(bytes: impl Into<Bytes>, retention: Millis) -> Self {
        Self { bytes: bytes.into(), retention }
    }

    /// Checks size and retention.
    ///
    /// # Errors
    ///
    /// A [`Violation`] that names the value and the limit.
    pub fn validate(&self) -> Result<(), Violation> {
        Violation::at_most("the result", "bytes", self.bytes.len(), MAX_RESULT_BYTES)?;
        let retention_ms = self.retention.as_ms();
        Violation::within("the result's retention in ms", retention_ms, 1, MAX_RESULT_RETENTION_MS)
    }
}

impl fmt::Debug for NewResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewResult")
            .field("bytes", &self.bytes.len())
            .field("retention", &self.retention)
            .finish()
    }
}

/// The progress of a message: the reply to [`Op::Progress`](crate::Op::Progress).
///
/// Its `Debug` output omits results.
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum Completion {
    /// It is scheduled, ready or leased.
    Pending,
    /// It is a dead letter. A redrive makes it pending again.
    Dead(DeathReason),
    /// It is finished.
    Finished {
        /// How it ended: [`Status::Acked`], [`Status::Cancelled`], [`Status::Purged`] or
        /// [`Status::Relayed`].
        status: Status,
        /// The result of the ack, if it had one and the queue still has it.
        #[cfg_attr(feature = "serde", serde(default, with = "crate::form::optional_bytes"))]
        result: Option<Bytes>,
    },
    /// The queue does not know the id: the message was never accepted, it is finished and
    /// forgotten, or the server has lost it.
    Unknown,
}

impl Completion {
    /// A message that finished with `status`, without a result.
    #[must_use]
    pub const fn finished(status: Status) -> Self {
        Self::Finished { status, result: None }
    }

    /// A message that was acked with a result.
    #[must_use]
    pub fn acked_with(result: impl Into<Bytes>) -> Self {
        Self::Finished { status: Status::Acked, result: Some(result.into()) }
    }

    /// The result of the ack, if the queue has one.
    #[must_use]
    pub const fn result(&self) -> Option<&Bytes> {
        match self {
            Self::Finished { result, .. } => result.as_ref(),
            Self::Pending | Self::Dead(_) | Self::Unknown => None,
        }
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pending => f.write_str("Pending"),
            Self::Dead(reason) => f.debug_tuple("Dead").field(reason).finish(),
            Self::Finished { status, result } => f
                .debug_struct("Finished")
                .field("status", status)
                .field("result_bytes", &result.as_ref().map(Bytes::len))
                .finish(),
            Self::Unknown => f.write_str("Unknown"),
        }
    }
}
