//! Durations of options. The errors begin with the option's name.

use std::time::Duration;

use delayline::Violation;
use delayline::backend::Millis;
use delayline::limits::{MAX_LEASE_MS, MIN_LEASE_MS};
use delayline_json::duration;

use crate::failure::Failure;

pub(super) fn duration_of(option: &str, text: &str) -> Result<Duration, Failure> {
    duration(text).map_err(|why| Failure::usage(why).about(option))
}

/// Reads a duration that a queue can store.
pub(super) fn delay_of(option: &str, text: &str) -> Result<Duration, Failure> {
    let delay = duration_of(option, text)?;
    stored(option, delay)?;
    Ok(delay)
}

/// Reads how long a lease lasts.
pub(super) fn lease_of(option: &str, text: &str) -> Result<Duration, Failure> {
    let lease = duration_of(option, text)?;
    let (actual, least, most) = (stored(option, lease)?.as_ms(), MIN_LEASE_MS, MAX_LEASE_MS);
    if (least..=most).contains(&actual) {
        return Ok(lease);
    }
    let violation = Violation::OutOfRange { what: "the lease in ms", actual, least, most };
    Err(Failure::usage(violation.to_string()).about(option))
}

fn stored(option: &str, duration: Duration) -> Result<Millis, Failure> {
    let why = |violation: Violation| Failure::usage(violation.to_string()).about(option);
    Millis::try_from(duration).map_err(why)
}
