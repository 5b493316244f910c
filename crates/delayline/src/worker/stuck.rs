//! Handlers that run for too long, and who wants to know.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
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

#[derive(Clone)]
pub(super) struct StuckHook(Arc<dyn Fn(&Stuck) + Send + Sync>);

impl StuckHook {
    pub(super) fn new(hook: impl Fn(&Stuck) + Send + Sync + 'static) -> Self {
        Self(Arc::new(hook))
    }

    /// A hook that panics does not end the worker.
    pub(super) fn call(&self, stuck: &Stuck) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (self.0)(stuck))) {
            // What was panicked with may panic again when it is dropped.
            std::mem::forget(panic);
            tracing::error!(id = %stuck.id, "the hook for stuck handlers panicked");
        }
    }
}

impl fmt::Debug for StuckHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StuckHook")
    }
}
