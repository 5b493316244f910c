//! The token that asks a handler to stop.

use tokio_util::sync::CancellationToken;

/// A token that fires when there is no use in handling a message any further. Returned by
/// [`Job::cancellation`](crate::Job::cancellation). Clones fire together.
///
/// ```
/// # use std::time::Duration;
/// # use delayline::{Job, Outcome};
/// async fn charge(job: Job<u64>) -> Result<Outcome, std::io::Error> {
///     tokio::select! {
///         () = tokio::time::sleep(Duration::from_secs(5)) => Ok(Outcome::Ack),
///         () = job.cancellation().cancelled() => Ok(Outcome::Release),
///     }
/// }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Cancellation(CancellationToken);

impl Cancellation {
    /// Waits until it fires; returns at once if it has.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped, and the call repeated.
    pub async fn cancelled(&self) {
        self.0.cancelled().await;
    }

    /// Returns whether it has fired.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }

    pub(super) fn cancel(&self) {
        self.0.cancel();
    }
}
