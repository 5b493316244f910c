//! Handlers that run for too long.

use std::time::Duration;

use delayline_core::MessageId;

use super::CancelReason;

/// A handler that has been running for too long, as reported to
/// [`WorkerBuilder::on_stuck`](super::WorkerBuilder::on_stuck).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stuck {
    /// The message.
    pub id: MessageId,
    /// The number of this delivery, see [`Job::epoch`](super::Job::epoch).
    pub epoch: u64,
    /// How long the handler has been running.
    pub running: Duration,
    /// Why its cancellation token has fired; `None` if it has not.
    pub cancel_reason: Option<CancelReason>,
}
