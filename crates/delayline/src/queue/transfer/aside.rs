//! The due times of messages that are set aside, each of which has the original one in it.

use delayline_core::{Completion, Status, Timestamp, Violation};

/// Returns `true` if a message is set aside while it moves. A later one is not delivered meanwhile
/// in any case.
pub(super) const fn is_needed(due: Timestamp) -> bool {
    due.as_ms() < SPAN_MS
}

/// The due time of a message that is set aside. `known` is what the target knows of it before it is
/// sent.
pub(super) fn aside(due: Timestamp, known: &Completion) -> Result<Timestamp, Violation> {
    let later = match known {
        Completion::Unknown => UNKNOWN_MS,
        known if *known == Completion::finished(Status::Cancelled) => CANCELLED_MS,
        _ => KNOWN_MS,
    };
    Timestamp::from_ms(due.as_ms() + later)
}

/// The due time of a message before it was set aside, if it is.
pub(super) fn before(due: Timestamp) -> Option<Timestamp> {
    let later = due.as_ms().checked_sub(KNOWN_MS).filter(|later| *later < 3 * SPAN_MS)?;
    Timestamp::from_ms(later % SPAN_MS).ok()
}

/// Returns `true` if a message is set aside that the target did not know before.
pub(super) const fn was_unknown(due: Timestamp) -> bool {
    UNKNOWN_MS <= due.as_ms() && due.as_ms() < UNKNOWN_MS + SPAN_MS
}

/// Returns `true` if a message is set aside that the target knew as cancelled before.
pub(super) const fn was_cancelled(due: Timestamp) -> bool {
    CANCELLED_MS <= due.as_ms() && due.as_ms() < UNKNOWN_MS
}

/// How much later a message is due while it is set aside, if the target did not know it before:
/// about 7,605 years.
const UNKNOWN_MS: u64 = 240_000_000_000_000;
/// The same if the target knew it as cancelled: 250 years less.
const CANCELLED_MS: u64 = UNKNOWN_MS - SPAN_MS;
/// The same if the target knew it otherwise: 250 years less, and later than paused schedules.
const KNOWN_MS: u64 = CANCELLED_MS - SPAN_MS;
/// Messages due within 250 years after 1970 are set aside.
const SPAN_MS: u64 = 250 * 31_557_600_000;
const _: () = assert!(UNKNOWN_MS + SPAN_MS < Timestamp::MAX.as_ms());
