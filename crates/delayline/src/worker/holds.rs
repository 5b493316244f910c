//! Several holds of one outcome.

use std::time::SystemTime;

use delayline_core::{Hold, Schedule, Timestamp};

/// Returns the effect of two holds, as far as a settlement can have it.
pub(super) fn both(one: Hold, other: Hold) -> Hold {
    match (one, other) {
        (Hold::Queue(one), Hold::Queue(other)) => Hold::Queue(later(one, other)),
        (Hold::Group(one), Hold::Group(other)) => Hold::Group(later(one, other)),
        (queue @ Hold::Queue(_), _) | (_, queue) => queue,
    }
}

/// Returns the later one. Of a delay and an instant, the clock of this process decides.
pub(crate) fn later(one: Schedule, other: Schedule) -> Schedule {
    let now = Timestamp::try_from(SystemTime::now()).unwrap_or(Timestamp::MAX);
    if one.instant(now) < other.instant(now) { other } else { one }
}
