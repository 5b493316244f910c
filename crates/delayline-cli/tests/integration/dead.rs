//! `delayline dead`.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{DRIVERS, Ended, count, let_die, on, run, send};
use delayline_test_server::Server;
use serde_json::{Value, json};

fn dead(server: &Server, driver: &str, args: &[&str]) -> Ended {
    run(on(server, &[&["--driver", driver, "dead"], args].concat()))
}

fn listed(server: &Server, filter: &[&str]) -> Vec<String> {
    let letters =
        dead(server, "redis", &[&["list", "--all", "--json"], filter].concat()).code(0).lines();
    letters.iter().map(|letter| letter["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn letters_that_are_named() {
    let server = Server::start();
    for driver in DRIVERS {
        let_die(&server, 3, "the bank is down");
        send(&server, &["--id", "alive", "--payload", "x", "--delay", "1h"]);
        let ended =
            dead(&server, driver, &["redrive", "bad-0", "alive", "absent", "--json"]).code(1);
        let outcomes: Vec<_> = ended.lines().iter().map(|it| it["outcome"].clone()).collect();
        assert_eq!(outcomes, ["redriven", "not_dead", "not_found"]);
        let ended = dead(&server, driver, &["redrive", "bad-1", "--delay", "1h"]).code(0);
        assert!(ended.stdout.starts_with("bad-1: redriven, due 20"), "{}", ended.stdout);
        assert_eq!((count(&server, "ready"), count(&server, "scheduled")), (1, 2));

        let ended = dead(&server, driver, &["purge", "bad-2"]).code(2);
        assert!(
            ended.stderr.contains("purge 1 dead letter of the queue orders"),
            "{}",
            ended.stderr
        );
        let ended = dead(&server, driver, &["purge", "bad-2", "absent", "--dry-run"]).code(1);
        assert_eq!(ended.stdout, "bad-2: would be purged\nabsent: not found\n");
        assert_eq!(count(&server, "dead"), 1);
        let ended = dead(&server, driver, &["purge", "bad-2", "alive", "--yes"]).code(1);
        assert_eq!(ended.stdout, "bad-2: purged\nalive: not dead\n");
        assert_eq!(count(&server, "dead"), 0);
        server.command(&["FLUSHALL"]);
    }
}

#[test]
fn letters_by_reason_and_error() {
    let server = Server::start();
    let_die(&server, 3, "no customer 17");
    run(on(&server, &["send", "--id", "late", "--payload", "x", "--expires-in", "1ms"])).code(0);
    run(on(&server, &["work", "--until-empty", "--exec", "true"])).code(0);
    let ended = dead(&server, "redis", &["groups"]).code(0);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert!(lines[0].starts_with("REASON") && lines[0].ends_with("ERROR"), "{}", ended.stdout);
    assert!(lines[1].starts_with("max_failures  3 "), "{}", ended.stdout);
    assert!(lines[1].ends_with("exit code #: no customer #"), "{}", ended.stdout);
    assert!(lines[2].starts_with("expired "), "{}", ended.stdout);
    let ended = dead(&server, "redis", &["groups", "--json", "--order", "newest"]).code(0);
    let groups = ended.lines();
    assert_eq!((&groups[0]["reason"], &groups[0]["latest"]), (&json!("expired"), &json!("late")));
    assert_eq!(groups[1]["letters"], 3);
    // A group is what the filters of the other verbs choose.
    assert_eq!(listed(&server, &["--error-like", "exit code #: no customer #"]).len(), 3);
    assert_eq!(listed(&server, &["--error-like", "exit code 7: no customer 9"]).len(), 3);
    assert_eq!(listed(&server, &["--error-like", ""]), ["late"]);
    let limits = ["--max-failures", "1", "--group", "shop-7"];
    send(&server, &[&["--id", "of-shop-7", "--payload", "x"], &limits[..]].concat());
    run(on(&server, &["work", "--until-empty", "--exec", "false"])).code(0);
    assert_eq!(listed(&server, &["--group", "shop-7"]), ["of-shop-7"]);
    let would = ["redrive", "--all", "--group", "shop-8", "--dry-run"];
    assert_eq!(dead(&server, "redis", &would).code(0).stdout, "0 dead letters would be redriven\n");
    dead(&server, "redis", &["list", "--group", ""]).code(2);
    let would = ["purge", "--all", "--error-like", "no", "--dry-run"];
    assert_eq!(dead(&server, "redis", &would).code(0).stdout, "0 dead letters would be purged\n");
    dead(&server, "redis", &["groups", "--died-after", "soon"]).code(2);
    dead(&server, "redis", &["groups", "--order", "random"]).code(2);
}

#[test]
fn those_that_match_are_listed_redriven_and_purged() {
    let server = Server::start();
    let_die(&server, 120, "the bank is down");
    send(&server, &["--id", "late", "--payload", "x", "--expires-in", "0s"]);
    run(on(&server, &["work", "--until-empty"])).code(0);
    for (filter, count) in [
        (&["--reason", "expired"][..], 1),
        (&["--reason", "expired", "--reason", "max_failures"], 121),
        (&["--error", "bank is", "--died-after", "1h"], 120),
        (&["--error", "bank", "--reason", "expired"], 0),
        (&["--died-before", "1h"], 0),
        (&["--died-after", "2090-01-01T00:00:00Z"], 0),
    ] {
        assert_eq!(listed(&server, filter).len(), count, "{filter:?}");
    }
    let all = |verb: &'static str, more: &[&'static str]| {
        dead(&server, "fred", &[&[verb, "--all"], more].concat())
    };
    let would = all("purge", &["--reason", "expired", "--dry-run", "--json"]).code(0);
    assert_eq!(would.lines(), [json!({"would_be_purged": 1})]);
    let asked = all("redrive", &[]).code(2);
    assert!(asked.stderr.contains("redrive 121 dead letters"), "{}", asked.stderr);
    assert_eq!(count(&server, "dead"), 121);
    let some = all("redrive", &["--error", "bank", "--limit", "30", "--yes"]).code(0);
    assert_eq!(some.stdout, "redriven 30\n");
    let rest = all("purge", &["--yes", "--json"]).code(0);
    assert_eq!(rest.lines(), [json!({"purged": 91})]);
    assert_eq!((count(&server, "dead"), count(&server, "ready")), (0, 30));
    assert_eq!(all("purge", &[]).code(0).stdout, "purged 0\n");
}

#[test]
fn bad_input_is_refused_before_anything_is_done() {
    let server = Server::start();
    let_die(&server, 1, "no");
    for args in [
        &["redrive"][..],
        &["purge"],
        &["redrive", "bad-0", "--all"],
        &["redrive", "bad-0", "--reason", "expired"],
        &["purge", "bad-0", "--limit", "1", "--yes"],
        &["redrive", "--all", "--rate", "0", "--yes"],
        &["redrive", "--all", "--rate", "100001", "--yes"],
        &["redrive", "--all", "--rate", "-1", "--yes"],
        &["redrive", "--all", "--rate", "NaN", "--yes"],
        &["redrive", "--all", "--limit", "0", "--yes"],
        &["redrive", "--all", "--delay", "9007199254740992s", "--yes"],
        &["redrive", "--all", "--delay", "soon", "--yes"],
        &["purge", "--all", "--died-before", "yesterday", "--yes"],
        &["purge", "--all", "--reason", "old", "--yes"],
        &["purge", "--reason", "max-failures", "--yes"],
        &["purge", "", "--yes"],
        &["purge", "--all", "--rate", "1", "--yes"],
    ] {
        let ended = dead(&server, "redis", args).code(2);
        assert!(!ended.stderr.is_empty() && ended.stderr.is_ascii(), "{args:?}");
    }
    assert_eq!(count(&server, "dead"), 1);
}

/// A redrive that takes its time, and the counts that another process sees meanwhile.
#[test]
fn a_trickle_keeps_its_rate_and_ends_at_ctrl_c() {
    let server = Server::start();
    for driver in DRIVERS {
        let_die(&server, 40, "no");
        let start = Instant::now();
        let ten = ["redrive", "--all", "--limit", "10", "--rate", "20", "--yes"];
        dead(&server, driver, &ten).code(0);
        // The first two at once, the others 100 ms apart.
        assert!(start.elapsed() >= Duration::from_millis(400), "{:?}", start.elapsed());
        let args = ["--driver", driver, "dead", "redrive", "--all", "--rate", "1", "--yes"];
        let child = crate::support::start(&mut on(&server, &args));
        crate::support::wait_until("the first one", || count(&server, "dead") < 30);
        crate::support::send_signal(&child, "-INT");
        let ended = crate::support::ended(child).code(1);
        assert!(ended.stdout.starts_with("redriven "), "{}", ended.stdout);
        assert!(ended.stderr.contains("interrupted"), "{}", ended.stderr);
        let redriven: u64 = ended.stdout.trim()["redriven ".len()..].parse().unwrap();
        assert_eq!(count(&server, "dead"), 30 - redriven);
        server.command(&["FLUSHALL"]);
    }
}

#[test]
fn a_server_that_is_lost_on_the_way_is_told_with_what_was_done() {
    let server = Server::start();
    let_die(&server, 20, "no");
    let mut command: Command =
        on(&server, &["dead", "redrive", "--all", "--rate", "1", "--yes", "--json"]);
    let child = crate::support::start(command.stdin(Stdio::null()));
    crate::support::wait_until("the first one", || count(&server, "dead") < 20);
    server.kill();
    let ended = crate::support::ended(child);
    assert!(matches!(ended.code, Some(3 | 4)), "{:?}: {}", ended.code, ended.stderr);
    assert!(ended.stderr.starts_with("delayline: "), "{}", ended.stderr);
    assert!(ended.lines()[0]["redriven"].as_u64().unwrap() >= 1);
}

#[test]
fn the_watch_gives_a_line_each_time_and_ends_at_ctrl_c() {
    let server = Server::start();
    crate::support::create(&server);
    for driver in DRIVERS {
        for (json, signal) in [(true, "-INT"), (false, "-TERM")] {
            let mut args = vec!["--driver", driver, "stats", "--watch", "100ms"];
            args.extend(json.then_some("--json"));
            let mut child = crate::support::start(&mut on(&server, &args));
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
            for _ in 0..3 {
                let line = lines.next().unwrap().unwrap();
                if json {
                    let line: Value = serde_json::from_str(&line).unwrap();
                    assert!(line["dead"] == 0 && line["at"].is_string(), "{line}");
                } else {
                    assert!(line.contains("scheduled 0  ready 0"), "{line}");
                }
            }
            crate::support::send_signal(&child, signal);
            crate::support::ended(child).code(0);
        }
        // A reader that closes the pipe ends it too.
        let mut child = crate::support::start(&mut on(&server, &["stats", "--watch", "100ms"]));
        drop(child.stdout.take());
        crate::support::ended(child).code(0);
    }
}

#[test]
fn damaged_messages_are_shown_and_can_only_be_purged() {
    let server = Server::start();
    for driver in DRIVERS {
        send(&server, &["--id", "a", "--payload", "x"]);
        server.command(&["HSET", "delayline:{orders}:records", "a", "\u{1b}[2J"]);
        let get = run(on(&server, &["--driver", driver, "get", "a", "--json"])).code(0);
        assert_eq!(get.lines(), [json!({"id": "a", "state": "unreadable"})]);
        run(on(&server, &["--driver", driver, "get", "a", "--raw"])).code(1);
        // The next claim comes upon it.
        run(on(&server, &["work", "--until-empty"])).code(0);
        assert_eq!(listed(&server, &["--reason", "unreadable"]), ["a"]);
        let table = dead(&server, driver, &["list"]).code(0).stdout;
        assert!(table.contains("unreadable since 20"), "{table}");
        let redriven = dead(&server, driver, &["redrive", "--all", "--yes", "--json"]).code(1);
        assert_eq!(redriven.lines(), [json!({"redriven": 0, "unreadable": 1})]);
        let purged = dead(&server, driver, &["purge", "a", "--yes"]).code(0);
        assert_eq!(purged.stdout, "a: purged\n");
        server.command(&["FLUSHALL"]);
    }
}
