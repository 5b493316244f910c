//! The schedules of the fleet, by number.

use std::time::Duration;

/// How the ticks of a schedule are created.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Ticks are created ahead.
    Ahead,
    /// Ticks are created when they are due.
    AtOnce,
    /// Ticks are left out while an earlier one lives.
    Skipping,
}

pub(super) const fn kind_of(number: u64) -> Kind {
    match number {
        20..30 => Kind::AtOnce,
        30..40 => Kind::Skipping,
        _ => Kind::Ahead,
    }
}

pub(super) const TARGET: &str = "ticks";

pub(super) const INTERVAL: Duration = Duration::from_secs(1);
