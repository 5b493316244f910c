//! Stopping a worker.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// Stops a worker from another task. Created by [`Worker::handle`](super::Worker::handle) or
/// [`Workers::handle`](crate::Workers::handle).
#[derive(Clone, Debug)]
pub struct WorkerHandle {
    deadline: watch::Sender<Option<Instant>>,
}

impl WorkerHandle {
    /// Asks the worker to stop, and returns at once; `run` returns when it has stopped.
    ///
    /// The worker claims no more messages. Running handlers may continue for `grace`, or with zero
    /// not at all; then their tokens fire
    /// ([`CancelReason::Stopping`](super::CancelReason::Stopping)), and those still
    /// running 5 s later are dropped. A message is released, and nothing is counted, if its handler
    /// was dropped, never started, or returned an error after its token had fired
    /// ([G10](crate::guarantees#g10)). The last settlements take at most 5 s, so the worker has
    /// stopped 10 s after `grace` even without a server. Messages that are not settled by then are
    /// redelivered when their leases expire.
    ///
    /// If called several times, the earliest end counts.
    #[doc(alias = "shutdown")]
    pub fn stop(&self, grace: Duration) {
        let end = Instant::now() + grace.min(LONGEST_GRACE);
        self.deadline.send_if_modified(|deadline| {
            let sooner = deadline.is_none_or(|known| end < known);
            if sooner {
                *deadline = Some(end);
            }
            sooner
        });
    }
}

/// The worker's side of the handle.
#[derive(Clone, Debug)]
pub(crate) struct Stop {
    handle: WorkerHandle,
    deadline: watch::Receiver<Option<Instant>>,
}

impl Default for Stop {
    fn default() -> Self {
        let (sender, deadline) = watch::channel(None);
        Self { handle: WorkerHandle { deadline: sender }, deadline }
    }
}

impl Stop {
    pub(crate) fn handle(&self) -> WorkerHandle {
        self.handle.clone()
    }

    /// Waits for a call of `stop` with an earlier end than the last. Returns the time when handlers
    /// must end.
    pub(crate) async fn wished(&mut self) -> Instant {
        loop {
            // It cannot fail: `self.handle` keeps the channel open.
            let _ = self.deadline.changed().await;
            if let Some(deadline) = *self.deadline.borrow_and_update() {
                return deadline;
            }
        }
    }
}

/// Long enough, and no instant overflows.
const LONGEST_GRACE: Duration = Duration::from_secs(365 * 24 * 3_600);
