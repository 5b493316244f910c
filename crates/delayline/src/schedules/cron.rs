//! Cron lines: the instants that match, across changes of a time zone's offset.

use delayline_core::Violation;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Timestamp, ToSpan as _};

/// A line of five fields: minute, hour, day of the month, month, day of the week.
///
/// As in Vixie's cron, a line with fixed hours and minutes runs once a day even where a clock
/// change skips or repeats its time. A line with `*` or `/` in one of them follows the elapsed
/// time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cron {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Whether a day needs to match only one of the two day fields: neither begins with `*`.
    either_day: bool,
    /// Whether the line follows the elapsed time.
    elapsing: bool,
}

/// A field: its name, its range, and the names of its values, from the lowest.
struct Field {
    name: &'static str,
    lowest: u32,
    highest: u32,
    names: &'static [&'static str],
}

impl Cron {
    /// Parses a line, or an abbreviation such as `@daily`.
    pub(super) fn parse(line: &str) -> Result<Self, Violation> {
        let malformed = |reason: String| Violation::Malformed {
            what: "the cron line",
            value: line.chars().take(MOST_SHOWN).collect(),
            reason,
        };
        let expanded = match line.trim() {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            line => line,
        };
        let fields: Vec<_> = expanded.split_ascii_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields[..] else {
            if expanded.starts_with('@') {
                return Err(malformed(
                    "the short forms are @hourly, @daily, @weekly, @monthly and @yearly".to_owned(),
                ));
            }
            return Err(malformed(format!(
                "it has {} fields; write minute, hour, day, month and weekday",
                fields.len()
            )));
        };
        let weekdays = WEEKDAY.parse(weekday).map_err(malformed)?;
        let cron = Self {
            minutes: MINUTE.parse(minute).map_err(malformed)?,
            hours: HOUR.parse(hour).map_err(malformed)?,
            days: DAY.parse(day).map_err(malformed)?,
            months: MONTH.parse(month).map_err(malformed)?,
            // Sunday is both 0 and 7.
            weekdays: weekdays | weekdays >> 7 & 1,
            either_day: !day.starts_with('*') && !weekday.starts_with('*'),
            elapsing: [minute, hour].iter().any(|field| field.contains(['*', '/'])),
        };
        if cron.on_or_after(DateTime::constant(2000, 1, 1, 0, 0, 0, 0)).is_none() {
            return Err(malformed("no date matches it".to_owned()));
        }
        Ok(cron)
    }

    /// Returns the first matching instant after `after`, or `None` if there is none in 50 years.
    pub(super) fn next(&self, zone: &TimeZone, after: Timestamp) -> Option<Timestamp> {
        if self.elapsing { self.next_elapsing(zone, after) } else { self.next_fixed(zone, after) }
    }

    /// Each period between two changes of the offset is searched separately.
    fn next_elapsing(&self, zone: &TimeZone, after: Timestamp) -> Option<Timestamp> {
        let mut start = after;
        loop {
            let offset = zone.to_offset(start);
            let end = zone.following(start).next().map(|change| change.timestamp());
            let found = self.on_or_after(offset.to_datetime(start))?;
            let found = offset.to_timestamp(found).ok()?;
            match end {
                Some(end) if found >= end => start = end,
                _ if found > after => return Some(found),
                // `after` matches itself.
                _ => {
                    let minute_later = offset.to_datetime(found).checked_add(1.minute()).ok()?;
                    let next = offset.to_timestamp(self.on_or_after(minute_later)?).ok()?;
                    match end {
                        Some(end) if next >= end => start = end,
                        _ => return Some(next),
                    }
                }
            }
        }
    }

    /// A time that a change of the offset skips becomes the end of the change. If a time occurs
    /// twice, the first one counts.
    fn next_fixed(&self, zone: &TimeZone, after: Timestamp) -> Option<Timestamp> {
        // No offset changes by more than a day.
        let mut civil = zone.to_datetime(after).checked_sub(25.hours()).ok()?;
        loop {
            civil = self.on_or_after(civil)?;
            let instant = match zone.to_ambiguous_timestamp(civil).offset() {
                AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(civil).ok()?,
                AmbiguousOffset::Fold { before, .. } => before.to_timestamp(civil).ok()?,
                AmbiguousOffset::Gap { after, .. } => {
                    let before_the_change = after.to_timestamp(civil).ok()?;
                    zone.following(before_the_change).next()?.timestamp()
                }
            };
            if instant > after {
                return Some(instant);
            }
            civil = civil.checked_add(1.minute()).ok()?;
        }
    }

    /// Returns the first matching minute that begins at `from` or later, without a time zone.
    fn on_or_after(&self, from: DateTime) -> Option<DateTime> {
        let minute = from.with().second(0).subsec_nanosecond(0).build().ok()?;
        let from = if minute < from { minute.checked_add(1.minute()).ok()? } else { minute };
        let last = from.date().checked_add(50.years()).unwrap_or(Date::MAX);
        let mut date = from.date();
        let mut earliest = from.time();
        while date <= last {
            if !has(self.months, date.month()) {
                date = date.first_of_month().checked_add(1.month()).ok()?;
            } else if let Some(time) = self.matches_day(date).then(|| self.time(earliest)).flatten()
            {
                return Some(date.to_datetime(time));
            } else {
                date = date.tomorrow().ok()?;
            }
            earliest = Time::midnight();
        }
        None
    }

    fn matches_day(&self, date: Date) -> bool {
        let by_day = has(self.days, date.day());
        let by_weekday = has(self.weekdays, date.weekday().to_sunday_zero_offset());
        if self.either_day { by_day || by_weekday } else { by_day && by_weekday }
    }

    fn time(&self, earliest: Time) -> Option<Time> {
        let hours = (earliest.hour()..24).filter(|&hour| has(self.hours, hour));
        hours
            .flat_map(|hour| {
                let first = if hour == earliest.hour() { earliest.minute() } else { 0 };
                (first..60).map(move |minute| (hour, minute))
            })
            .find(|&(_, minute)| has(self.minutes, minute))
            .and_then(|(hour, minute)| Time::new(hour, minute, 0, 0).ok())
    }
}

impl Field {
    /// Returns the set of values of a field: lists of `*`, values and ranges, each with a step.
    fn parse(&self, text: &str) -> Result<u64, String> {
        text.split(',').try_fold(0, |values, part| Ok(values | self.part(part)?))
    }

    fn part(&self, part: &str) -> Result<u64, String> {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => {
                let step = number(step, 1, self.highest).ok_or_else(|| {
                    format!("a step of the {} is 1 to {}", self.name, self.highest)
                })?;
                (range, Some(step))
            }
            None => (part, None),
        };
        let (first, last) = match (range, range.split_once('-')) {
            ("*", _) => (self.lowest, self.highest),
            (_, Some((first, last))) => (self.value(first)?, self.value(last)?),
            (_, None) => {
                let first = self.value(range)?;
                // With a step, a single value is the start of a range.
                (first, if step.is_some() { self.highest } else { first })
            }
        };
        if first > last {
            return Err(format!("in the {}, {range} ends before it begins", self.name));
        }
        let step = usize::try_from(step.unwrap_or(1)).unwrap_or(usize::MAX);
        Ok((first..=last).step_by(step).fold(0, |values, value| values | 1 << value))
    }

    fn value(&self, text: &str) -> Result<u32, String> {
        let named = self.names.iter().position(|name| name.eq_ignore_ascii_case(text));
        match named.and_then(|index| u32::try_from(index).ok()) {
            Some(index) => Ok(self.lowest + index),
            None => number(text, self.lowest, self.highest).ok_or_else(|| {
                let Self { name, lowest, highest, .. } = self;
                format!("the {name} takes {lowest} to {highest}, lists, ranges and steps")
            }),
        }
    }
}

fn number(text: &str, lowest: u32, highest: u32) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.then(|| text.parse().ok()).flatten();
    number.filter(|number| (lowest..=highest).contains(number))
}

fn has(set: u64, value: i8) -> bool {
    u32::try_from(value).is_ok_and(|value| set.checked_shr(value).unwrap_or(0) & 1 == 1)
}

const MINUTE: Field = Field { name: "minute", lowest: 0, highest: 59, names: &[] };
const HOUR: Field = Field { name: "hour", lowest: 0, highest: 23, names: &[] };
const DAY: Field = Field { name: "day of the month", lowest: 1, highest: 31, names: &[] };
const MONTH: Field = Field {
    name: "month",
    lowest: 1,
    highest: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
const WEEKDAY: Field = Field {
    name: "day of the week",
    lowest: 0,
    highest: 7,
    names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
};
/// Maximum number of characters of a malformed line that its error repeats.
const MOST_SHOWN: usize = 100;

#[cfg(test)]
mod tests;
