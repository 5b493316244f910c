//! How assertions fail.

/// Panics because an assertion failed.
#[track_caller]
#[expect(clippy::panic, reason = "a test is to fail")]
pub(super) fn fail(text: &str) -> ! {
    panic!("{text}")
}
