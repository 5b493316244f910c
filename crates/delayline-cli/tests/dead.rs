//! `delayline dead`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

mod support;

use std::time::{Duration, Instant};

use delayline_test_server::Server;
use support::{DRIVERS, count, on, run, run_with_input};

/// A queue with so many dead letters; every third one failed for want of money.
fn with_dead_letters(letters: usize) -> Server {
    let server = Server::start();
    let lines: String = (0..letters)
        .map(|n| format!("{{\"id\":\"m{n}\",\"payload\":\"{n}\",\"max_failures\":1}}\n"))
        .collect();
    run_with_input(on(&server, &["send", "--file", "-"]), lines.as_bytes()).code(0);
    let script =
        "read n || true; test $((n % 3)) = 0 && echo no money >&2 || echo no time >&2; exit 1";
    let work = ["work", "--until-empty", "--concurrency", "64", "--exec", "sh", "-c", script];
    run(on(&server, &work)).code(0);
    assert_eq!(count(&server, "dead"), u64::try_from(letters).unwrap());
    server
}

#[test]
fn dead_letters_are_listed_and_filtered() {
    let server = with_dead_letters(9);
    for driver in DRIVERS {
        let list = |filter: &[&str]| {
            let args = [&["--driver", driver, "dead", "list", "--json"], filter].concat();
            run(on(&server, &args)).code(0).lines()
        };
        let all = list(&[]);
        assert_eq!(all.len(), 9);
        assert!(all.iter().all(|line| line["reason"] == "max-failures" && line["failures"] == 1));
        assert_eq!(list(&["--error", "money"]).len(), 3);
        assert_eq!(list(&["--error", "money", "--limit", "2"]).len(), 2);
        assert_eq!(list(&["--reason", "max-failures"]).len(), 9);
        assert_eq!(list(&["--reason", "expired"]).len(), 0);
        assert_eq!(list(&["--dead-after", "1h"]).len(), 9);
        assert_eq!(list(&["--dead-before", "1h"]).len(), 0);
        assert_eq!(list(&["--dead-before", "2100-01-01T00:00Z", "--error", "time"]).len(), 6);
    }
    let table = run(on(&server, &["dead", "list", "--error", "money"])).code(0).stdout;
    assert!(table.contains("dead: max-failures") && table.contains("no money"), "{table}");
    run(on(&server, &["dead", "list", "--dead-after", "then"])).code(2);
    run(on(&server, &["dead", "list", "--reason", "boredom"])).code(2);
}

#[test]
fn dead_letters_live_again_by_id_and_by_filter() {
    let server = with_dead_letters(9);
    let redriven = run(on(&server, &["dead", "redrive", "m1", "nobody", "--json"])).code(1).lines();
    assert_eq!((&redriven[0]["redriven"], &redriven[0]["left_out"]), (&1.into(), &1.into()));
    // Again: it lives already.
    run(on(&server, &["dead", "redrive", "m1"])).code(1);

    let dry =
        run(on(&server, &["dead", "redrive", "--all", "--error", "money", "--dry-run"])).code(0);
    assert!(dry.stderr.contains("redrive 3 dead letters"), "{}", dry.stderr);
    let refused = run(on(&server, &["dead", "redrive", "--all"])).code(2);
    assert!(refused.stderr.contains("--yes is needed to redrive 8"), "{}", refused.stderr);
    assert_eq!(count(&server, "dead"), 8);

    let args = ["dead", "redrive", "--all", "--error", "money", "--delay", "1h", "--yes"];
    run(on(&server, &args)).code(0);
    assert_eq!((count(&server, "dead"), count(&server, "scheduled")), (5, 3));
    run_with_input(on(&server, &["dead", "redrive", "--file", "-", "--yes"]), b"m2\n").code(0);
    run(on(&server, &["dead", "redrive", "--all", "--limit", "1", "--yes"])).code(0);
    assert_eq!(count(&server, "dead"), 3);
    let mixed = run(on(&server, &["dead", "redrive", "m4", "--error", "x"])).code(2);
    assert!(mixed.stderr.contains("--all"), "{}", mixed.stderr);
    run(on(&server, &["dead", "redrive"])).code(2);
    run(on(&server, &["dead", "redrive", "--all", "--rate", "0", "--yes"])).code(2);
}

#[test]
fn a_rate_is_kept() {
    let server = with_dead_letters(30);
    let start = Instant::now();
    run(on(&server, &["dead", "redrive", "--all", "--rate", "20", "--yes"])).code(0);
    // The first ones at once, the others at 20 a second.
    assert!(start.elapsed() >= Duration::from_millis(1_300), "{:?}", start.elapsed());
    assert_eq!((count(&server, "dead"), count(&server, "ready")), (0, 30));
}

#[test]
fn deleting_needs_a_word() {
    let server = with_dead_letters(6);
    run(on(&server, &["send", "--id", "alive", "--payload", "p", "--delay", "1h"])).code(0);
    for args in [&["m1"][..], &["--all"]] {
        let refused = run(on(&server, &[&["dead", "purge"], args].concat())).code(2);
        assert!(refused.stderr.contains("--yes is needed to delete"), "{}", refused.stderr);
    }
    assert_eq!(count(&server, "dead"), 6);
    run(on(&server, &["dead", "purge", "m1", "--yes"])).code(0);
    run(on(&server, &["dead", "purge", "alive", "--yes"])).code(1);
    run(on(&server, &["dead", "purge", "--all", "--error", "money", "--yes"])).code(0);
    assert_eq!((count(&server, "dead"), count(&server, "purged_total")), (3, 3));
    assert_eq!(count(&server, "scheduled"), 1);
}
