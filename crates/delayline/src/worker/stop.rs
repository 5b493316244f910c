//! The wish to stop, and who may utter it.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// Stops a worker from elsewhere: made by [`Worker::handle`](super::Worker::handle) or
/// [`Workers::handle`](super::Workers::handle).
#[derive(Clone, Debug)]
pub struct WorkerHandle {
    deadline: watch::Sender<Option<Instant>>,
}

impl WorkerHandle {
    /// Asks the worker to stop, and returns at once; `run` returns when it has stopped.
    ///
    /// The worker claims nothing more. Running handlers may go on for `grace`; then their tokens
    /// fire ([`CancelReason::Stopping`](super::CancelReason::Stopping)), and what runs 5 s later is
    /// dropped. A message whose handler was dropped, answered an error after its token had fired,
    /// or never started is given back, and nothing is counted (G10). The last settlements take 5 s at most, so all is over 10 s after `grace`
    /// even without a server; what could not be settled then comes back when its lease runs out.
    ///
    /// Of several calls the earliest end counts.
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

/// The worker's own end of the handle.
#[derive(Clone, Debug)]
pub(super) struct Stop {
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
    pub(super) fn handle(&self) -> WorkerHandle {
        self.handle.clone()
    }

    /// Waits for a wish, or for one that ends sooner than the last. Answers when handlers must end.
    pub(super) async fn wished(&mut self) -> Instant {
        loop {
            // It cannot fail: `self.handle` keeps the channel open.
            let _ = self.deadline.changed().await;
            if let Some(deadline) = *self.deadline.borrow_and_update() {
                return deadline;
            }
        }
    }
}

/// Far enough, and no instant overflows.
const LONGEST_GRACE: Duration = Duration::from_secs(365 * 24 * 3_600);
