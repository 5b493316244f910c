//! The due times of messages that are set aside, each of which has the original one in it.

use delayline_core::{Timestamp, Violation};

/// Returns `true` if a message is set aside while it moves. A later one is not delivered meanwhile
/// in any case.
pub(super) const fn is_needed(due: Timestamp) -> bool {
    due.as_ms() < SPAN_MS
}

/// The due time of a message that is set aside. `is_known` says that the target knows it as
/// cancelled before it is sent.
pub(super) fn aside(due: Timestamp, is_known: bool) -> Result<Timestamp, Violation> {
    Timestamp::from_ms(due.as_ms() + if is_known { KNOWN_MS } else { ASIDE_MS })
}

/// The due time of a message before it was set aside, if it is.
pub(super) fn before(due: Timestamp) -> Option<Timestamp> {
    let later = due.as_ms().checked_sub(KNOWN_MS).filter(|later| *later < 2 * SPAN_MS)?;
    Timestamp::from_ms(later % SPAN_MS).ok()
}

/// Returns `true` if a message is set aside that the target did not know as cancelled before.
pub(super) const fn was_unknown(due: Timestamp) -> bool {
    ASIDE_MS <= due.as_ms() && due.as_ms() < ASIDE_MS + SPAN_MS
}

/// How much later a message is due while it is set aside: about 7,605 years.
const ASIDE_MS: u64 = 240_000_000_000_000;
/// The same if the target knows it as cancelled before: 400 years less.
const KNOWN_MS: u64 = ASIDE_MS - SPAN_MS;
/// Messages due within 400 years after 1970 are set aside.
const SPAN_MS: u64 = 400 * 31_557_600_000;
const _: () = assert!(ASIDE_MS + SPAN_MS < Timestamp::MAX.as_ms());
