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

/// The schedules of a version: the second one replaces the last ten.
pub(super) fn numbers(version: u64) -> impl Iterator<Item = u64> {
    (0..40).chain(if version == 1 { 40..50 } else { 50..60 })
}

pub(super) const TARGET: &str = "ticks";

pub(super) const INTERVAL: Duration = Duration::from_secs(1);

/// How far ahead the ticks of [`Kind::Ahead`] are created.
pub(super) const LEAD: Duration = Duration::from_secs(10);
