//! What the suite needs from a backend.

use std::sync::Arc;

use async_trait::async_trait;
use delayline_core::{Error, QueueBackend};

use crate::limits::DEFAULT_CASES;

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
    async fn fresh(&self) -> Result<Arc<dyn QueueBackend>, Error>;

    /// Whether [`Wakeup::wait`](delayline_core::Wakeup::wait) gives hints at all. If not, the
    /// trials about hints are reported as ignored.
    fn hints(&self) -> bool {
        true
    }

    /// The number of random sequences in a run, unless `DELAYLINE_CASES` says otherwise: 1000. They
    /// take most of a run's time. Fewer are enough for one more way to a backend that another run
    /// tests.
    fn random_cases(&self) -> u32 {
        DEFAULT_CASES
    }
}
