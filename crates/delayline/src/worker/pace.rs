//! How often a worker asks, and how it complains.

use std::time::Duration;

use delayline_core::{Class, Error};

use crate::pause::Pauses;

/// The pauses between tries while the backend fails.
pub(super) const fn new_pauses() -> Pauses {
    Pauses::new(FIRST_PAUSE, LONGEST_PAUSE)
}

/// How long to go without a look at the queue when nothing is known to become due: it repairs lost
/// hints (G22). A wait for a hint lasts as long, so an idle worker sends 0.45 commands a second at
/// most. The spread keeps workers that started together from asking together.
pub(super) fn poll_period() -> Duration {
    LONGEST_POLL.mul_f64(0.9 + fastrand::f64() / 10.0)
}

/// Logs a failure of the backend: loudly if only a person can mend it.
pub(super) fn warn(what: &'static str, error: Option<Error>) {
    match error {
        Some(error) if error.class() == Class::Rejected => tracing::error!(%error, "{what}"),
        Some(error) => tracing::warn!(%error, "{what}"),
        None => tracing::warn!("{what}: the reply belongs to another operation"),
    }
}

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
const LONGEST_POLL: Duration = Duration::from_secs(5);
