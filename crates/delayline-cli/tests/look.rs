//! `delayline list`, `get`, `cancel`, `reschedule`, `pause`, `resume`, `stats --watch`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

mod support;

use std::time::Duration;

use delayline_test_server::Server;
use support::{DRIVERS, bare, count, ended, on, run, run_with_input, send_signal};

fn send(server: &Server, id: &str, more: &[&str]) {
    let args = [&["send", "--id", id, "--payload", "p"], more].concat();
    run(on(server, &args)).code(0);
}

#[test]
fn lists_are_paged_by_a_cursor() {
    let server = Server::start();
    let lines: String = (0..250)
        .map(|n| format!("{{\"id\":\"m{n:03}\",\"payload\":1,\"delay\":\"1h\"}}\n"))
        .collect();
    run_with_input(on(&server, &["send", "--file", "-"]), lines.as_bytes()).code(0);
    for driver in DRIVERS {
        let list = |more: &[&str]| {
            run(on(&server, &[&["--driver", driver, "list", "--json"], more].concat()))
                .code(0)
                .lines()
        };
        let all = list(&["--all"]);
        assert_eq!(all.len(), 250);
        assert!((0..250).zip(&all).all(|(n, line)| line["id"] == format!("m{n:03}")));
        assert_eq!(all[7]["state"], "scheduled");
        assert_eq!(all[7]["payload_bytes"], 1);

        let (mut seen, mut after) = (0, None::<String>);
        loop {
            let mut more = vec!["--limit", "120"];
            if let Some(after) = &after {
                more.extend(["--after", after]);
            }
            let mut page = list(&more);
            after = page.last().and_then(|line| line["after"].as_str()).map(str::to_owned);
            if after.is_some() {
                page.pop();
            }
            assert!(page.len() <= 120);
            assert!(page.iter().zip(seen..).all(|(line, n)| line["id"] == format!("m{n:03}")));
            seen += page.len();
            if after.is_none() {
                break;
            }
        }
        assert_eq!(seen, 250);
        assert!(list(&["--state", "ready"]).is_empty());
    }
    let table = run(on(&server, &["list", "--limit", "2"])).code(0);
    assert!(table.stdout.starts_with("ID "), "{}", table.stdout);
    assert_eq!(table.stdout.lines().count(), 3, "{}", table.stdout);
    assert!(table.stderr.contains("--after 2."), "{}", table.stderr);
    run(on(&server, &["list", "--after", "nonsense"])).code(2);
    run(on(&server, &["list", "--limit", "-1"])).code(2);
    let none = run(on(&server, &["list", "--state", "dead"])).code(0);
    assert_eq!((none.stdout.as_str(), none.stderr.as_str()), ("", "none\n"));
}

#[test]
fn a_message_is_shown_with_its_content_and_steers_no_terminal() {
    let server = Server::start();
    let hostile = "a\u{1b}]0;title\u{7}\u{202e}b\nc";
    let header = format!("note={hostile}");
    send(&server, "plain", &["--header", &header, "--delay", "2h", "--expires-in", "3h"]);
    run(on(&server, &["send", "--id", "hostile", "--payload", hostile])).code(0);
    let binary = r#"{"id":"binary","payload_base64":"/wD+"}"#;
    run_with_input(on(&server, &["send", "--file", "-"]), binary.as_bytes()).code(0);

    for driver in DRIVERS {
        let get = |args: &[&str]| run(on(&server, &[&["--driver", driver, "get"], args].concat()));
        let shown = get(&["plain", "hostile", "binary"]).code(0);
        for bad in ['\u{1b}', '\u{7}', '\u{202e}'] {
            assert!(!shown.stdout.contains(bad), "{}", shown.stdout);
        }
        assert!(shown.stdout.contains("3 bytes that are no text"), "{}", shown.stdout);
        let lines = get(&["plain", "hostile", "binary", "--json"]).code(0).lines();
        assert_eq!(lines[0]["headers"]["note"], hostile);
        assert_eq!(lines[0]["state"], "scheduled");
        assert!(lines[0]["expires_at"].is_string());
        assert_eq!(lines[1]["payload"], hostile);
        assert_eq!(lines[2]["payload_base64"], "/wD+");
        assert_eq!(get(&["hostile", "--raw"]).code(0).stdout, hostile);

        let unknown = get(&["plain", "nobody", "--json"]).code(1).lines();
        assert_eq!(unknown[1]["state"], "unknown");
        get(&["nobody", "--raw"]).code(1);
        get(&["plain", "hostile", "--raw"]).code(2);
        get(&[]).code(2);
        get(&[&"x".repeat(129)]).code(2);
    }
}

#[test]
fn messages_are_cancelled_and_moved_by_id() {
    let server = Server::start();
    for id in ["a", "b", "c", "d"] {
        send(&server, id, &["--delay", "1h"]);
    }
    let cancelled = run(on(&server, &["cancel", "a", "nobody", "--json"])).code(1).lines();
    assert_eq!(cancelled[0]["outcome"], "cancelled");
    assert_eq!(cancelled[1]["outcome"], "not_found");
    let finished = run(on(&server, &["get", "a", "--json"])).code(0).lines();
    assert_eq!(finished[0]["state"], "cancelled");

    // A file is a lot, so it is asked for; here is nobody to ask.
    let refused = run_with_input(on(&server, &["cancel", "--file", "-"]), b"b\n\nc\n").code(2);
    assert!(refused.stderr.contains("--yes is needed to cancel 2 messages"), "{}", refused.stderr);
    assert_eq!(count(&server, "cancelled_total"), 1);
    run_with_input(on(&server, &["cancel", "--file", "-", "--yes"]), b"b\n\nc\n").code(0);
    assert_eq!(count(&server, "cancelled_total"), 3);
    run(on(&server, &["cancel", "--file", "/nowhere", "--yes"])).code(2);
    run(on(&server, &["cancel"])).code(2);

    let at = "2031-05-01T12:00:00+02:00[Europe/Berlin]";
    let moved = run(on(&server, &["reschedule", "d", "--at", at, "--json"])).code(0).lines();
    assert_eq!(moved[0]["due"], "2031-05-01T10:00:00.000Z");
    run(on(&server, &["reschedule", "d", "nobody", "--delay", "1s"])).code(1);
    for wrong in [&["--delay", "soon"][..], &["--at", "noon"], &[], &["--delay", "1s", "--at", at]]
    {
        run(on(&server, &[&["reschedule", "d"], wrong].concat())).code(2);
    }
}

#[test]
fn a_paused_queue_takes_messages_and_delivers_none() {
    let server = Server::start();
    run(on(&server, &["pause"])).code(0);
    run(on(&server, &["pause"])).code(0);
    send(&server, "a", &[]);
    assert!(run(on(&server, &["stats"])).code(0).stdout.contains("paused          yes"));
    let mut work = on(&server, &["work", "--until-empty"]).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert!(work.try_wait().unwrap().is_none(), "the message waits");
    run(on(&server, &["resume"])).code(0);
    let worked = ended(work).code(0);
    assert_eq!(worked.lines()[0]["id"], "a");
}

#[test]
fn stats_are_watched_until_interrupted() {
    let server = Server::start();
    for json in [true, false] {
        let mut args = vec!["stats", "--watch", "100ms"];
        args.extend(json.then_some("--json"));
        let child = on(&server, &args).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(1_000));
        send_signal(&child, "-INT");
        let watched = ended(child).code(0);
        assert!(watched.stdout.lines().count() >= 3, "{}", watched.stdout);
        assert!(watched.stdout.lines().all(|line| line.contains("scheduled")));
    }
    run(on(&server, &["stats", "--watch", "0s"])).code(2);
    run(on(&server, &["stats", "--watch", "soon"])).code(2);
}

#[test]
fn every_verb_says_when_there_is_no_server() {
    for verb in [
        &["list"][..],
        &["get", "a"],
        &["cancel", "a"],
        &["reschedule", "a", "--delay", "1s"],
        &["dead", "list"],
        &["dead", "redrive", "a"],
        &["dead", "purge", "a", "--yes"],
        &["pause"],
        &["resume"],
        &["doctor"],
    ] {
        for driver in DRIVERS {
            let args = [&["--queue", "q", "--driver", driver, "--url", "unix:/nowhere/s"], verb];
            let ended = run(bare(&args.concat())).code(3);
            assert!(ended.stderr.contains("cannot be reached"), "{}", ended.stderr);
        }
    }
}

#[test]
fn shells_get_their_completions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = run(bare(&["completions", shell])).code(0).stdout;
        assert!(script.contains("delayline") && script.contains("reschedule"), "{shell}");
    }
    run(bare(&["completions", "cmd"])).code(2);
}
