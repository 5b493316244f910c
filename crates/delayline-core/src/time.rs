//! Instants and durations in whole milliseconds, bounded so that arithmetic never overflows.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::Violation;
use crate::limits::{MAX_DELAY_MS, MAX_TIMESTAMP_MS};

/// An instant: milliseconds since the Unix epoch, up to the end of the year 9999.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The Unix epoch.
    pub const MIN: Self = Self(0);

    /// The latest instant.
    pub const MAX: Self = Self(MAX_TIMESTAMP_MS);

    /// Creates the instant `ms` milliseconds after the Unix epoch.
    ///
    /// # Errors
    ///
    /// [`Violation::OutOfRange`] beyond [`MAX_TIMESTAMP_MS`].
    pub fn from_ms(ms: u64) -> Result<Self, Violation> {
        Violation::within("the instant in ms since 1970", ms, 0, MAX_TIMESTAMP_MS)?;
        Ok(Self(ms))
    }

    /// Returns the milliseconds since the Unix epoch.
    #[must_use]
    pub const fn as_ms(self) -> u64 {
        self.0
    }

    /// Returns the instant `delay` later, but at most [`MAX`](Self::MAX).
    #[must_use]
    pub fn after(self, delay: Millis) -> Self {
        Self(self.0.saturating_add(delay.0).min(MAX_TIMESTAMP_MS))
    }

    /// Returns the start of the unit, such as a minute, that contains this instant.
    pub(crate) const fn start_of(self, unit_ms: u64) -> Self {
        Self(self.0 - self.0 % unit_ms)
    }

    /// Returns the time from `earlier` to this instant; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// Rounds up to the next millisecond, so that nothing is early. A clock that decides whether a
/// message is due rounds down instead.
impl TryFrom<SystemTime> for Timestamp {
    type Error = Violation;

    /// Instants before 1970 become 1970: it only matters that they are in the past.
    fn try_from(time: SystemTime) -> Result<Self, Violation> {
        let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::from_ms(ms_rounded_up(since_epoch))
    }
}

impl From<Timestamp> for SystemTime {
    fn from(timestamp: Timestamp) -> Self {
        UNIX_EPOCH + Duration::from_millis(timestamp.0)
    }
}

/// In UTC, to the millisecond, as RFC 3339 writes it: `2026-12-01T08:00:00.000Z`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, ms) = (self.0 / 1_000, self.0 % 1_000);
        let (year, month, day) = date(seconds / SECONDS_OF_DAY);
        let of_day = seconds % SECONDS_OF_DAY;
        let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
    }
}

/// Formats like [`Display`](fmt::Display).
impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

const SECONDS_OF_DAY: u64 = 86_400;

/// Year, month and day of this day since 1970, in the Gregorian calendar. Years begin in March
/// here, so that a leap day is the last day of its year.
const fn date(days: u64) -> (u64, u64, u64) {
    const DAYS_OF_400_YEARS: u64 = 146_097;
    /// From 1 March of the year 0 to 1970.
    const EPOCH: u64 = 719_468;
    let days = days + EPOCH;
    let of_era = days % DAYS_OF_400_YEARS;
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = days / DAYS_OF_400_YEARS * 400 + year_of_era;
    (if month <= 2 { year + 1 } else { year }, month, day)
}

/// A duration in whole milliseconds, up to 100 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(u64);

impl Millis {
    /// A duration of zero.
    pub const ZERO: Self = Self(0);

    /// The longest duration.
    pub const MAX: Self = Self(MAX_DELAY_MS);

    /// Creates a duration of `ms` milliseconds.
    ///
    /// # Errors
    ///
    /// [`Violation::OutOfRange`] beyond [`MAX_DELAY_MS`].
    pub fn new(ms: u64) -> Result<Self, Violation> {
        Violation::within("the duration in ms", ms, 0, MAX_DELAY_MS)?;
        Ok(Self(ms))
    }

    /// Creates a duration of `ms` milliseconds, but at most [`MAX`](Self::MAX).
    #[must_use]
    pub const fn saturating(ms: u64) -> Self {
        Self(if ms > MAX_DELAY_MS { MAX_DELAY_MS } else { ms })
    }

    /// Returns the number of milliseconds.
    #[must_use]
    pub const fn as_ms(self) -> u64 {
        self.0
    }
}

/// Rounds up to the next millisecond, so that nothing is early.
impl TryFrom<Duration> for Millis {
    type Error = Violation;

    fn try_from(duration: Duration) -> Result<Self, Violation> {
        Self::new(ms_rounded_up(duration))
    }
}

impl From<Millis> for Duration {
    fn from(millis: Millis) -> Self {
        Self::from_millis(millis.0)
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

/// An instant, relative or absolute. The server's clock resolves it to a [`Timestamp`], so client
/// clocks decide nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case", deny_unknown_fields)
)]
pub enum Schedule {
    /// This long after the server executes the operation.
    In(Millis),
    /// At this instant. A past instant means now, ahead of messages that are due later.
    At(Timestamp),
}

impl Schedule {
    /// As soon as possible.
    pub const NOW: Self = Self::In(Millis::ZERO);

    /// Returns the instant meant if the server's clock shows `now`.
    #[must_use]
    pub fn instant(self, now: Timestamp) -> Timestamp {
        match self {
            Self::In(delay) => now.after(delay),
            Self::At(instant) => instant,
        }
    }
}

/// The clock that an operation uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The server's clock, read once when the operation is executed. Use it everywhere but in
    /// tests.
    Server,
    /// This instant. Tests use it to pass the time instead of sleeping. On a live queue, a wrong
    /// instant ends leases early.
    Fixed(Timestamp),
}

pub(crate) fn ms_rounded_up(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_round_up_so_that_nothing_is_early() {
        assert_eq!(Millis::try_from(Duration::from_nanos(1)).unwrap().as_ms(), 1);
        assert_eq!(Millis::try_from(Duration::from_micros(1_000)).unwrap().as_ms(), 1);
        assert_eq!(Millis::try_from(Duration::from_micros(1_001)).unwrap().as_ms(), 2);
        let just_past = UNIX_EPOCH + Duration::from_micros(999_001);
        assert_eq!(Timestamp::try_from(just_past).unwrap().as_ms(), 1_000);
    }

    #[test]
    fn instants_are_shown_in_utc() {
        for (ms, shown) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_798_761_599_001, "2026-12-31T23:59:59.001Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (MAX_TIMESTAMP_MS, "9999-12-31T23:59:59.999Z"),
        ] {
            let instant = Timestamp::from_ms(ms).unwrap();
            assert_eq!(instant.to_string(), shown);
            assert_eq!(format!("{instant:?}"), shown);
        }
        // Each day is the day after the one before.
        let mut before = date(0);
        for days in 1..=MAX_TIMESTAMP_MS / 86_400_000 {
            let (year, month, day) = date(days);
            let is_next = match before {
                (y, m, d) if (y, m) == (year, month) => day == d + 1,
                (y, 12, 31) => (year, month, day) == (y + 1, 1, 1),
                (y, 2, d) => (year, month, day) == (y, 3, 1) && d == 28 + u64::from(is_leap(y)),
                (y, m, d) => (year, month, day) == (y, m + 1, 1) && d == 30 + (m + m / 8) % 2,
            };
            assert!(is_next, "{before:?} and {:?}", (year, month, day));
            before = (year, month, day);
        }
    }

    const fn is_leap(year: u64) -> bool {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    }

    #[test]
    fn what_is_beyond_the_horizon_is_refused_not_wrapped() {
        for ms in [MAX_DELAY_MS + 1, 1 << 53, u64::MAX] {
            let violation = Millis::new(ms).unwrap_err();
            assert!(violation.to_string().contains(&ms.to_string()), "{violation}");
        }
        assert!(Millis::try_from(Duration::MAX).is_err());
        assert!(Timestamp::from_ms(MAX_TIMESTAMP_MS + 1).is_err());
        assert_eq!(Timestamp::MAX.after(Millis::MAX), Timestamp::MAX);
    }

    #[test]
    fn times_are_told_in_milliseconds() {
        let instant = Timestamp::from_ms(1_500).unwrap();
        assert_eq!(SystemTime::from(instant), UNIX_EPOCH + Duration::from_millis(1_500));
        assert_eq!(instant.to_string(), "1970-01-01T00:00:01.500Z");
        assert_eq!(Millis::new(30).unwrap().to_string(), "30 ms");
    }

    #[test]
    fn what_saturates_is_the_number_up_to_the_longest() {
        for ms in [0, 1, MAX_DELAY_MS - 1, MAX_DELAY_MS] {
            assert_eq!(Millis::saturating(ms).as_ms(), ms);
        }
        assert_eq!(Millis::saturating(MAX_DELAY_MS + 1), Millis::MAX);
        assert_eq!(Millis::saturating(u64::MAX), Millis::MAX);
    }

    #[test]
    fn instants_before_1970_are_past() {
        let before = UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!(Timestamp::try_from(before).unwrap(), Timestamp::default());
    }
}
