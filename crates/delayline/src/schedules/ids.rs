//! The ids of the messages that schedules send.

/// Returns the id of a tick's message. If a change of the spec has cancelled a message, its id
/// cannot be used again. So the same instant of a later spec has the next revision.
pub(super) fn tick_id(name: &str, tick: u64, revision: u32) -> String {
    if revision == 0 { format!("{name}@{tick}") } else { format!("{name}@{tick}.{revision}") }
}

/// Returns the id of all messages of a schedule that skips ticks while the previous message is
/// live.
pub(super) fn skipping_id(name: &str) -> String {
    format!("{name}@")
}
