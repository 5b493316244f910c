//! What a queue was like in the past.

use crate::limits::{HISTORY_HOURS, HISTORY_MINUTES};
use crate::{Timestamp, Totals};

/// How far apart the points of a [`History`] are, and how far back it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case", deny_unknown_fields)
)]
#[non_exhaustive]
pub enum Resolution {
    /// One point a minute, for the last [`HISTORY_MINUTES`].
    Minutes,
    /// One point an hour, for the last [`HISTORY_HOURS`].
    Hours,
}

impl Resolution {
    /// Returns the time from one point to the next in milliseconds, if the queue changes all the
    /// time.
    #[must_use]
    pub const fn unit_ms(self) -> u64 {
        match self {
            Self::Minutes => 60_000,
            Self::Hours => 3_600_000,
        }
    }

    /// Returns the name used in JSON: `minutes` or `hours`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Minutes => "minutes",
            Self::Hours => "hours",
        }
    }

    /// Returns the most points of the past that a history has: [`HISTORY_MINUTES`] or
    /// [`HISTORY_HOURS`].
    #[must_use]
    pub const fn points(self) -> u64 {
        match self {
            Self::Minutes => HISTORY_MINUTES,
            Self::Hours => HISTORY_HOURS,
        }
    }
}

/// What a queue was like in the past, and is now.
///
/// The first change of a queue in a minute stores the state at the beginning of that minute. The
/// first one in an hour does so for the hour. So nothing changed in a time without a point, and the
/// difference between the totals of two points counts exactly the changes between them.
///
/// If the server's clock steps back, the points that it has not reached any more are dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct History {
    /// The points in the order of their times. There is always at least one: the last is the queue
    /// at the time of the reply.
    pub points: Vec<HistoryPoint>,
}

impl History {
    /// A history of these points.
    #[must_use]
    pub const fn new(points: Vec<HistoryPoint>) -> Self {
        Self { points }
    }
}

/// A queue at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
#[non_exhaustive]
pub struct HistoryPoint {
    /// The instant: the beginning of a minute or an hour, or the time of the reply.
    pub at: Timestamp,
    /// Messages that were not due yet.
    pub scheduled: u64,
    /// Messages that were due and waited for a worker.
    pub ready: u64,
    /// Messages with a worker.
    pub leased: u64,
    /// Dead letters.
    pub dead: u64,
    /// How often each thing had happened before.
    pub totals: Totals,
}
