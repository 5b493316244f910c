//! `delayline dead`.

use std::cell::RefCell;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{DRIVERS, Ended, count, let_die, on, run, send};
use delayline_test_server::Server;
use serde_json::{Value, json};

fn dead(server: &Server, driver: &str, args: &[&str]) -> Ended {
    let args: Vec<_> = ["--driver", driver, "dead"].iter().chain(args).copied().collect();
    run(on(server, &args))
}

fn listed(server: &Server, filter: &[&str]) -> Vec<String> {
    let args: Vec<_> = ["list", "--all", "--json"].iter().chain(filter).copied().collect();
    let letters = dead(server, "redis", &args).code(0).lines();
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
fn all_letters_of_more_than_one_page() {
    let server = Server::start();
    for driver in DRIVERS {
        let_die(&server, 250, "no");
        let would = dead(&server, driver, &["redrive", "--all", "--dry-run"]).code(0);
        assert_eq!(would.stdout, "250 dead letters would be redriven\n");
        let ended = dead(&server, driver, &["redrive", "--all"]).code(2);
        assert!(ended.stderr.contains("redrive 250 dead letters"), "{}", ended.stderr);
        assert_eq!(count(&server, "dead"), 250);
        let some = dead(&server, driver, &["redrive", "--all", "--limit", "120", "--yes"]).code(0);
        assert_eq!(some.stdout, "redriven 120\n");
        let rest = dead(&server, driver, &["redrive", "--all", "--yes", "--json"]).code(0);
        assert_eq!(rest.lines(), [json!({"redriven": 130})]);
        assert_eq!((count(&server, "dead"), count(&server, "ready")), (0, 250));
        // They fail again, and keep their ids.
        run(on(&server, &["work", "--until-empty", "--exec", "false"])).code(0);
        let gone = dead(&server, driver, &["purge", "--all", "--yes", "--json"]).code(0);
        assert_eq!(gone.lines(), [json!({"purged": 250})]);
        assert_eq!(count(&server, "dead"), 0);
        assert_eq!(dead(&server, driver, &["purge", "--all"]).code(0).stdout, "purged 0\n");
        server.command(&["FLUSHALL"]);
    }
}

#[test]
fn filters_by_reason_error_and_age() {
    let server = Server::start();
    let_die(&server, 120, "the bank is down");
    let between = listed_since(&server);
    send(&server, &["--id", "late", "--payload", "x", "--expires-in", "0s"]);
    run(on(&server, &["work", "--until-empty"])).code(0);
    assert_eq!(listed(&server, &["--reason", "expired"]), ["late"]);
    assert_eq!(listed(&server, &["--reason", "max-failures"]).len(), 120);
    assert_eq!(listed(&server, &["--reason", "expired", "--reason", "max_failures"]).len(), 121);
    assert_eq!(listed(&server, &["--reason", "rejected"]).len(), 0);
    assert_eq!(listed(&server, &["--error", "bank is"]).len(), 120);
    assert_eq!(listed(&server, &["--error", "Bank is"]).len(), 0);
    assert_eq!(listed(&server, &["--error", "bank", "--reason", "expired"]).len(), 0);
    assert_eq!(listed(&server, &["--died-after", &between]).first().unwrap(), "late");
    let before = listed(&server, &["--died-before", &between]);
    assert_eq!(before.len() + listed(&server, &["--died-after", &between]).len(), 121);
    assert!(!before.contains(&"late".to_owned()) && before.len() == 120, "{}", before.len());
    assert_eq!(listed(&server, &["--died-after", "1h"]).len(), 121);
    assert_eq!(listed(&server, &["--died-before", "1h"]).len(), 0);
    assert_eq!(listed(&server, &["--died-after", "2090-01-01T00:00:00Z"]).len(), 0);

    // Pages of what passes, up to a number of it and on from there.
    let page = |more: &[&str]| {
        let args: Vec<_> = ["list", "--error", "bank", "--json", "--limit", "70"]
            .iter()
            .chain(more)
            .copied()
            .collect();
        dead(&server, "fred", &args).code(0).lines()
    };
    let first = page(&[]);
    let cursor = first.last().unwrap()["next"].as_str().unwrap();
    let second = page(&["--after", cursor]);
    let length = |pages: &[Value]| -> usize {
        pages.iter().map(|page| page["messages"].as_array().unwrap().len()).sum()
    };
    assert_eq!((length(&first), length(&second)), (70, 50));

    for driver in DRIVERS {
        let would = dead(
            &server,
            driver,
            &["purge", "--all", "--reason", "expired", "--dry-run", "--json"],
        );
        assert_eq!(would.code(0).lines(), [json!({"would_be_purged": 1})]);
    }
    let purged =
        dead(&server, "fred", &["purge", "--all", "--error", "bank", "--limit", "30", "--yes"]);
    assert_eq!(purged.code(0).stdout, "purged 30\n");
    assert_eq!((count(&server, "dead"), listed(&server, &["--reason", "expired"]).len()), (91, 1));
}

/// An instant after every death until now, and before any other.
fn listed_since(server: &Server) -> String {
    let letters = dead(server, "redis", &["list", "--all", "--json"]).code(0).lines();
    let since = letters.last().unwrap()["dead_since"].as_str().unwrap();
    // The next millisecond, written as the same instant and a bit.
    format!("{}9Z", since.trim_end_matches('Z'))
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

/// Messages that die again during the redrive are left alone; it would never end otherwise.
#[test]
fn a_redrive_of_all_ends_although_its_letters_die_again() {
    let server = Server::start();
    // More than a page: the first ones die again before the second page is read.
    let_die(&server, 150, "no");
    let worker =
        crate::support::start(&mut on(&server, &["work", "--grace", "0s", "--exec", "false"]));
    let args = ["dead", "redrive", "--all", "--rate", "250", "--yes"];
    let child = RefCell::new(crate::support::start(&mut on(&server, &args)));
    crate::support::wait_until("the end", || child.borrow_mut().try_wait().unwrap().is_some());
    let ended = crate::support::ended(child.into_inner()).code(0);
    assert_eq!(ended.stdout, "redriven 150\n");
    crate::support::wait_until("the second death", || count(&server, "dead") == 150);
    crate::support::send_signal(&worker, "-TERM");
    crate::support::ended(worker);
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
    for bad in ["10ms", "0s", "often", "-1s"] {
        run(on(&server, &["stats", &format!("--watch={bad}")])).code(2);
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

#[tokio::test]
async fn letters_that_no_worker_can_decode() {
    let server = Server::start();
    let_die(&server, 2, "the bank is down");
    let args = ["--id", "new", "--payload", "\"text\"", "--max-failures", "1"];
    send(&server, &args);
    let connection = delayline::connect(&server.url()).await.unwrap();
    let numbers = connection.queue::<u64>("orders").await.unwrap();
    let worker = delayline::Worker::builder(numbers).until_empty(true).build().unwrap();
    worker.run(async |_: delayline::Job<u64>| Ok::<_, std::convert::Infallible>(())).await;

    let page = dead(&server, "redis", &["list", "--json", "--reason", "undecodable"]).code(0);
    let letters = &page.lines()[0]["messages"];
    assert_eq!((letters[0]["id"].as_str(), letters.as_array().unwrap().len()), (Some("new"), 1));
    assert_eq!(letters[0]["reason"], "undecodable");
    let stats = run(on(&server, &["stats", "--json"])).code(0).lines().remove(0);
    assert_eq!((&stats["died_undecodable_total"], &stats["dead"]), (&json!(1), &json!(3)));
    let some = ["redrive", "--all", "--reason", "undecodable", "--yes", "--json"];
    assert_eq!(dead(&server, "redis", &some).code(0).lines(), [json!({"redriven": 1})]);
    assert_eq!((count(&server, "dead"), count(&server, "ready")), (2, 1));
}
