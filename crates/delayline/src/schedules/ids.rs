//! The ids of the messages that schedules send.

/// The id of a tick's message. A message that was cancelled by a change of the spec leaves its id to
/// nothing else, so the same instant of a later spec has the next revision.
pub(super) fn tick_id(name: &str, tick: u64, revision: u32) -> String {
    if revision == 0 { format!("{name}@{tick}") } else { format!("{name}@{tick}.{revision}") }
}

/// The id of all messages of a schedule that skips ticks while the previous message lives.
pub(super) fn skipping_id(name: &str) -> String {
    format!("{name}@")
}
