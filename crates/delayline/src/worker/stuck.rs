//! Handlers that run for too long.

use std::time::Duration;

use delayline_core::MessageId;

use super::CancelReason;

/// A handler that runs for too long: what
/// [`WorkerBuilder::on_stuck`](super::WorkerBuilder::on_stuck) reports.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stuck {
    /// The message.
    pub id: MessageId,
    /// Which delivery of it, see [`Job::epoch`](super::Job::epoch).
    pub epoch: u64,
    /// For how long the handler has been running.
    pub running: Duration,
    /// Why its token has fired; `None` if it has not.
    pub cancel_reason: Option<CancelReason>,
}
