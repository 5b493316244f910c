//! Command lines.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use delayline_cli::reading;

/// Reads the bytes as the words of a command line, with zeros between them.
///
/// # Panics
///
/// Reading panics, or a refusal says nothing, or shows a password.
pub fn arguments(data: &[u8]) {
    let words = |data: &[u8]| -> Vec<OsString> {
        let words = data.split(|byte| *byte == 0).map(|word| OsString::from_vec(word.to_vec()));
        std::iter::once("delayline".into()).chain(words).collect()
    };
    if let Err(error) = reading::arguments(words(data)) {
        assert!(!error.trim().is_empty());
    }
    // A URL's password must not be shown whatever stands around it.
    let url = [b"--url\0redis://user:".as_slice(), PASSWORD.as_bytes(), b"@host\0"].concat();
    let around = [url.as_slice(), data].concat();
    if let Err(error) = reading::arguments(words(&around)) {
        assert!(!error.contains(PASSWORD), "{error}");
    }
}

const PASSWORD: &str = "hunter2-and-more";
