//! Lines and their instants.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

use jiff::SignedDuration;

use super::*;

/// A line, its zone, an instant, and the instants of the line that follow it.
///
/// Python's cronsim finds the same ones, except for `W`, `L-3`, `?` and seconds of fixed times,
/// which it does not have. Where the clock moves by half an hour or a day, it misses some; there, a
/// search of every second finds these.
const INSTANTS: &str = "\
30-40/5 2 * * * | Europe/Berlin | 2025-03-29T12:00 | 2025-03-30T01:00 2025-03-31T00:30 2025-03-31T00:35 2025-03-31T00:40
30-40/5 2 * * * | Europe/Berlin | 2025-10-25T12:00 | 2025-10-26T00:30 2025-10-26T00:35 2025-10-26T00:40 2025-10-27T01:30
30,35,40 2 * * * | Europe/Berlin | 2025-10-25T12:00 | 2025-10-26T00:30 2025-10-26T00:35 2025-10-26T00:40 2025-10-27T01:30
0/30 2 * * * | Europe/Berlin | 2025-10-25T12:00 | 2025-10-26T00:00 2025-10-26T00:30 2025-10-27T01:00
0 1-3 * * * | Europe/Berlin | 2025-03-29T12:00 | 2025-03-30T00:00 2025-03-30T01:00 2025-03-30T23:00
0 1-3 * * * | Europe/Berlin | 2025-10-25T12:00 | 2025-10-25T23:00 2025-10-26T00:00 2025-10-26T02:00 2025-10-27T00:00
*/30 2 * * * | Europe/Berlin | 2025-03-29T12:00 | 2025-03-31T00:00 2025-03-31T00:30
*/30 2 * * * | Europe/Berlin | 2025-10-25T12:00 | 2025-10-26T00:00 2025-10-26T00:30 2025-10-26T01:00 2025-10-26T01:30
30 */2 * * * | Europe/Berlin | 2025-10-25T21:00 | 2025-10-25T22:30 2025-10-26T00:30 2025-10-26T01:30 2025-10-26T03:30
0 2 * * 7 | Europe/Berlin | 2025-03-29T12:00 | 2025-03-30T01:00 2025-04-06T00:00
30 2 L * * | Europe/Berlin | 2024-03-30T12:00 | 2024-03-31T01:00 2024-04-30T00:30
30 2 * 3 7L | Europe/Berlin | 2025-03-01T00:00 | 2025-03-30T01:00 2026-03-29T01:00
30 2 * 10 0#4 | Europe/Berlin | 2025-10-01T00:00 | 2025-10-26T00:30 2026-10-25T00:30
30 2 8-14 3 * | America/New_York | 2025-03-08T12:00 | 2025-03-09T07:00 2025-03-10T06:30
30 1 * 11 sun#1 | America/New_York | 2025-10-30T12:00 | 2025-11-02T05:30 2026-11-01T05:30
15 2 * * * | Australia/Lord_Howe | 2025-10-04T00:00 | 2025-10-04T15:30 2025-10-05T15:15
45 1 * * * | Australia/Lord_Howe | 2025-04-05T00:00 | 2025-04-05T14:45 2025-04-06T15:15
*/15 1-2 * * * | Australia/Lord_Howe | 2025-04-05T14:15 | 2025-04-05T14:30 2025-04-05T14:45 2025-04-05T15:00
0 0 * * * | America/Sao_Paulo | 2018-11-03T12:00 | 2018-11-04T03:00 2018-11-05T02:00
30 0 4 * * | America/Sao_Paulo | 2018-11-03T12:00 | 2018-11-04T03:00 2018-12-04T02:30
59 23 * * * | America/Sao_Paulo | 2018-02-17T12:00 | 2018-02-18T01:59 2018-02-19T02:59
30 12 30 12 * | Pacific/Apia | 2011-12-29T00:00 | 2011-12-30T10:00 2012-12-29T22:30
0 8 * * * | Pacific/Apia | 2011-12-29T00:00 | 2011-12-29T18:00 2011-12-30T10:00 2011-12-30T18:00
0 */8 * * * | Pacific/Apia | 2011-12-29T12:00 | 2011-12-29T18:00 2011-12-30T02:00 2011-12-30T10:00 2011-12-30T18:00
0 0 * * * | Africa/Cairo | 2025-04-24T12:00 | 2025-04-24T22:00 2025-04-25T21:00
30 23 * * * | America/Santiago | 2025-04-05T12:00 | 2025-04-06T02:30 2025-04-07T03:30
30 2 * * * | Africa/Casablanca | 2025-02-22T12:00 | 2025-02-23T01:30 2025-02-24T02:30 2025-02-25T02:30
0 0 29 2 * | UTC | 2096-03-01T00:00 | 2104-02-29T00:00
0 0 31 * * | UTC | 2026-01-31T00:00 | 2026-03-31T00:00 2026-05-31T00:00
59 23 31 DEC * | UTC | 2026-12-31T23:58 | 2026-12-31T23:59
0 0 13 * FRI | UTC | 2026-11-01T00:00 | 2026-11-06T00:00 2026-11-13T00:00 2026-11-20T00:00
0 0 */13 * 5 | UTC | 2026-11-01T00:00 | 2026-11-27T00:00
0 0 LW * * | UTC | 2026-01-01T00:00 | 2026-01-30T00:00 2026-02-27T00:00 2026-03-31T00:00 2026-04-30T00:00
0 0 L * * | UTC | 2028-01-31T12:00 | 2028-02-29T00:00 2028-03-31T00:00
0 12 29 2 1#5 | UTC | 2026-01-01T00:00 | 2028-02-29T12:00
0 0 L * fri#2 | UTC | 2026-11-01T00:00 | 2026-11-13T00:00 2026-11-30T00:00 2026-12-11T00:00
*/20 59 23 L 2 * | UTC | 2026-01-01T00:00 | 2026-02-28T23:59 2026-02-28T23:59:20 2026-02-28T23:59:40 2027-02-28T23:59
10,5 * * * * * | UTC | 2026-01-01T00:00 | 2026-01-01T00:00:05 2026-01-01T00:00:10 2026-01-01T00:01:05
0 0 15W * * | UTC | 2026-08-01T00:00 | 2026-08-14T00:00 2026-09-15T00:00
0 0 1W * * | UTC | 2026-08-01T12:00 | 2026-08-03T00:00 2026-09-01T00:00
0 0 31W * * | UTC | 2026-01-31T00:00 | 2026-03-31T00:00 2026-05-29T00:00
0 0 1w,30W * * | UTC | 2026-08-01T12:00 | 2026-08-03T00:00 2026-08-31T00:00 2026-09-01T00:00
0 0 L-3 2 ? | UTC | 2026-01-01T00:00 | 2026-02-25T00:00 2027-02-25T00:00 2028-02-26T00:00
0 0 ? * fri-sun | UTC | 2026-11-01T00:00 | 2026-11-06T00:00 2026-11-07T00:00 2026-11-08T00:00
* 30 2 * * * | Europe/Berlin | 2025-03-29T12:00 | 2025-03-30T01:00 2025-03-31T00:30 2025-03-31T00:30:01
*/30 0 2 * * * | Europe/Berlin | 2025-10-25T12:00 | 2025-10-26T00:00 2025-10-26T00:00:30 2025-10-27T01:00
";

fn at(text: &str) -> Timestamp {
    format!("{text}Z").parse().unwrap()
}

#[test]
fn at_clock_changes_and_in_rare_months_the_instants_are_those_of_vixies_cron() {
    for row in INSTANTS.lines() {
        let [line, zone, from, expected] = row.split(" | ").collect::<Vec<_>>()[..] else {
            panic!("{row}")
        };
        let (cron, zone) = (Cron::parse(line).unwrap(), TimeZone::get(zone).unwrap());
        let next = |after: &Timestamp| cron.next(&zone, *after);
        let expected: Vec<_> = expected.split(' ').map(at).collect();
        let found = std::iter::successors(next(&at(from)), next).take(expected.len());
        assert_eq!(found.collect::<Vec<_>>(), expected, "{row}");
        for instant in expected {
            assert_eq!(next(&(instant - SignedDuration::from_nanos(1))), Some(instant), "{row}");
        }
    }
}

#[test]
fn an_unknown_short_form_is_answered_with_the_known_ones() {
    let refusal = Cron::parse("@reboot").unwrap_err().to_string();
    assert!(refusal.contains("@reboot") && refusal.contains("@daily"), "{refusal}");
}

#[test]
fn lines_that_match_no_date_and_malformed_ones_are_refused() {
    for line in [
        "0 0 31 2 *",
        "0 0 30 feb *",
        "",
        "* * * *",
        "* * * * * * *",
        "60 * * * * *",
        "? * * * *",
        "* * ?,1 * *",
        "* * * ? *",
        "* * 1-5W * *",
        "* * 32w * *",
        "* * W * *",
        "* * 5L * *",
        "* * L-31 * *",
        "0 0 31W 4 *",
        "* * * * L",
        "* * * * 5#6",
        "* * * * 1-5#2",
        "* * * * 5W",
        "* * * * fri-mon",
        "l * * * *",
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
