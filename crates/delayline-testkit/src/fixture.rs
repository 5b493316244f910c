//! What the suite needs from a backend.

use std::sync::Arc;

use async_trait::async_trait;
use delayline_core::{Error, Queueing};

/// Makes the queues that the suite runs on.
#[async_trait]
pub trait Fixture: Send + Sync + 'static {
    /// An empty queue that nobody else uses.
    ///
    /// It is called for every case and every random sequence, some thousand times, so it should be
    /// cheap: a new queue name on a connection that is there already. With
    /// [`At::Server`](delayline_core::At::Server) the queue goes by a clock that moves.
    ///
    /// # Errors
    ///
    /// [`Error`] if there is none to be had; the trial fails then.
    async fn fresh(&self) -> Result<Arc<dyn Queueing>, Error>;

    /// Whether [`Wakeup::wait`](delayline_core::Wakeup::wait) gives hints at all. If not, the
    /// trials about them are ignored, and say so.
    fn hints(&self) -> bool {
        true
    }
}
