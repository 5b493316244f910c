//! The stages of a worker's shutdown.

use std::time::Duration;

use super::Moment;

/// How far the shutdown has progressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Not stopped.
    Working,
    /// Nothing new is claimed; handlers may finish.
    Draining { until: Moment },
    /// The handlers' tokens have fired.
    Cancelling { until: Moment },
    /// The handlers are gone; the last settlements go out.
    Ending { until: Moment },
}

impl Stage {
    pub(super) fn is_working(self) -> bool {
        self == Self::Working
    }

    /// When the stage ends at the latest.
    pub(super) const fn until(self) -> Option<Moment> {
        match self {
            Self::Working => None,
            Self::Draining { until } | Self::Cancelling { until } | Self::Ending { until } => {
                Some(until)
            }
        }
    }

    pub(super) const fn cancelling(now: Moment) -> Self {
        Self::Cancelling { until: now.after(AFTER_TOKENS) }
    }

    pub(super) const fn ending(now: Moment) -> Self {
        Self::Ending { until: now.after(LAST_SETTLEMENTS) }
    }
}

/// How long handlers may run after their cancellation tokens have fired.
pub const AFTER_TOKENS: Duration = Duration::from_secs(5);

/// How long the last settlements may take.
pub const LAST_SETTLEMENTS: Duration = Duration::from_secs(5);
