//! `delayline cancel`, `reschedule`, `pause`, `resume`, `limits` and `completions`.

use crate::support::{
    DRIVERS, Running, bare, count, let_die, on, run, run_with_input, send, start, wait_until,
};
use delayline_test_server::Server;

/// A worker that holds the one message that is ready.
fn worker_with_a_message(server: &Server) -> Running {
    let child = start(&mut on(server, &["work", "--grace", "0s", "--exec", "sleep", "60"]));
    wait_until("the delivery", || count(server, "leased") == 1);
    child
}

#[test]
fn one_is_cancelled_and_the_unknown_one_is_told() {
    let server = Server::start();
    for driver in DRIVERS {
        let id = format!("order-{driver}");
        send(&server, &["--id", &id, "--payload", "x", "--delay", "1h"]);
        let cancel =
            |more: &[&str]| run(on(&server, &[&["--driver", driver, "cancel"], more].concat()));
        assert_eq!(cancel(&[&id]).code(0).stdout, format!("{id}: cancelled\n"));
        // Again, and a repeated id counts once.
        assert_eq!(cancel(&[&id, &id]).code(0).stdout, format!("{id}: cancelled\n"));
        let json = cancel(&["absent", "--json"]).code(1).lines();
        assert_eq!(json[0], serde_json::json!({"id": "absent", "outcome": "not_found"}));
        cancel(&[]).code(2);
        cancel(&[""]).code(2);
        cancel(&["a", "--file", "-"]).code(2);
        cancel(&["--file", "/nowhere/ids"]).code(2);
    }
}

#[test]
fn finished_messages_are_not_said_to_be_unknown() {
    let server = Server::start();
    send(&server, &["--id", "acked", "--payload", "x"]);
    run(on(&server, &["work", "--until-empty"])).code(0);
    for driver in DRIVERS {
        for verb in [
            &["cancel", "--yes"][..],
            &["reschedule", "--delay", "1h"],
            &["dead", "redrive"],
            &["dead", "redrive", "--dry-run"],
            &["dead", "purge", "--yes"],
        ] {
            let args = [&["--driver", driver], verb, &["acked", "absent"]].concat();
            let told = run(on(&server, &args)).code(1).stdout;
            assert_eq!(told, "acked: acked\nabsent: not found\n", "{verb:?}");
        }
    }
}

#[test]
fn many_are_cancelled_only_with_a_yes() {
    let server = Server::start();
    let lines: String = (0..1_200)
        .map(|n| format!("{{\"id\": \"m-{n}\", \"payload\": 1, \"delay\": \"1h\"}}\n"))
        .collect();
    run_with_input(on(&server, &["send", "--file", "-"]), lines.as_bytes()).code(0);
    for args in [&["cancel", "m-1", "m-2"][..], &["cancel", "--file", "-"]] {
        let ended = run_with_input(on(&server, args), b"m-1\nm-2\n").code(2);
        assert!(ended.stderr.contains("cancel 2 messages"), "{}", ended.stderr);
        assert!(ended.stderr.contains("--yes"), "{}", ended.stderr);
    }
    assert_eq!(count(&server, "cancelled_total"), 0);
    let file: String = (0..1_200).map(|n| format!("m-{n}\r\n")).collect();
    let file = format!("{}\nunknown\n\n{file}m-7\n", "\u{1b}".repeat(200));
    let cancel = on(&server, &["cancel", "--file", "-", "--yes", "--json"]);
    let ended = run_with_input(cancel, file.as_bytes()).code(1);
    assert_eq!(ended.stderr, "line 1: the message id is 200 bytes long; at most 128 are allowed\n");
    let lines = ended.lines();
    assert_eq!((lines.len(), &lines[0]["outcome"]), (1_201, &"not_found".into()));
    assert!(lines[1..].iter().all(|line| line["outcome"] == "cancelled"));
    assert_eq!((count(&server, "cancelled_total"), count(&server, "scheduled")), (1_200, 0));
}

#[test]
fn what_a_worker_has_is_not_said_to_be_cancelled_or_moved() {
    let server = Server::start();
    send(&server, &["--id", "a", "--payload", "x"]);
    let worker = worker_with_a_message(&server);
    let ended = run(on(&server, &["reschedule", "a", "--delay", "1h"])).code(1);
    assert_eq!(ended.stdout, "a: in flight\n");
    let ended = run(on(&server, &["cancel", "a"])).code(1);
    assert_eq!(ended.stdout, "a: in flight\n");
    let leased = run(on(&server, &["list", "--state", "leased", "--json"])).code(0).lines();
    assert_eq!(leased[0]["messages"][0]["state"], "leased");
    crate::support::send_signal(&worker, "-TERM");
    crate::support::ended(worker);
}

#[test]
fn a_message_is_moved() {
    let server = Server::start();
    let_die(&server, 1, "no");
    send(&server, &["--id", "a", "--payload", "x"]);
    for driver in DRIVERS {
        let reschedule =
            |more: &[&str]| run(on(&server, &[&["--driver", driver, "reschedule"], more].concat()));
        let moved = reschedule(&["a", "--at", "2090-01-01T00:00:00Z"]).code(0);
        assert_eq!(moved.stdout, "a: rescheduled, due 2090-01-01T00:00:00.000Z\n");
        assert_eq!(count(&server, "scheduled"), 1);
        // The time zone is that of the machine.
        let in_berlin = |at: &str| {
            let mut command = on(&server, &["reschedule", "a", "--at", at]);
            command.env("TZ", "Europe/Berlin");
            run(command)
        };
        let moved = in_berlin("2090-01-01 09:00").code(0);
        assert_eq!(moved.stdout, "a: rescheduled, due 2090-01-01T08:00:00.000Z\n");
        let refused = in_berlin("2030-03-31 02:30").code(2);
        assert!(refused.stderr.contains("Europe/Berlin skips it"), "{}", refused.stderr);
        reschedule(&["a", "--at", "tomorrow 09:00"]).code(0);
        reschedule(&["a", "--delay", "0s"]).code(0);
        assert_eq!(count(&server, "ready"), 1);
        let lines =
            reschedule(&["absent", "bad-0", "a", "--delay", "1h", "--json"]).code(1).lines();
        let outcomes: Vec<_> = lines.iter().map(|line| &line["outcome"]).collect();
        assert_eq!(outcomes, ["not_found", "dead", "rescheduled"]);
        assert!(lines[2]["due"].as_str().unwrap().starts_with("20"));
        // Unix time.
        for at in ["3786912000", "3786912000000"] {
            let moved = reschedule(&["a", "--at", at]).code(0);
            assert_eq!(moved.stdout, "a: rescheduled, due 2090-01-01T00:00:00.000Z\n");
        }
        for bad in [
            &["a"][..],
            &["a", "--at", "37869120"],
            &["--delay", "1h"],
            &["a", "--delay", "1h", "--at", "2090-01-01T00:00:00Z"],
            &["", "--delay", "1h"],
        ] {
            let ended = reschedule(bad).code(2);
            assert_eq!(ended.stdout, "", "{bad:?}");
        }
        assert_eq!(count(&server, "scheduled"), 1);
    }
}

#[test]
fn limits_are_shown_and_changed() {
    let server = Server::start();
    crate::support::create(&server);
    for driver in DRIVERS {
        let limits = |more: &[&str]| {
            let args = [&["--driver", driver, "limits"], more].concat();
            run(on(&server, &args))
        };
        assert_eq!(limits(&[]).code(0).stdout, "orders: no limits\n");
        let told = limits(&["--leased", "3", "--rate", "10/1s", "--burst", "2"]).code(0).stdout;
        let both = "orders: 0 of 3 leased\norders: at most 10 in 1s, up to 2 at once\n";
        assert_eq!(told, both);
        let told = limits(&["--each-group", "2", "--in-order", "yes"]).code(0).stdout;
        let groups = "orders: at most 2 of each group leased\n\
            orders: messages of a group are handled one at a time, in order\n";
        assert!(told.contains(groups), "{told}");
        let shown = &limits(&["--json", "--leased", "3"]).code(0).lines()[0]["limits"];
        assert_eq!((&shown["each_group"], &shown["in_order"]), (&2.into(), &true.into()));
        assert_eq!(limits(&["--each-group", "none", "--in-order", "no"]).code(0).stdout, both);
        let held = limits(&["--hold", "1h"]).code(0).stdout;
        assert!(held.starts_with(&format!("{both}orders: held until 20")), "{held}");
        let shown = &limits(&["--json", "--hold", "none"]).code(0).lines()[0];
        let rate = serde_json::json!({"count": 10, "per_ms": 1_000, "burst": 2});
        let all = serde_json::json!({"leased": 3, "each_group": null, "in_order": false,
            "rate": rate, "rate_open_at": null, "held_until": null});
        assert_eq!(*shown, serde_json::json!({"queue": "orders", "limits": all}));
        let none = limits(&["--leased", "none", "--rate", "none"]).code(0).stdout;
        assert_eq!(none, "orders: no limits\n");
        let steady = limits(&["--rate", "10/1s"]).code(0).stdout;
        assert_eq!(steady, "orders: at most 10 in 1s, up to 10 at once\n");
        limits(&["--rate", "none"]).code(0);
        for wrong in [
            &["--leased", "0"][..],
            &["--leased", "many"],
            &["--each-group", "0"],
            &["--in-order", "true"],
            &["--rate", "10", "--burst", "1"],
            &["--rate", "10/1ms", "--burst", "1"],
            &["--rate", "10/1s", "--burst", "11"],
            &["--burst", "1"],
        ] {
            limits(wrong).code(2);
        }
        let said = limits(&["--rate", "10/s", "--burst", "1"]).code(2).stderr;
        assert!(said.contains("--rate: ") && said.contains("is not a duration"), "{said}");
        let beyond = limits(&["--hold", "1000000h"]).code(2).stderr;
        assert!(beyond.contains("3600000000000") && beyond.contains("3155760000000"), "{beyond}");
        assert_eq!(limits(&[]).code(0).stdout, "orders: no limits\n");
    }
}

#[test]
fn a_queue_is_paused_and_resumed() {
    let server = Server::start();
    crate::support::create(&server);
    for driver in DRIVERS {
        let ask = |verb: &str, more: &[&str]| {
            run(on(&server, &[&["--driver", driver, verb], more].concat())).code(0)
        };
        assert!(ask("pause", &[]).stdout.contains("orders: paused"));
        assert_eq!(ask("pause", &["--json"]).lines()[0]["paused"], true);
        assert_eq!(ask("stats", &["--json"]).lines()[0]["paused"], true);
        assert_eq!(ask("resume", &["--json"]).lines()[0]["paused"], false);
        assert!(ask("resume", &[]).stdout.contains("orders: resumed"));
        assert_eq!(ask("stats", &["--json"]).lines()[0]["paused"], false);
    }
}

#[test]
fn completions_know_the_verbs_and_need_no_queue() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = run(bare(&["completions", shell])).code(0).stdout;
        for word in ["redrive", "reschedule", "--reuse-finished-id"] {
            let word = if shell == "fish" { word.trim_start_matches('-') } else { word };
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    run(bare(&["completions", "dos"])).code(2);
    run(bare(&["completions"])).code(2);
    let mut child = start(&mut bare(&["completions", "bash"]));
    drop(child.stdout.take());
    crate::support::ended(child).code(0);
}

#[test]
fn man_pages_are_written_for_every_verb() {
    let folder = tempfile::tempdir().unwrap();
    run(bare(&["man", folder.path().to_str().unwrap()])).code(0);
    for (page, word) in [
        ("delayline.1", "redis\\-cluster://"),
        ("delayline-send.1", "reuse\\-finished\\-id"),
        ("delayline-dead-redrive.1", "SYNOPSIS"),
    ] {
        let text = std::fs::read_to_string(folder.path().join(page)).unwrap();
        assert!(text.contains(word), "{page}: {text}");
    }
    let missing = folder.path().join("missing");
    let failed = run(bare(&["man", missing.to_str().unwrap()])).code(5);
    assert!(failed.stderr.contains("cannot be written"), "{}", failed.stderr);
}

#[test]
fn every_verb_has_help_with_an_example() {
    let verbs = "send, work, stats, list, get, cancel, reschedule, dead list, dead redrive, \
        dead purge, pause, resume, limits, delete-queue, backup, upgrade, check, doctor, acl, \
        completions, man";
    for verb in verbs.split(", ") {
        let args: Vec<_> = verb.split(' ').chain(["--help"]).collect();
        let help = run(bare(&args)).code(0).stdout;
        assert!(help.contains(&format!("\n  delayline {verb}")), "{verb}: {help}");
    }
    assert!(run(bare(&["--help"])).code(0).stdout.contains("Exit codes:"));
    run(bare(&["dead"])).code(2);
}
