//! Durations and instants as people write them.

use std::time::{Duration, SystemTime};

use jiff::fmt::temporal::DateTimeParser;
use jiff::tz::Disambiguation;
use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp, Zoned};

use crate::text::{quoted, short};

/// Reads `90s`, `30m`, `1h30m`, `2 days`, `PT30M`. Days have 24 hours; months and years have no
/// fixed length and are refused, as are negative durations and numbers without a unit, such as
/// `14:00:00`.
///
/// # Errors
///
/// A sentence with the reason and the beginning of the text.
pub fn duration(text: &str) -> Result<Duration, String> {
    let invalid = |why: &str| format!("{} is not a duration: {why}", quoted(text));
    // The parser's own message names units that are refused below.
    let without_unit = || invalid("write a number and a unit: 90s, 30m, 1h30m, 2 days");
    // The parser takes `14:00:00` and `25:00:00` for hours, minutes and seconds.
    if text.contains(':') {
        return Err(without_unit());
    }
    let span: Span = text.parse().map_err(|_| without_unit())?;
    if span.get_years() != 0 || span.get_months() != 0 {
        return Err(invalid("months and years have no fixed length; write days"));
    }
    let duration: SignedDuration = span
        .to_duration(SpanRelativeTo::days_are_24_hours())
        .map_err(|error| invalid(&short(&error.to_string(), MOST_WHY)))?;
    duration.try_into().map_err(|_| invalid("it is negative"))
}

/// Reads an instant:
///
/// - `2026-12-01T09:00:00Z`, also with an offset, a time zone, or both, which then must agree;
/// - unix time, from 2001 to 2286: ten digits are seconds, thirteen are milliseconds.
///
/// A time without an offset and a zone is refused, because it could mean several instants. A time
/// with a zone alone is refused if the clocks of this zone skip it or show it twice.
///
/// # Errors
///
/// A sentence with the reason and the beginning of the text.
pub fn instant(text: &str) -> Result<SystemTime, String> {
    const ZONED: DateTimeParser = DateTimeParser::new().disambiguation(Disambiguation::Reject);
    let invalid = |why: &str| format!("{} is not an instant: {why}", quoted(text));
    if is_number(text) {
        let since_1970 = text.parse().ok().and_then(|number| match text.len() {
            10 => Some(Duration::from_secs(number)),
            13 => Some(Duration::from_millis(number)),
            _ => None,
        });
        let instant = since_1970.filter(|_| !text.starts_with('0'));
        return instant
            .and_then(|since_1970| SystemTime::UNIX_EPOCH.checked_add(since_1970))
            .ok_or_else(|| invalid("unix time has 10 digits in seconds, or 13 in milliseconds"));
    }
    let timestamp = if text.contains('[') {
        let zoned = ZONED.parse_zoned(text);
        if zoned.is_err() && text.parse::<Zoned>().is_ok() {
            return Err(invalid(
                "its zone skips this time or has it twice on that day; write it with an offset, \
                 such as 2026-10-25T02:30+01:00",
            ));
        }
        zoned.map(|zoned| zoned.timestamp())
    } else {
        text.parse::<Timestamp>()
    };
    let timestamp = timestamp.map_err(|error| invalid(&short(&error.to_string(), MOST_WHY)))?;
    if timestamp < Timestamp::UNIX_EPOCH {
        return Err(invalid("it is before 1970"));
    }
    Ok(timestamp.into())
}

/// Returns whether the text can only be meant as unix time.
pub(crate) fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Maximum length of the parser's message, which may repeat the text.
const MOST_WHY: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_as_people_write_them() {
        for (text, ms) in [
            ("90s", 90_000),
            ("30m", 1_800_000),
            ("1h30m", 5_400_000),
            ("1.5s", 1_500),
            ("250ms", 250),
            ("2 days", 172_800_000),
            ("1w", 604_800_000),
            ("PT30M", 1_800_000),
            ("0s", 0),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_an_error_and_never_zero() {
        for text in [
            "",
            "90",
            "NaN",
            "NaNs",
            "inf",
            "-5s",
            "5s ago",
            "9007199254740992y",
            "1e3s",
            "18446744073709551615s",
            "9007199254740992d",
            "s",
            "1 month",
            "2y",
            "90 s x",
        ] {
            let error = duration(text).unwrap_err();
            assert!(!error.contains("years") || text == "2y" || text == "1 month", "{error}");
        }
    }

    #[test]
    fn instants_need_an_offset_or_a_zone() {
        let utc = instant("2026-12-01T08:00:00Z").unwrap();
        for text in [
            "2026-12-01T09:00:00+01:00",
            "2026-12-01T09:00:00+01:00[Europe/Berlin]",
            "2026-12-01T09:00:00[Europe/Berlin]",
            "2026-12-01 08:00Z",
            "1796112000",
            "1796112000000",
        ] {
            assert_eq!(instant(text), Ok(utc), "{text}");
        }
        for text in [
            "",
            "now",
            "2026-12-01T09:00:00",
            "2026-12-01",
            "179611200",
            "17961120000",
            "17961120000000",
            "0000000000001",
            "1796112000.5",
            "-1796112000",
            "NaN",
            "1969-12-31T00:00Z",
            "2026-12-01T09:00:00+05:00[Europe/Berlin]",
            "2026-13-01T00:00:00Z",
            "-9999-01-01T00:00Z",
            "2026-12-01T09:00:00[Nowhere/Land]",
            "99999-01-01T00:00:00Z",
        ] {
            assert!(instant(text).is_err(), "{text:?}: {:?}", instant(text));
        }
    }

    #[test]
    fn times_that_a_zone_skips_or_repeats_need_an_offset() {
        for text in ["2026-03-29T02:30:00[Europe/Berlin]", "2026-10-25T02:30:00[Europe/Berlin]"] {
            let error = instant(text).unwrap_err();
            assert!(error.contains("skips this time or has it twice"), "{error}");
        }
        for (text, utc) in [
            ("2026-10-25T02:30:00+02:00[Europe/Berlin]", "2026-10-25T00:30:00Z"),
            ("2026-10-25T02:30:00+01:00[Europe/Berlin]", "2026-10-25T01:30:00Z"),
            ("2026-03-29T03:00:00[Europe/Berlin]", "2026-03-29T01:00:00Z"),
        ] {
            assert_eq!(instant(text), instant(utc), "{text}");
        }
    }

    #[test]
    fn errors_are_short_however_long_the_text_is() {
        let parse: [fn(&str) -> Option<String>; 2] =
            [|text| duration(text).err(), |text| instant(text).err()];
        for part in ["\u{7f}", "9", "a", "1h", "[", "2026-12-01T09:00:00[", "\u{202e}"] {
            let long = part.repeat(100_000);
            let zone = format!("2026-12-01T09:00:00Z[{long}]");
            for text in [&long, &zone] {
                for error in parse.iter().filter_map(|parse| parse(text)) {
                    assert!(error.len() < 1_000 && error.contains("..."), "{}", error.len());
                }
            }
        }
        assert!(duration("90").unwrap_err().starts_with("\"90\" is not a duration: "));
    }
}
