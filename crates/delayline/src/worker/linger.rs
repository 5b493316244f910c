//! How long a batch waits for further jobs: for the linger in a worker, and until the test decides
//! in a test.

use std::time::Duration;

use tokio::time::sleep;

#[cfg(feature = "testing")]
use super::gathering::Gathering;

/// Waits for further jobs.
pub(super) async fn linger(time: Duration) {
    #[cfg(feature = "testing")]
    if let Some(gathering) = Gathering::current() {
        return gathering.completed().await;
    }
    sleep(time).await;
}

/// A job has joined a batch, which has this many jobs now.
#[cfg_attr(
    not(feature = "testing"),
    expect(clippy::missing_const_for_fn, reason = "a test listens")
)]
pub(super) fn joined(jobs: usize, is_full: bool) {
    #[cfg(feature = "testing")]
    if let Some(gathering) = Gathering::current() {
        gathering.joined(jobs, is_full);
    }
    let _ = (jobs, is_full);
}
