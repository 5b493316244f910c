//! What the command reads, for the fuzzers. Not an interface.

use std::ffi::OsString;
use std::time::{Duration, SystemTime};

use delayline::backend::NewMessage;

use crate::args::Args;
use crate::input;

/// Whether a command line can be read. Help and versions are no errors.
///
/// # Errors
///
/// What the program would say, without colours.
pub fn arguments(words: impl IntoIterator<Item = OsString>) -> Result<(), String> {
    match Args::of(words.into_iter().collect()) {
        Ok(_) => Ok(()),
        Err(error) if !error.use_stderr() => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

/// A duration as people write it.
///
/// # Errors
///
/// What is wrong with it.
pub fn duration(text: &str) -> Result<Duration, String> {
    delayline_json::duration(text)
}

/// An instant as people write it.
///
/// # Errors
///
/// What is wrong with it.
pub fn instant(text: &str) -> Result<SystemTime, String> {
    delayline_json::instant(text)
}

/// An instant as people type it: also a time of day or a day, in the time zone of this machine.
///
/// # Errors
///
/// What is wrong with it.
pub fn typed(text: &str) -> Result<SystemTime, String> {
    delayline_json::moment(text, SystemTime::now(), &delayline_json::Zone::local())
}

/// The messages of a file of JSON lines, or why each is invalid.
#[must_use]
pub fn messages(file: &[u8]) -> Vec<Result<NewMessage, String>> {
    input::messages("orders", file)
}
