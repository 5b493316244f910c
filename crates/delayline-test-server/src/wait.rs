//! Waiting for what servers do not announce.

use std::thread;
use std::time::{Duration, Instant};

/// Polls until a condition holds: servers do not tell when it does.
///
/// # Panics
///
/// It does not hold within 90 seconds, more than any failover takes on a busy machine.
pub async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < LIMIT, "in vain: {what}");
        tokio::time::sleep(POLL).await;
    }
}

/// [`until`] without a runtime.
///
/// # Panics
///
/// See [`until`].
#[track_caller]
pub fn until_blocking(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < LIMIT, "in vain: {what}");
        thread::sleep(POLL);
    }
}

const LIMIT: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(10);
