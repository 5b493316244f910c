//! Durations of options. The errors begin with the option's name.

use std::time::Duration;

use delayline::backend::Millis;
use delayline_json::duration;

use crate::failure::Failure;

pub(super) fn duration_of(option: &str, text: &str) -> Result<Duration, Failure> {
    duration(text).map_err(|why| Failure::usage(why).about(option))
}

/// Reads a duration that a queue can store.
pub(super) fn delay_of(option: &str, text: &str) -> Result<Duration, Failure> {
    let delay = duration_of(option, text)?;
    match Millis::try_from(delay) {
        Ok(_) => Ok(delay),
        Err(violation) => Err(Failure::usage(violation.to_string()).about(option)),
    }
}
