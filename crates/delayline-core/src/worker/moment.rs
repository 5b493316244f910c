//! The machine's own time.

use std::time::Duration;

/// An instant on a clock that never steps back: the time since a start chosen by the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(Duration);

impl Moment {
    /// The start.
    pub const START: Self = Self(Duration::ZERO);

    /// Creates the instant `since_start` after the start.
    #[must_use]
    pub const fn at(since_start: Duration) -> Self {
        Self(since_start)
    }

    /// Returns the time since the start.
    #[must_use]
    pub const fn since_start(self) -> Duration {
        self.0
    }

    /// Returns the instant `duration` later, or the latest possible one.
    #[must_use]
    pub const fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }

    /// Returns the time from `earlier` to this instant; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}
