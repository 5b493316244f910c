//! What the suite needs from a backend.

use std::sync::Arc;

use async_trait::async_trait;
use delayline_core::{Error, Queueing};

/// Creates the queues for the suite.
#[async_trait]
pub trait Fixture: Send + Sync + 'static {
    /// Returns an empty queue that nobody else uses.
    ///
    /// Called for every case and every random sequence, more than a thousand times, so it should be
    /// cheap: a new queue name on an existing connection. With
    /// [`At::Server`](delayline_core::At::Server), the queue must use a clock that moves.
    ///
    /// # Errors
    ///
    /// [`Error`] if no queue is available; the trial then fails.
    async fn fresh(&self) -> Result<Arc<dyn Queueing>, Error>;

    /// Whether [`Wakeup::wait`](delayline_core::Wakeup::wait) gives hints at all. If not, the
    /// trials about hints are reported as ignored.
    fn hints(&self) -> bool {
        true
    }
}
