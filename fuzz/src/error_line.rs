//! Error lines of servers.

use delayline_core::ErrorKind;
use delayline_redis_protocol::{classify, is_no_script};

/// Reads the bytes as an error line.
///
/// # Panics
///
/// Reading panics, or the error shows more than the documentation of `classify` allows.
pub fn error_line(data: &[u8]) {
    let line = String::from_utf8_lossy(data);
    let error = classify(&line);
    assert!(error.detail().len() <= 200, "{} bytes", error.detail().len());
    assert!(!error.detail().contains(char::is_control), "{:?}", error.detail());
    // Control characters become spaces, which may make these words what no server has sent.
    if !line.contains(char::is_control) {
        assert!(!error.detail().contains(", with args"), "{}", error.detail());
    }
    assert_eq!(error.class(), error.kind().class());
    if is_no_script(&line) {
        assert_eq!(error.kind(), &ErrorKind::Busy);
    }
    let _ = format!("{error} {error:?}");
}
