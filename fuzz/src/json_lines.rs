//! Files of messages for `delayline send`.

use delayline_cli::reading;
use delayline_core::Op;

/// Reads the bytes as a file of JSON lines.
///
/// # Panics
///
/// Reading panics, takes what a queue would refuse, or finds other messages when the file is cut in
/// two between its lines.
pub fn json_lines(data: &[u8]) {
    let messages = reading::messages(data);
    let lines = data.split(|byte| *byte == b'\n').count();
    assert!(messages.len() <= lines);
    for message in messages.iter().flatten() {
        let op = Op::Enqueue(vec![message.clone()]);
        assert!(op.validate().is_ok(), "{message:?}");
    }
    for error in messages.iter().filter_map(|message| message.as_ref().err()) {
        assert!(!error.is_empty());
    }
    let halves = data.iter().position(|byte| *byte == b'\n').map(|end| data.split_at(end + 1));
    if let Some((one, other)) = halves {
        let apart = [reading::messages(one), reading::messages(other)].concat();
        assert_eq!(format!("{apart:?}"), format!("{messages:?}"));
    }
}
