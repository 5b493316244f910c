//! Points in time as people write and read them in their own time zone.

use std::time::SystemTime;

use delayline::Timestamp;
use jiff::civil::{Date, DateTime, Time, Weekday};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{ToSpan as _, Zoned};

use crate::text::{quoted, short};
use crate::time::is_number;
use crate::{duration, instant};

/// A time zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone(TimeZone);

impl Zone {
    /// Coordinated Universal Time.
    pub const UTC: Self = Self(TimeZone::UTC);

    /// The zone of a name such as `Europe/Berlin`.
    ///
    /// # Errors
    ///
    /// In words, if there is no such zone, or the system has no list of zones.
    pub fn named(name: &str) -> Result<Self, String> {
        let unknown = || format!("{} is not a time zone, such as Europe/Berlin", quoted(name));
        if name.len() > LONGEST_NAME {
            return Err(unknown());
        }
        TimeZone::get(name).map(Self).map_err(|_| unknown())
    }

    /// The zone of this machine: that of the variable `TZ` if it is set, and UTC if nothing says
    /// which zone it is. If `TZ` names no zone, it is unknown: [`moment`] then refuses times
    /// without an offset.
    #[must_use]
    pub fn local() -> Self {
        Self(TimeZone::try_system().unwrap_or_else(|_| {
            let is_named = std::env::var_os("TZ").is_some_and(|name| !name.is_empty());
            if is_named { TimeZone::unknown() } else { TimeZone::UTC }
        }))
    }

    /// Its name: `UTC`, `Europe/Berlin`; `local time` for a zone of this machine without a name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("local time")
    }

    /// Returns `true` if its times are always those of UTC, as those of an unknown zone are.
    #[must_use]
    pub fn is_utc(&self) -> bool {
        self.0 == TimeZone::UTC || self.0.is_unknown() || matches!(self.name(), "UTC" | "Etc/UTC")
    }

    /// An instant in this zone, to the second: `2026-12-01 10:00:00 CET`.
    #[must_use]
    pub fn shown(&self, instant: Timestamp) -> String {
        let zoned = self.at(SystemTime::from(instant));
        zoned.map_or_else(|| instant.to_string(), |it| it.strftime("%F %T %Z").to_string())
    }

    /// An instant as its clocks show it, to the minute: `14:00`.
    #[must_use]
    pub fn clock(&self, instant: Timestamp) -> String {
        self.written(instant, "%H:%M")
    }

    /// The day of an instant in this zone: `3 Mar`.
    #[must_use]
    pub fn day(&self, instant: Timestamp) -> String {
        self.written(instant, "%-d %b")
    }

    fn written(&self, instant: Timestamp, format: &str) -> String {
        let zoned = self.at(SystemTime::from(instant));
        zoned.map_or_else(String::new, |it| it.strftime(format).to_string())
    }

    /// How far its clocks are ahead of UTC at an instant, in ms; negative if they are behind.
    #[must_use]
    pub fn offset_ms(&self, instant: Timestamp) -> i64 {
        let zoned = self.at(SystemTime::from(instant));
        zoned.map_or(0, |it| i64::from(it.offset().seconds()) * 1_000)
    }

    fn at(&self, instant: SystemTime) -> Option<Zoned> {
        Some(jiff::Timestamp::try_from(instant).ok()?.to_zoned(self.0.clone()))
    }
}

impl Default for Zone {
    fn default() -> Self {
        Self::UTC
    }
}

/// Reads a point in time: everything that [`instant`](crate::instant) reads, and
/// [durations](crate::duration) from `now`; and in `zone`:
///
/// - `14:00`, `noon`, `midnight`: the next one.
/// - `today 14:00`, `tomorrow 09:00`, `monday 09:00`, `sat noon`; without a time, when the day
///   begins. A day of the week is the next one whose time is later than `now`.
/// - `2026-12-01 09:00`, `2026-12-01T09:00:30`, `2026-12-01`.
///
/// Case does not matter. Midnight is when the day begins, also where clocks skip 00:00 or have it
/// twice.
///
/// # Errors
///
/// In words, with the beginning of the text: it is no such time, or the time does not exist on that
/// day, or exists twice, because clocks change; or it depends on a zone that is unknown.
pub fn moment(text: &str, now: SystemTime, zone: &Zone) -> Result<SystemTime, String> {
    let said = |why: &str| format!("{} is not a time: {why}", quoted(text));
    if let Ok(delay) = duration(text) {
        return now.checked_add(delay).ok_or_else(|| said("it is too far away"));
    }
    let exact = match instant(text) {
        Ok(instant) => return Ok(instant),
        Err(why) => why,
    };
    let here = zone.at(now).ok_or_else(|| said("the current time is unknown"))?;
    let civil = civil(&text.trim().to_ascii_lowercase(), &here);
    // Text that begins like an instant has a mistake in it.
    let civil = civil.ok_or_else(|| {
        let is_date = text.trim_start().starts_with(|it: char| it.is_ascii_digit());
        if is_date && text.contains('-') || is_number(text) {
            exact
        } else {
            said(
                "write 14:00, tomorrow 09:00, monday 09:00, midnight, 2026-12-01 09:00, or a delay \
                 such as 30m",
            )
        }
    })?;
    if zone.0.is_unknown() {
        return Err(format!(
            "{} depends on the time zone, and the variable TZ names none that this machine knows: \
             set TZ to a name such as Europe/Berlin, or write 2026-12-01T09:00:00Z",
            quoted(text)
        ));
    }
    let ambiguous = zone.0.to_ambiguous_zoned(civil);
    match ambiguous.offset() {
        AmbiguousOffset::Unambiguous { .. } => {}
        // `midnight` or a day is its beginning: the end of a gap, and the first of two.
        _ if !text.contains(':') => {}
        AmbiguousOffset::Gap { .. } => {
            return Err(said(&format!("{} skips it on that day", zone.name())));
        }
        AmbiguousOffset::Fold { .. } => {
            return Err(said(&format!(
                "{} has it twice on that day; write it with an offset, such as \
                 2026-10-25T02:30+01:00",
                zone.name()
            )));
        }
    }
    let at = ambiguous.compatible().map_err(|error| said(&short(&error.to_string(), MOST_WHY)))?;
    let at = at.timestamp();
    if at < jiff::Timestamp::UNIX_EPOCH {
        return Err(said("it is before 1970"));
    }
    Ok(at.into())
}

/// The date and time in the zone of `here`, if the text is of a known form.
fn civil(text: &str, here: &Zoned) -> Option<DateTime> {
    let (day, time) = match text.split_once([' ', 't']) {
        // `tomorrow` and days of the week have a t, too.
        Some((first, rest)) if first.starts_with(|it: char| it.is_ascii_digit()) => {
            (first, Some(rest))
        }
        _ => match text.split_once(' ') {
            Some((first, rest)) => (first, Some(rest)),
            None => (text, None),
        },
    };
    if time.is_none()
        && let Some(time) = clock(day)
    {
        let today = here.date().to_datetime(time);
        return if today > here.datetime() { Some(today) } else { next_day(today) };
    }
    let time = match time {
        None => Time::midnight(),
        Some(time) => clock(time.trim().trim_start_matches("at ").trim_start())?,
    };
    if let Some(weekday) = weekday(day) {
        let today = here.date();
        let days = i64::from(today.weekday().until(weekday));
        let then = today.checked_add(days.days()).ok()?.to_datetime(time);
        let then_or_later =
            if then > here.datetime() { then } else { then.checked_add(7.days()).ok()? };
        return Some(then_or_later);
    }
    match day {
        "today" => Some(here.date().to_datetime(time)),
        "tomorrow" => next_day(here.date().to_datetime(time)),
        _ => Some(date(day)?.to_datetime(time)),
    }
}

fn next_day(time: DateTime) -> Option<DateTime> {
    time.checked_add(1.day()).ok()
}

/// `9:00`, `09:00:30`, `noon`, `midnight`.
fn clock(text: &str) -> Option<Time> {
    match text {
        "noon" => return Some(Time::constant(12, 0, 0, 0)),
        "midnight" => return Some(Time::midnight()),
        _ => {}
    }
    let parts: Vec<&str> = text.split(':').collect();
    let number = |text: &str| {
        let is_short = (1..=2).contains(&text.len()) && text.bytes().all(|it| it.is_ascii_digit());
        if is_short { text.parse::<i8>().ok() } else { None }
    };
    match parts[..] {
        [hour, minute] => Time::new(number(hour)?, number(minute)?, 0, 0).ok(),
        [hour, minute, second] => {
            Time::new(number(hour)?, number(minute)?, number(second)?, 0).ok()
        }
        _ => None,
    }
}

fn weekday(text: &str) -> Option<Weekday> {
    let days = [
        ("monday", Weekday::Monday),
        ("tuesday", Weekday::Tuesday),
        ("wednesday", Weekday::Wednesday),
        ("thursday", Weekday::Thursday),
        ("friday", Weekday::Friday),
        ("saturday", Weekday::Saturday),
        ("sunday", Weekday::Sunday),
    ];
    days.into_iter().find(|(name, _)| *name == text || name[..3] == *text).map(|(_, day)| day)
}

/// `2026-12-01`.
fn date(text: &str) -> Option<Date> {
    if text.len() == 10 { text.parse().ok() } else { None }
}

/// The longest name of a zone has 32 letters.
const LONGEST_NAME: usize = 64;

/// The parser's words may repeat the text.
const MOST_WHY: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SystemTime {
        instant(text).unwrap()
    }

    fn berlin() -> Zone {
        Zone::named("Europe/Berlin").unwrap()
    }

    #[test]
    fn times_of_day_and_days_are_those_of_the_zone() {
        // A Monday, 10:00 in Berlin.
        let now = at("2026-03-02T09:00:00Z");
        for (text, expected) in [
            ("14:00", "2026-03-02T13:00:00Z"),
            ("9:00", "2026-03-03T08:00:00Z"),
            ("10:00", "2026-03-03T09:00:00Z"),
            ("10:00:01", "2026-03-02T09:00:01Z"),
            ("midnight", "2026-03-02T23:00:00Z"),
            ("Noon", "2026-03-02T11:00:00Z"),
            ("today 09:00", "2026-03-02T08:00:00Z"),
            ("tomorrow 09:00", "2026-03-03T08:00:00Z"),
            ("tomorrow at 09:00", "2026-03-03T08:00:00Z"),
            (" Tomorrow ", "2026-03-02T23:00:00Z"),
            ("monday 09:00", "2026-03-09T08:00:00Z"),
            ("Monday 11:00", "2026-03-02T10:00:00Z"),
            ("tue noon", "2026-03-03T11:00:00Z"),
            ("sunday", "2026-03-07T23:00:00Z"),
            ("2026-12-01 09:00", "2026-12-01T08:00:00Z"),
            ("2026-07-01T09:00", "2026-07-01T07:00:00Z"),
            ("2026-07-01", "2026-06-30T22:00:00Z"),
            ("30m", "2026-03-02T09:30:00Z"),
            ("2026-12-01T09:00:00Z", "2026-12-01T09:00:00Z"),
            ("1772442000", "2026-03-02T09:00:00Z"),
            ("1772442000001", "2026-03-02T09:00:00.001Z"),
        ] {
            assert_eq!(moment(text, now, &berlin()), Ok(at(expected)), "{text}");
        }
        assert_eq!(moment("14:00", now, &Zone::UTC), Ok(at("2026-03-02T14:00:00Z")));
        // From 00:00 to 01:00, and from 01:00 to 00:00.
        for (zone, now, expected) in [
            ("Africa/Cairo", "2026-04-23T09:00:00Z", "2026-04-23T22:00:00Z"),
            ("America/Havana", "2026-10-31T20:00:00Z", "2026-11-01T04:00:00Z"),
        ] {
            for text in ["midnight", "tomorrow", "tomorrow midnight"] {
                let begins = moment(text, at(now), &Zone::named(zone).unwrap());
                assert_eq!(begins, Ok(at(expected)), "{text} in {zone}");
            }
        }
    }

    #[test]
    fn times_that_do_not_exist_or_exist_twice_are_errors() {
        let now = at("2026-03-28T12:00:00Z");
        let error = moment("tomorrow 02:30", now, &berlin()).unwrap_err();
        assert!(error.contains("Europe/Berlin skips it"), "{error}");
        let error = moment("2026-10-25 02:30", now, &berlin()).unwrap_err();
        assert!(error.contains("twice"), "{error}");
        assert!(moment("2026-10-25T02:30+01:00", now, &berlin()).is_ok());
        for text in [
            "",
            "soon",
            "25:00",
            "24:00:00",
            "14:00:00.5",
            "12:60",
            "1:2:3:4",
            "tomorrow 9",
            "tomorrow 25:00",
            "yesterday",
            "2026-02-30",
            "2026-02-30 09:00",
            "02-03-2026",
            "monday monday",
            "at 9:00",
            "+9:00",
            "9999999999999 days",
            "-30m",
            "1969-12-31 09:00",
            "\u{202e}14:00",
            "14:00\u{1b}",
        ] {
            let error = moment(text, now, &berlin()).unwrap_err();
            assert!(!error.contains('\u{1b}') && !error.contains('\u{202e}'), "{error:?}");
        }
        assert!(moment("177244200", now, &berlin()).unwrap_err().contains("10 digits in seconds"));
        let long = "9".repeat(100_000);
        assert!(moment(&long, now, &berlin()).unwrap_err().len() < 1_000);
        assert!(Zone::named(&long).unwrap_err().len() < 1_000);
        for name in ["", "Nowhere/Land", "../../etc/passwd", "/etc/localtime", "Europe/Berlin\0"] {
            assert!(Zone::named(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn instants_are_shown_in_the_zone() {
        let instant = Timestamp::try_from(at("2026-12-01T09:00:00Z")).unwrap();
        assert_eq!(berlin().shown(instant), "2026-12-01 10:00:00 CET");
        let in_short =
            (berlin().clock(instant), berlin().day(instant), berlin().offset_ms(instant));
        assert_eq!(in_short, ("10:00".to_owned(), "1 Dec".to_owned(), 3_600_000));
        assert_eq!((berlin().name(), berlin().is_utc()), ("Europe/Berlin", false));
        assert!(Zone::default().is_utc() && Zone::named("Etc/UTC").unwrap().is_utc());
        assert!(Zone(TimeZone::unknown()).is_utc());
        assert!(!Zone::local().shown(Timestamp::MAX).is_empty());
        // As `TZ` can have it.
        let unnamed = Zone(TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap());
        assert_eq!(unnamed.shown(instant), "2026-12-01 10:00:00 CET");
        assert_eq!(
            (unnamed.name(), unnamed.is_utc(), Zone::UTC.name()),
            ("local time", false, "UTC")
        );
    }
}
