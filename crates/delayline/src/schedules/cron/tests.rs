//! The lines against a search minute by minute, across changes of the offset in many zones.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

use std::collections::BTreeSet;

use jiff::SignedDuration;

use super::*;

const ZONES: [&str; 8] = [
    "America/New_York",
    "Europe/Berlin",
    "Europe/London",
    // By half an hour.
    "Australia/Lord_Howe",
    // At midnight.
    "Africa/Cairo",
    "Asia/Beirut",
    "America/Santiago",
    "Africa/Casablanca",
];

const LINES: [&str; 22] = [
    "* * * * *",
    "*/15 * * * *",
    "0 * * * *",
    "30 * * * *",
    "0 */2 * * *",
    "0 0 * * *",
    "30 0 * * *",
    "15 1 * * *",
    "0 2 * * *",
    "30 2 * * *",
    "0,30 2 * * *",
    "0 1-3 * * *",
    "0 3 * * *",
    "59 23 * * *",
    "0 0 1 * *",
    "0 2 * * 0",
    "30 2 * * 7",
    "0 2 29-31 3 *",
    "0 2 1 * sun",
    "*/20 2 * * *",
    "5-55/10 0-3 * * *",
    "@hourly",
];

/// A matcher that knows nothing of sets and searches: whether a minute matches a field by its text.
fn field_matches(text: &str, value: i8, lowest: i8, highest: i8, names: &[&str]) -> bool {
    let number = |text: &str| {
        let by_name = names.iter().position(|name| *name == text);
        by_name.map_or_else(|| text.parse::<i8>().unwrap(), |at| lowest + i8::try_from(at).unwrap())
    };
    text.split(',').any(|part| {
        let (range, step) = part.split_once('/').unwrap_or((part, "1"));
        let (first, last) = match range.split_once('-') {
            _ if range == "*" => (lowest, highest),
            Some((first, last)) => (number(first), number(last)),
            None if part.contains('/') => (number(range), highest),
            None => (number(range), number(range)),
        };
        (first..=last).contains(&value) && (value - first) % step.parse::<i8>().unwrap() == 0
    })
}

fn matches(line: &str, civil: DateTime) -> bool {
    let fields: Vec<_> = line.split(' ').collect();
    let weekday = civil.weekday().to_sunday_zero_offset();
    let days = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
    let on = |value| field_matches(fields[4], value, 0, 7, &days);
    let by_weekday = on(weekday) || weekday == 0 && on(7);
    let by_day = field_matches(fields[2], civil.day(), 1, 31, &[]);
    let both = fields[2].starts_with('*') || fields[4].starts_with('*');
    field_matches(fields[0], civil.minute(), 0, 59, &[])
        && field_matches(fields[1], civil.hour(), 0, 23, &[])
        && field_matches(fields[3], civil.month(), 1, 12, &[])
        && if both { by_day && by_weekday } else { by_day || by_weekday }
}

/// Every matching instant of a span, by the rules of Vixie's cron, minute by minute.
fn by_brute_force(
    line: &str,
    zone: &TimeZone,
    from: Timestamp,
    until: Timestamp,
) -> BTreeSet<Timestamp> {
    let line = if line == "@hourly" { "0 * * * *" } else { line };
    let mut seen_civil = BTreeSet::new();
    let mut found = BTreeSet::new();
    let elapsing = line.split(' ').take(2).any(|field| field.contains(['*', '/']));
    let mut previous: Option<DateTime> = None;
    let minute = SignedDuration::from_mins(1);
    // A day before, so that repeated times are known as such.
    let mut instant = from - SignedDuration::from_hours(24);
    while instant <= until {
        let civil = zone.to_datetime(instant);
        if elapsing {
            if matches(line, civil) {
                found.insert(instant);
            }
        } else {
            // The clock jumped: what lies in between happens now.
            if let Some(previous) = previous {
                let mut skipped = previous.checked_add(minute).unwrap();
                while skipped < civil {
                    if matches(line, skipped) && seen_civil.insert(skipped) {
                        found.insert(instant);
                    }
                    skipped = skipped.checked_add(minute).unwrap();
                }
            }
            if matches(line, civil) && seen_civil.insert(civil) {
                found.insert(instant);
            }
            previous = Some(civil);
        }
        instant += minute;
    }
    found.retain(|instant| *instant > from);
    found
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[test]
fn across_changes_of_the_offset_the_instants_are_those_of_vixies_cron() {
    let mut cases = 0;
    for name in ZONES {
        let zone = TimeZone::get(name).unwrap();
        let start = at("2025-01-01T00:00:00Z");
        let changes: Vec<_> =
            zone.following(start).map(|change| change.timestamp()).take(4).collect();
        assert!(changes.len() == 4, "{name} changes its offset");
        for change in changes {
            let (from, until) =
                (change - SignedDuration::from_hours(30), change + SignedDuration::from_hours(30));
            for line in LINES {
                let cron = Cron::parse(line).unwrap();
                let mut found = BTreeSet::new();
                let mut last = from;
                while let Some(next) = cron.next(&zone, last).filter(|next| *next <= until) {
                    assert!(next > last, "{line} in {name}: {next} after {last}");
                    found.insert(next);
                    last = next;
                }
                let expected = by_brute_force(line, &zone, from, until);
                assert_eq!(found, expected, "{line} in {name} around {change}");
                cases += 1;
            }
        }
    }
    assert_eq!(cases, 704);
}

#[test]
fn rare_dates_are_found() {
    let utc = TimeZone::UTC;
    for (line, after, expected) in [
        ("0 0 29 2 *", "2096-03-01T00:00:00Z", "2104-02-29T00:00:00Z"),
        ("0 0 31 * *", "2026-01-31T00:00:00Z", "2026-03-31T00:00:00Z"),
        ("0 12 1 1 *", "2026-06-01T00:00:00Z", "2027-01-01T12:00:00Z"),
        ("59 23 31 DEC *", "2026-12-31T23:58:59.999Z", "2026-12-31T23:59:00Z"),
        // One of the two kinds of days is enough, unless one of them begins with `*`.
        ("0 0 13 * FRI", "2026-11-01T00:00:00Z", "2026-11-06T00:00:00Z"),
        ("0 0 */13 * 5", "2026-11-01T00:00:00Z", "2026-11-27T00:00:00Z"),
    ] {
        let cron = Cron::parse(line).unwrap();
        assert_eq!(cron.next(&utc, at(after)), Some(at(expected)), "{line}");
    }
}

#[test]
fn an_unknown_short_form_is_answered_with_the_known_ones() {
    for line in ["@reboot", "@every 1m"] {
        let refusal = Cron::parse(line).unwrap_err().to_string();
        assert!(refusal.contains(line) && refusal.contains("@daily"), "{refusal}");
    }
}

#[test]
fn lines_that_match_no_date_and_malformed_ones_are_refused() {
    for line in [
        "0 0 31 2 *",
        "0 0 30 feb *",
        "",
        "* * * *",
        "* * * * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * 32 * *",
        "* * * 13 *",
        "* * * * 8",
        "*/0 * * * *",
        "*/61 * * * *",
        "5-1 * * * *",
        "1,,2 * * * *",
        "-1 * * * *",
        "+1 * * * *",
        "1- * * * *",
        "mon * * * *",
        "@reboot",
        "\u{663} * * * *",
    ] {
        let refusal = Cron::parse(line).unwrap_err();
        assert!(matches!(refusal, Violation::Malformed { .. }), "{line}: {refusal}");
    }
    let said = |line| Cron::parse(line).unwrap_err().to_string();
    assert!(said("*/0 * * * *").ends_with("a step of the minute is 1 to 59"));
    assert!(said("60/5 * * * *").ends_with("the minute takes 0 to 59, lists, ranges and steps"));
}
