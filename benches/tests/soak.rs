//! The soak runs, and fails if it has seen nothing. The bounds of lateness are wide, because the
//! machine of the tests may be slow.

use std::process::Command;

#[test]
fn a_short_run_on_both_drivers_passes_with_wide_bounds() {
    let output = Command::new(env!("CARGO_BIN_EXE_delayline-soak"))
        .args(["--minutes", "0.25", "--queues", "20", "--seed", "7"])
        .args(["--bound", "20000", "--busy-bound", "20000"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    for program in ["redis-rs, single", "redis-rs, many", "fred, few", "fred, busy"] {
        assert!(text.contains(program), "{program}: {text}");
    }
}

#[test]
fn a_run_that_saw_nothing_fails_and_says_so() {
    let output = Command::new(env!("CARGO_BIN_EXE_delayline-soak"))
        .args(["--minutes", "0.02", "--queues", "20"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("FAILED fred, single: lateness of short within 100ms: saw none"),
        "{text}"
    );
}
