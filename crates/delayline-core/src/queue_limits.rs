//! The limits of a queue, which its backend keeps for all workers.

use std::time::{Duration, SystemTime};

use crate::limits::{MAX_LEASED, MAX_RATE_COUNT, MAX_RATE_PERIOD_MS, MIN_RATE_PERIOD_MS};
use crate::{Millis, Schedule, Timestamp, Violation};

/// The rate limit of a queue: at most `count` messages in each `per`, and up to `burst` at once
/// after a quiet time.
///
/// In any window of time, a queue delivers at most the window's share of the rate, plus `burst`:
/// the generic cell rate algorithm. Every lease counts, including those of retries and snoozed
/// messages, and so does every message that a relay moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[non_exhaustive]
pub struct Rate {
    /// Number of messages per period: 1 to [`MAX_RATE_COUNT`].
    pub count: u32,
    per: Millis,
    /// Number of messages at once: 1 to `count`. Workers are a few milliseconds late, and only a
    /// burst lets them catch up.
    pub burst: u32,
}

impl Rate {
    /// At most `count` messages in each `per`, and up to `burst` at once. The period is
    /// [`MIN_RATE_PERIOD_MS`] to [`MAX_RATE_PERIOD_MS`], in whole milliseconds: a part of one
    /// counts as a whole. Other values are refused when the limits are set.
    #[must_use]
    pub fn new(count: u32, per: Duration, burst: u32) -> Self {
        Self { count, per: Millis::try_from(per).unwrap_or(Millis::MAX), burst }
    }

    /// At most `count` messages per second, and up to `burst` at once.
    #[must_use]
    pub fn per_second(count: u32, burst: u32) -> Self {
        Self::new(count, Duration::from_secs(1), burst)
    }

    /// At most `count` messages per minute, and up to `burst` at once.
    #[must_use]
    pub fn per_minute(count: u32, burst: u32) -> Self {
        Self::new(count, Duration::from_secs(60), burst)
    }

    /// The period in which `count` messages are delivered.
    #[must_use]
    pub fn per(&self) -> Duration {
        self.per.into()
    }

    /// Nanoseconds from one message to the next, rounded up.
    pub(crate) fn interval_ns(&self) -> u64 {
        (self.per.as_ms() * 1_000_000).div_ceil(u64::from(self.count.max(1)))
    }

    fn validate(&self) -> Result<(), Violation> {
        let (count, burst) = (u64::from(self.count), u64::from(self.burst));
        Violation::within("the rate's count", count, 1, MAX_RATE_COUNT.into())?;
        let (least, most) = (MIN_RATE_PERIOD_MS, MAX_RATE_PERIOD_MS);
        Violation::within("the rate's period in ms", self.per.as_ms(), least, most)?;
        Violation::within("the rate's burst", burst, 1, count)
    }
}

/// The limits of a queue, as in [`Stats`](crate::Stats) (G34).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Limits {
    /// Maximum number of messages leased at once.
    pub leased: Option<u32>,
    /// Maximum number of messages of one group leased at once.
    #[cfg_attr(feature = "serde", serde(default))]
    pub each_group: Option<u32>,
    /// Whether the messages of a group are handled one after the other, in their order.
    #[cfg_attr(feature = "serde", serde(default))]
    pub in_order: bool,
    /// The rate limit.
    pub rate: Option<Rate>,
    /// When the rate allows the next delivery, if that is not now.
    pub rate_open_at: Option<Timestamp>,
    /// The end of a hold, if it has not ended.
    pub held_until: Option<Timestamp>,
}

/// A change of one limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
pub enum Change<T> {
    /// The limit does not change.
    #[default]
    Keep,
    /// The limit is removed.
    Remove,
    /// The limit gets this value.
    Set(T),
}

/// Changes limits of a queue. Other limits do not change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
#[non_exhaustive]
pub struct SetLimits {
    /// Maximum number of messages leased at once: 1 to [`MAX_LEASED`]. If more are leased, their
    /// leases continue, and no message is leased until the number is below the limit.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "crate::form::is_default"))]
    pub leased: Change<u32>,
    /// Maximum number of messages of one group leased at once: 1 to [`MAX_LEASED`], one number for
    /// all groups. Leases that were granted before the first such limit do not count.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "crate::form::is_default"))]
    pub each_group: Change<u32>,
    /// Whether the messages of a group are handled one after the other, in the order of their
    /// sequence numbers, retries and crashes included. Then a group has one message at a time.
    /// `None` does not change it.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "crate::form::is_default"))]
    pub in_order: Option<bool>,
    /// The rate limit.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "crate::form::is_default"))]
    pub rate: Change<Rate>,
    /// The end of a hold, which replaces an earlier one, longer or shorter.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "crate::form::is_default"))]
    pub hold: Change<Schedule>,
}

impl SetLimits {
    /// No change.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            leased: Change::Keep,
            each_group: Change::Keep,
            in_order: None,
            rate: Change::Keep,
            hold: Change::Keep,
        }
    }

    /// Sets the maximum number of messages leased at once: 1 to [`MAX_LEASED`], or `None` for no
    /// limit.
    #[must_use]
    pub fn leased(self, most: impl Into<Option<u32>>) -> Self {
        Self { leased: most.into().map_or(Change::Remove, Change::Set), ..self }
    }

    /// Sets the maximum number of messages of one group leased at once: 1 to [`MAX_LEASED`], or
    /// `None` for no limit. It is one number for all groups (G36).
    #[must_use]
    pub fn each_group(self, most: impl Into<Option<u32>>) -> Self {
        Self { each_group: most.into().map_or(Change::Remove, Change::Set), ..self }
    }

    /// Sets whether the messages of a group are handled one after the other, in the order in which
    /// they were sent, retries and crashes included (G37).
    #[must_use]
    pub const fn in_order(mut self, in_order: bool) -> Self {
        self.in_order = Some(in_order);
        self
    }

    /// Sets the rate limit, or `None` for no limit.
    #[must_use]
    pub fn rate(self, rate: impl Into<Option<Rate>>) -> Self {
        Self { rate: rate.into().map_or(Change::Remove, Change::Set), ..self }
    }

    /// Holds the queue for this long; more than 100 years count as 100 years. Replaces an earlier
    /// hold.
    #[must_use]
    pub fn hold_for(self, duration: Duration) -> Self {
        let duration = Millis::try_from(duration).unwrap_or(Millis::MAX);
        Self { hold: Change::Set(Schedule::In(duration)), ..self }
    }

    /// Holds the queue until then; an instant after the year 9999 counts as the end of that year.
    /// Replaces an earlier hold.
    #[must_use]
    pub fn hold_until(self, until: SystemTime) -> Self {
        let until = Timestamp::try_from(until).unwrap_or(Timestamp::MAX);
        Self { hold: Change::Set(Schedule::At(until)), ..self }
    }

    /// Ends a hold now, if there is one.
    #[must_use]
    pub fn end_hold(self) -> Self {
        Self { hold: Change::Remove, ..self }
    }

    pub(crate) fn validate(&self) -> Result<(), Violation> {
        if let Change::Set(most) = self.leased {
            Violation::within("the limit of leased messages", most.into(), 1, MAX_LEASED.into())?;
        }
        if let Change::Set(most) = self.each_group {
            Violation::within("the limit of each group", most.into(), 1, MAX_LEASED.into())?;
        }
        match self.rate {
            Change::Set(rate) => rate.validate(),
            Change::Keep | Change::Remove => Ok(()),
        }
    }
}
