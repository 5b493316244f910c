//! Durations among the options.

use std::time::Duration;

use delayline::backend::Millis;
pub(super) use delayline_json::duration;

/// Reads a delay that a message can have.
pub(super) fn delay(text: &str) -> Result<Duration, String> {
    let delay = duration(text)?;
    Millis::try_from(delay).map_err(|error| error.to_string())?;
    Ok(delay)
}
