//! Windows of due times: `--from` and `--until` of `delayline forecast` and `delayline list`.

use std::process::Command;

use crate::file;
use crate::support::{DRIVERS, Ended, on, run, run_with_input};
use delayline_test_server::Server;
use serde_json::{Value, json};

/// Returns the command on a queue with these arguments.
type Queue<'a> = &'a dyn Fn(&[&str]) -> Command;

fn in_zone(zone: &str, mut command: Command) -> Ended {
    command.env("TZ", zone);
    run(command)
}

/// Sends `m-000` to `m-239`, two per minute from 9:00 UTC of a day in 2050, of all priorities, and
/// `ready`, which is due.
fn prepare(queue: Queue<'_>) {
    let line = |n: usize| {
        let at = format!("2050-01-31T{:02}:{:02}:00Z", 9 + n / 120, n / 2 % 60);
        let priority = ["high", "normal", "low"][n / 2 % 3];
        json!({"id": format!("m-{n:03}"), "payload": n, "at": at, "priority": priority}).to_string()
    };
    let lines: Vec<String> = (0..240).map(line).collect();
    let lines = lines.join("\n") + "\n{\"id\": \"ready\", \"payload\": 1}\n";
    run_with_input(queue(&["send", "--file", "-"]), lines.as_bytes()).code(0);
}

fn ids(lines: &[Value]) -> Vec<String> {
    let messages = lines.iter().flat_map(|line| line["messages"].as_array().unwrap());
    messages.map(|message| message["id"].as_str().unwrap().to_owned()).collect()
}

fn expected(numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|n| format!("m-{n:03}")).collect()
}

fn counts_and_lists(queue: Queue<'_>) {
    prepare(queue);
    // Messages that are due at the bounds are on the correct side of them.
    let window = ["--from", "2050-01-31T09:10:00Z", "--until", "2050-01-31T10:10:00Z"];
    let with = |verb: &'static str, window: &[&str], more: &[&str]| {
        in_zone("Europe/Berlin", queue(&[&[verb], window, more].concat())).code(0)
    };
    let forecast = with("forecast", &window, &["--json"]).lines().remove(0);
    let due = json!({
        "from": "2050-01-31T09:10:00.000Z", "until": "2050-01-31T10:10:00.000Z",
        "zone": "Europe/Berlin", "count": 120,
    });
    let counts = json!({"queue": "orders", "ready": 1, "before": 20, "due": [due], "later": 100});
    assert_eq!(forecast, counts);
    let listed = with("list", &window, &["--all", "--json"]);
    let lines = listed.lines();
    let all: Vec<_> = lines.iter().map(|line| line["id"].as_str().unwrap()).collect();
    assert_eq!(all, expected(20..140));
    let bounds = "due from 2050-01-31 10:10:00 CET (2050-01-31T09:10:00.000Z) \
                  until 2050-01-31 11:10:00 CET (2050-01-31T10:10:00.000Z)\n";
    assert_eq!(listed.stderr, bounds);

    // The zone of the machine reads times, and the table shows it next to UTC.
    let here = ["--from", "2050-01-31 10:10", "--until", "2050-01-31 11:10"];
    let table = with("forecast", &here, &[]).stdout;
    let rows: Vec<_> = table.lines().collect();
    assert_eq!(rows[0], "queue           orders");
    assert_eq!(rows[1], "from            2050-01-31 10:10:00 CET (2050-01-31T09:10:00.000Z)");
    assert_eq!(rows[2], "until           2050-01-31 11:10:00 CET (2050-01-31T10:10:00.000Z)");
    let row = |n: usize| rows[n].trim_end_matches('#').split_whitespace().collect::<Vec<_>>();
    assert_eq!((row(3), row(4)), (vec!["ready", "1"], vec!["before", "20"]));
    assert_eq!((row(5), row(6)), (vec!["in", "the", "window", "120"], vec!["later", "100"]));

    // Each bound alone.
    let from = ["--from", "2050-01-31T10:59Z"];
    let open = with("forecast", &from, &["--json"]).lines().remove(0);
    assert_eq!((&open["before"], &open["due"][0]["count"]), (&238.into(), &2.into()));
    assert_eq!((&open["due"][0]["until"], &open["later"]), (&Value::Null, &0.into()));
    let table = with("forecast", &from, &[]).stdout;
    assert!(table.contains("until           no end\n") && !table.contains("later"), "{table}");
    assert_eq!(ids(&with("list", &from, &["--json"]).lines()), expected(238..240));
    let until = ["--until", "2050-01-31T09:01Z"];
    let first = with("forecast", &until, &["--json"]).lines().remove(0);
    assert_eq!((&first["before"], &first["due"][0]["count"]), (&0.into(), &2.into()));
    assert_eq!(ids(&with("list", &until, &["--json"]).lines()), expected(0..2));
    let empty = with("list", &["--until", "1h"], &["--json"]);
    assert_eq!(empty.lines(), [json!({"messages": [], "next": null})]);
    let empty = with("list", &["--until", "1h"], &[]).stderr;
    assert!(empty.starts_with("due from ") && empty.ends_with("\nno messages\n"), "{empty}");

    // Page by page. The printed flags are those of the same window, whatever the words meant.
    let mut seen = Vec::new();
    let mut flags: Vec<String> = here.iter().map(|&flag| flag.to_owned()).collect();
    loop {
        let flags_now: Vec<&str> = flags.iter().map(String::as_str).collect();
        let page = with("list", &flags_now, &["--limit", "40", "--state", "scheduled"]);
        let rows = page.stdout.lines().skip(1);
        seen.extend(rows.map(|row| row.split_whitespace().next().unwrap().to_owned()));
        let Some((_, next)) = page.stderr.split_once("more messages: ") else { break };
        flags = next.split_whitespace().map(str::to_owned).collect();
        assert_eq!(flags[..4], ["--from", &bounds_utc(0), "--until", &bounds_utc(1)]);
    }
    assert_eq!(seen, expected(20..140));
    let last = with("list", &window, &["--limit", "120", "--json"]).lines();
    assert_eq!((last.len(), &last[1]["next"]), (2, &Value::Null));
}

fn bounds_utc(n: usize) -> String {
    ["2050-01-31T09:10:00.000Z", "2050-01-31T10:10:00.000Z"][n].to_owned()
}

fn refuses(queue: Queue<'_>) {
    for (flags, said) in [
        (&["--from", "soon"][..], "--from: \"soon\" is not a time: write 14:00"),
        (&["--until", "25:00"], "--until: \"25:00\" is not a time"),
        (&["--until=-1h"], "--until: \"-1h\" is not a time"),
        (&["--until", "\u{1b}[2J"], "is not a time"),
        (&["--from", "2050-01-31", "--until", "2050-01-30"], "the window ends at 2050-01-30T"),
        (&["--from", "2050-01-31", "--until", "2050-01-30"], "but begins at 2050-01-31T"),
        (&["--from", "2050-01-31", "--until", "2050-01-30"], "hint: a time without a day"),
        (&["--from", "2050-01-31", "--until", "2050-01-31"], "but begins at"),
        (&["--until", "2020-01-01"], "the window ended at 2020-01-01T00:00:00.000Z, and the"),
        (&["--until", "2020-01-01"], "hint: messages that were due by then are ready"),
        (&["--until", "0s"], "the window ended at"),
    ] {
        for verb in ["forecast", "list"] {
            let refused = in_zone("UTC", queue(&[&[verb], flags].concat())).code(2);
            assert!(refused.stderr.contains(said), "{flags:?}: {}", refused.stderr);
            assert!(refused.stdout.is_empty() && !refused.stderr.contains('\u{1b}'));
        }
    }
    let unknown = in_zone("Nowhere/City", queue(&["list", "--until", "tomorrow"])).code(2);
    let said = "--until: \"tomorrow\" depends on the time zone, and the variable TZ names none";
    assert!(unknown.stderr.contains(said), "{}", unknown.stderr);
    in_zone("Nowhere/City", queue(&["list", "--until", "2h"])).code(0);
    for (args, said) in [
        (&["forecast", "--until", "3000-01-01T00:00Z"][..], "3000-01-01T00:00:00.000Z"),
        (&["forecast", "--from", "3000-01-01T00:00Z"], "more than 100 years from now"),
        (&["forecast", "--within", "1h", "--until", "2h"], "cannot be used with"),
        (&["list", "--until", "2h", "--content", "x"], "cannot be used with"),
        (&["list", "--until", "2h", "--state", "ready"], "not --state ready"),
        (&["list", "--until", "2h", "--after", "ready"], "a cursor for another state"),
        (&["list", "--until", "2h", "--after", "x"], "not a cursor"),
    ] {
        let refused = in_zone("UTC", queue(args)).code(2);
        assert!(refused.stderr.contains(said), "{args:?}: {}", refused.stderr);
    }
}

#[test]
fn a_window_of_a_directory_is_counted_and_listed() {
    let directory = tempfile::tempdir().unwrap();
    let queue = |args: &[&str]| file::on(&directory.path().join("new"), args);
    counts_and_lists(&queue);
    refuses(&queue);
}

#[test]
fn a_window_of_a_server_is_counted_and_listed() {
    for driver in DRIVERS {
        let server = Server::start();
        let queue = |args: &[&str]| on(&server, &[&["--driver", driver], args].concat());
        counts_and_lists(&queue);
        refuses(&queue);
    }
    let server = Server::start();
    assert!(run(on(&server, &["forecast", "--until", "1h"])).is_unknown_queue());
    assert!(run(on(&server, &["list", "--until", "1h"])).is_unknown_queue());
}
