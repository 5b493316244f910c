//! Cron lines: the instants that match, across changes of a time zone's offset.

use delayline_core::Violation;
use jiff::civil::{Date, DateTime, Time, Weekday};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Timestamp, ToSpan as _};

/// A line of five fields: minute, hour, day of the month, month, day of the week; or of six, with
/// the second in front of them.
///
/// As in Vixie's cron, a line runs once a day at fixed times even where a clock change skips or
/// repeats them. A line whose minutes or hours begin with `*` follows the elapsed time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cron {
    seconds: u64,
    minutes: u64,
    hours: u64,
    days: Days,
    months: u64,
    /// Bit `8 * n + weekday`, where `n` is 0 for each of a month, 1 to 5 for one of them, or
    /// [`LAST`].
    weekdays: u64,
    /// Whether a day needs to match only one of the two day fields: neither begins with `*`.
    either_day: bool,
    /// Whether the line follows the elapsed time.
    elapsing: bool,
}

/// The days of a month.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Days {
    numbers: u64,
    /// Bit `n` is the day `n` days before the last one.
    before_last: u64,
    /// The weekdays nearest to these days, within the month.
    nearest_weekday: u64,
    last_weekday: bool,
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
        let lowered = line.trim().to_ascii_lowercase();
        let expanded = match &lowered[..] {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            _ => &lowered,
        };
        let fields: Vec<_> = expanded.split_ascii_whitespace().collect();
        let (second, [minute, hour, day, month, weekday]) = match fields[..] {
            [minute, hour, day, month, weekday] => ("0", [minute, hour, day, month, weekday]),
            [second, minute, hour, day, month, weekday] => {
                (second, [minute, hour, day, month, weekday])
            }
            _ if expanded.starts_with('@') => {
                return Err(malformed(
                    "the short forms are @every DURATION, @hourly, @daily, @weekly, @monthly and \
                     @yearly"
                        .to_owned(),
                ));
            }
            _ => {
                return Err(malformed(format!(
                    "it has {} fields; write minute, hour, day, month and weekday, with the second \
                     in front of them if you need it",
                    fields.len()
                )));
            }
        };
        let [day, weekday] = [day, weekday].map(|field| if field == "?" { "*" } else { field });
        let cron = Self {
            seconds: SECOND.parse(second).map_err(malformed)?,
            minutes: MINUTE.parse(minute).map_err(malformed)?,
            hours: HOUR.parse(hour).map_err(malformed)?,
            days: Days::parse(day).map_err(malformed)?,
            months: MONTH.parse(month).map_err(malformed)?,
            weekdays: weekdays(weekday).map_err(malformed)?,
            either_day: !day.starts_with('*') && !weekday.starts_with('*'),
            elapsing: minute.starts_with('*') || hour.starts_with('*'),
        };
        if cron.on_or_after(DateTime::constant(2000, 1, 1, 0, 0, 0, 0)).is_none() {
            return Err(malformed("no date matches it".to_owned()));
        }
        Ok(cron)
    }

    /// The shortest time between two instants, in milliseconds, or less.
    pub(super) const fn shortest_interval_ms(&self) -> u64 {
        if self.seconds.count_ones() == 1 { 60_000 } else { 1_000 }
    }

    /// Returns the first matching instant after `after`, or `None` if there is none in 50 years.
    pub(super) fn next(&self, zone: &TimeZone, after: Timestamp) -> Option<Timestamp> {
        if self.elapsing { self.next_elapsing(zone, after) } else { self.next_fixed(zone, after) }
    }

    /// Each period between two changes of the offset is searched separately.
    fn next_elapsing(&self, zone: &TimeZone, after: Timestamp) -> Option<Timestamp> {
        let mut start = Timestamp::from_second(after.as_second().checked_add(1)?).ok()?;
        loop {
            let offset = zone.to_offset(start);
            let end = zone.following(start).next().map(|change| change.timestamp());
            let found = self.on_or_after(offset.to_datetime(start))?;
            let found = offset.to_timestamp(found).ok()?;
            match end {
                Some(end) if found >= end => start = end,
                _ => return Some(found),
            }
        }
    }

    /// A time that a change of the offset skips becomes the end of the change. If a time occurs
    /// twice, the first one counts.
    fn next_fixed(&self, zone: &TimeZone, after: Timestamp) -> Option<Timestamp> {
        // No earlier time of day has an instant that is later.
        let mut civil = zone.to_datetime(after);
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
            civil = civil.checked_add(1.second()).ok()?;
        }
    }

    /// Returns the first matching second that begins at `from` or later, without a time zone.
    fn on_or_after(&self, from: DateTime) -> Option<DateTime> {
        let second = from.with().subsec_nanosecond(0).build().ok()?;
        let from = if second < from { second.checked_add(1.second()).ok()? } else { second };
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
        let (by_day, by_weekday) = (self.days.contains(date), self.matches_weekday(date));
        if self.either_day { by_day || by_weekday } else { by_day && by_weekday }
    }

    fn matches_weekday(&self, date: Date) -> bool {
        let on = |nth| has(self.weekdays, 8 * nth + date.weekday().to_sunday_zero_offset());
        on(0) || on((date.day() + 6) / 7) || date.day() + 7 > date.days_in_month() && on(LAST)
    }

    fn time(&self, earliest: Time) -> Option<Time> {
        let hours = (earliest.hour()..24).filter(|&hour| has(self.hours, hour));
        let minutes = hours.flat_map(|hour| {
            let first = if hour == earliest.hour() { earliest.minute() } else { 0 };
            (first..60).filter(|&minute| has(self.minutes, minute)).map(move |it| (hour, it))
        });
        let mut seconds = minutes.flat_map(|(hour, minute)| {
            let is_first = (hour, minute) == (earliest.hour(), earliest.minute());
            let first = if is_first { earliest.second() } else { 0 };
            let seconds = (first..60).filter(|&second| has(self.seconds, second));
            seconds.map(move |second| (hour, minute, second))
        });
        let (hour, minute, second) = seconds.next()?;
        Time::new(hour, minute, second, 0).ok()
    }
}

impl Days {
    /// Besides numbers: `L` is the last day, `L-3` three days before it, `LW` the last day from
    /// Monday to Friday, and `15W` the day from Monday to Friday nearest to the 15th.
    fn parse(text: &str) -> Result<Self, String> {
        text.split(',').try_fold(Self::default(), |mut days, part| {
            if part == "lw" {
                days.last_weekday = true;
            } else if part == "l" {
                days.before_last |= 1;
            } else if let Some(back) = part.strip_prefix("l-") {
                let back = number(back, 1, 30).ok_or("after `L-` come 1 to 30 days")?;
                days.before_last |= 1 << back;
            } else if let Some(day) = part.strip_suffix('w') {
                days.nearest_weekday |= 1 << DAY.value(day)?;
            } else {
                days.numbers |= DAY.part(part)?;
            }
            Ok(days)
        })
    }

    fn contains(&self, date: Date) -> bool {
        let (day, last) = (date.day(), date.days_in_month());
        has(self.numbers, day)
            || has(self.before_last, last - day)
            || self.last_weekday && nearest_weekday(date.last_of_month()) == Some(date)
            || (day - 2..=day + 2).any(|near| {
                has(self.nearest_weekday, near)
                    && Date::new(date.year(), date.month(), near)
                        .is_ok_and(|near| nearest_weekday(near) == Some(date))
            })
    }
}

/// The day from Monday to Friday that is nearest to a date, in the same month.
fn nearest_weekday(date: Date) -> Option<Date> {
    let days = match date.weekday() {
        Weekday::Saturday if date.day() == 1 => 2,
        Weekday::Saturday => -1,
        Weekday::Sunday if date.day() == date.days_in_month() => -2,
        Weekday::Sunday => 1,
        _ => 0,
    };
    date.checked_add(days.days()).ok()
}

/// The days of the week. `5#2` and `fri#2` are the second Friday of a month, `5L` is the last one.
fn weekdays(text: &str) -> Result<u64, String> {
    text.split(',').try_fold(0, |days, part| {
        let (part, nth) = if let Some((day, nth)) = part.split_once('#') {
            let nth = number(nth, 1, 5).ok_or("after `#` comes 1 to 5")?;
            (day, nth)
        } else if let Some(day) = part.strip_suffix('l') {
            (day, u32::from(LAST.unsigned_abs()))
        } else {
            (part, 0)
        };
        let set = if nth == 0 { WEEKDAY.part(part)? } else { 1 << WEEKDAY.value(part)? };
        // Sunday is both 0 and 7.
        Ok(days | (set & 0x7f | set >> 7 & 1) << (8 * nth))
    })
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
        // Sunday is also the end of a week.
        let last = if last == 0 && first > 0 && self.highest == 7 { 7 } else { last };
        if first > last {
            return Err(format!("in the {}, {range} ends before it begins", self.name));
        }
        let step = usize::try_from(step.unwrap_or(1)).unwrap_or(usize::MAX);
        Ok((first..=last).step_by(step).fold(0, |values, value| values | 1 << value))
    }

    fn value(&self, text: &str) -> Result<u32, String> {
        let named = self.names.iter().position(|name| *name == text);
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

/// The number of the last one of a weekday in a month.
const LAST: i8 = 6;
const SECOND: Field = Field { name: "second", lowest: 0, highest: 59, names: &[] };
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
