//! `delayline send`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::Stdio;

use crate::support::{
    DRIVERS, count, ended, on, run, run_with_input, send_signal, start, wait_until,
};
use delayline_test_server::Server;
use serde_json::json;

#[test]
fn one_message_of_flags() {
    let server = Server::start();
    for driver in DRIVERS {
        let flags = [
            "send",
            "--driver",
            driver,
            "--id",
            driver,
            "--payload",
            "close it",
            "--delay",
            "1h",
            "--group",
            "shop 9",
            "--kind",
            "order",
            "--header",
            "shop=9",
            "--max-failures",
            "3",
            "--expires-in",
            "2h",
        ];
        let ended = run(on(&server, &flags)).code(0);
        assert_eq!(ended.stdout, format!("{driver}\n"));
        assert!(ended.stderr.starts_with("created, due 20"), "{}", ended.stderr);
        let again = run(on(&server, &flags)).code(0);
        assert!(again.stderr.starts_with("duplicate"), "{}", again.stderr);
        let other = run(on(&server, &["send", "--id", driver, "--payload", "hunter2"])).code(1);
        assert!(other.stderr.contains("different content"), "{}", other.stderr);
        assert!(!other.stderr.contains("hunter2"));
        let other = ["send", "--id", driver, "--payload", "hunter2", "--json"];
        let conflict = json!({"id": driver, "outcome": "conflict", "state": "scheduled",
            "accepted": false});
        assert_eq!(run(on(&server, &other)).code(1).lines(), [conflict]);
        let stored = run(on(&server, &["get", driver, "--json"])).code(0).lines();
        let headers = json!({"delayline-kind": "order", "shop": "9"});
        assert_eq!((&stored[0]["headers"], &stored[0]["group"]), (&headers, &"shop 9".into()));
    }
    let unnamed = run(on(&server, &["send", "--payload", "x", "--json"])).code(0);
    assert_eq!(unnamed.lines()[0]["outcome"], "created");
    assert_eq!((count(&server, "scheduled"), count(&server, "ready")), (2, 1));
}

#[test]
fn updates_are_flags_and_fields() {
    let server = Server::start();
    let debounce = |payload| {
        let flags = ["send", "--id", "a", "--delay", "1h", "--update", "debounce"];
        let flags = [&flags[..], &["--at-most", "2h", "--payload", payload]].concat();
        run(on(&server, &flags)).code(0).stderr
    };
    assert!(debounce("1").starts_with("created, due 20"));
    assert!(debounce("2").starts_with("updated, due 20"));
    let lines = r#"{"id": "a", "payload": "3", "update": "coalesce", "update_token": "00000000000000ff"}
{"id": "b", "payload": "4", "update": "replace"}
"#;
    let sent = run_with_input(on(&server, &["send", "--file", "-"]), lines.as_bytes()).code(0);
    assert!(sent.stderr.contains("created 1, updated 1, duplicate 0"), "{}", sent.stderr);
    let again = run_with_input(on(&server, &["send", "--file", "-", "--json"]), lines.as_bytes());
    let again = again.code(0);
    assert_eq!(again.lines()[0]["duplicate"], 1, "the token is known: {:?}", again.lines());
    let refused = run(on(&server, &["send", "--id", "a", "--payload", "x", "--update", "never"]));
    refused.code(2);
    let lonely = run(on(&server, &["send", "--id", "a", "--payload", "x", "--at-most", "1s"]));
    lonely.code(2);
}

#[test]
fn an_id_can_be_throttled() {
    let server = Server::start();
    let send = |payload| {
        let flags = ["send", "--id", "a", "--throttle", "1h", "--payload", payload, "--json"];
        run(on(&server, &flags)).code(0)
    };
    assert_eq!(send("1").lines()[0]["outcome"], "created");
    assert_eq!(send("1").lines()[0]["outcome"], "duplicate");
    let throttled = send("2");
    assert_eq!(throttled.lines()[0]["outcome"], "throttled");
    assert!(throttled.stderr.starts_with("throttled until 20"), "{}", throttled.stderr);
    let lines = r#"{"id": "a", "payload": "3", "throttle": "1h"}
{"id": "b", "payload": "4", "throttle": "1m"}
{"payload": "5", "throttle": "1m"}
"#;
    let sent = run_with_input(on(&server, &["send", "--file", "-"]), lines.as_bytes()).code(1);
    assert!(sent.stderr.contains("line 3: throttle needs an id"), "{}", sent.stderr);
    assert!(sent.stderr.contains("conflict 0, throttled 1, bad 1"), "{}", sent.stderr);
    run(on(&server, &["send", "--payload", "x", "--throttle", "1s"])).code(2);
    let long = run(on(&server, &["send", "--id", "c", "--payload", "x", "--throttle", "32d"]));
    assert!(long.code(2).stderr.contains("2678400000"));
}

#[test]
fn values_outside_of_their_limits_are_refused_and_nothing_is_sent() {
    let server = Server::start();
    for flags in [
        &["--delay", "NaN"][..],
        &["--header", "shop=9", "--header", "shop=10"],
        &["--delay=-5s"],
        &["--delay", "1s", "--at", "2026-12-01T09:00:00Z"],
        &["--at", "2026-12-01T25:00:00"],
        &["--at", "someday"],
        &["--max-failures", "0"],
        &["--max-crashes", "65536"],
        &["--header", "novalue"],
        &["--id", ""],
        &["--priority", "hot"],
        &["--priority", "high", "--group", "shop"],
        &["--group", ""],
        &["--queue", "a b"],
        &["--file", "/nowhere/orders.jsonl"],
    ] {
        let ended = run(on(&server, &[&["send", "--payload", "hunter2"], flags].concat())).code(2);
        assert!(!ended.stderr.is_empty() && !ended.stderr.contains("hunter2"), "{}", ended.stderr);
    }
    assert_eq!(count(&server, "enqueued_total"), 0);
}

#[test]
fn a_bad_line_is_reported_the_rest_is_sent_and_sent_again_only_once() {
    let server = Server::start();
    let mut file = String::new();
    for n in 0..3_000 {
        writeln!(file, r#"{{"id": "order-{n}", "payload": {{"n": {n}}}, "delay": "1h"}}"#).unwrap();
    }
    file.push_str("{\"payload\": \"hunter2\"}\n\n  \r\n{\"id\": \"x\", \"payload\": hunter2}\n");
    file.push_str("{\"id\": \"\\u001b[2J\", \"payload\": 1, \"\\u001b[2J\": 1}\n");
    file.push_str("{\"id\": \"y\", \"payload\": \"hunter2\", \"delay\": \"2^53\"}\n");
    file.push_str("{\"id\": \"order-7\", \"payload\": \"hunter2\"}\r\n");
    file.push_str(&"{\"id\": \"z\", \"payload\": 1, \"dealy\": \"1s\"}\n".repeat(15));
    file.push_str(r#"{"id": "last", "payload": "no line break at the end"}"#);
    for (driver, created, duplicate) in [("redis", 3_001, 0), ("fred", 0, 3_001)] {
        let command = on(&server, &["--driver", driver, "send", "--file", "-", "--json"]);
        let ended = run_with_input(command, file.as_bytes()).code(1);
        let summary = &ended.lines()[0];
        assert_eq!(summary["created"], created);
        assert_eq!(summary["duplicate"], duplicate);
        assert_eq!((&summary["conflict"], &summary["bad"]), (&1.into(), &19.into()));
        for line in [3_001, 3_004, 3_005, 3_006, 3_007] {
            assert!(ended.stderr.contains(&format!("line {line}: ")), "{}", ended.stderr);
        }
        // Ten of the same kind, and the number of the others.
        assert_eq!(ended.stderr.lines().count(), 16, "{}", ended.stderr);
        let why = "line 3008: unknown field \"dealy\"; did you mean \"delay\"? (the fields are id,";
        assert!(ended.stderr.contains(why), "{}", ended.stderr);
        for line in ["line 3017: the same as line 3008", "and 5 more like line 3008"] {
            assert!(ended.stderr.lines().any(|told| told == line), "{}", ended.stderr);
        }
        for hidden in ["hunter2", "\u{1b}"] {
            assert!(!ended.stderr.contains(hidden), "{}", ended.stderr);
        }
    }
    assert_eq!(count(&server, "enqueued_total"), 3_001);
}

#[test]
fn a_line_that_is_too_long_is_skipped() {
    let server = Server::start();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("orders.jsonl");
    let line = |id: &str, size: usize| {
        format!("{{\"id\": \"{id}\", \"payload\": \"{}\"}}\n", "x".repeat(size))
    };
    let mib = 1024 * 1024;
    let sizes = [("a", mib), ("b", 9 * mib), ("c", mib + 1), ("d", mib)];
    let file: String = sizes.iter().map(|(id, size)| line(id, *size)).collect();
    std::fs::write(&path, file).unwrap();
    let ended = run(on(&server, &["send", "--file", path.to_str().unwrap()])).code(1);
    assert!(ended.stderr.contains("line 2: it is longer than"), "{}", ended.stderr);
    assert!(ended.stderr.contains("line 3: the payload is 1048577 bytes long"), "{}", ended.stderr);
    assert!(ended.stderr.contains("created 2, updated 0, duplicate 0"), "{}", ended.stderr);
    assert!(ended.stderr.contains("conflict 0, throttled 0, bad 2"), "{}", ended.stderr);
    assert_eq!(count(&server, "ready"), 2);
}

#[test]
fn ids_are_made_on_request() {
    let server = Server::start();
    let lines = b"{\"payload\": 1}\n{\"payload\": 1}\n";
    run_with_input(on(&server, &["send", "--file", "-"]), lines).code(1);
    run_with_input(on(&server, &["send", "--file", "-", "--make-ids"]), lines).code(0);
    assert_eq!(count(&server, "ready"), 2);
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_first_line() {
    let server = Server::start();
    let lines =
        "\u{feff}{\"id\": \"a\", \"payload\": 1}\n\u{feff}{\"id\": \"b\", \"payload\": 1}\n";
    let ended = run_with_input(on(&server, &["send", "--file", "-"]), lines.as_bytes()).code(1);
    assert!(ended.stderr.contains("line 2: it is not JSON"), "{}", ended.stderr);
    let schedules = "\u{feff}{\"owner\": \"app\", \"schedules\": {}}";
    run_with_input(on(&server, &["schedule", "apply", "-"]), schedules.as_bytes()).code(0);
}

#[test]
fn stats_as_a_table() {
    let server = Server::start();
    run(on(&server, &["send", "--payload", "x"])).code(0);
    let table = run(on(&server, &["stats"])).code(0).stdout;
    let row = |name: &str| {
        let line = table.lines().find(|line| line.starts_with(name)).unwrap();
        line[name.len()..].trim().to_owned()
    };
    assert_eq!(
        (row("queue"), row("ready"), row("paused")),
        ("orders".into(), "1".into(), "no".into())
    );
}

#[test]
fn a_duplicate_that_nobody_will_deliver_is_not_a_success() {
    let server = Server::start();
    for driver in DRIVERS {
        let send = |id: &str| {
            let flags = ["--max-failures", "1", "--id", id, "--payload", "x"];
            run(on(&server, &[&["--driver", driver, "send"], &flags[..]].concat()))
        };
        send("cancelled").code(0);
        run(on(&server, &["cancel", "cancelled"])).code(0);
        send("dead").code(0);
        run(on(&server, &["work", "--until-empty", "--exec", "false"])).code(0);
        send("acked").code(0);
        run(on(&server, &["work", "--until-empty"])).code(0);
        for (id, hint) in [("cancelled", "--reuse-finished-id"), ("dead", "dead redrive")] {
            let ended = send(id).code(1);
            assert!(ended.stderr.contains(&format!("known as {id}")), "{}", ended.stderr);
            assert!(ended.stderr.contains(hint), "{}", ended.stderr);
        }
        assert!(send("acked").code(0).stderr.contains("as acked"));
        let line =
            |id: &str| json!({"id": id, "payload": "x", "max_failures": 1}).to_string() + "\n";
        let lines = ["cancelled", "dead", "acked"].map(line).concat();
        let file = on(&server, &["--driver", driver, "send", "--json", "--file", "-"]);
        let ended = run_with_input(file, lines.as_bytes()).code(1);
        let counts = &ended.lines()[0];
        assert_eq!((&counts["duplicate"], &counts["not_delivered"]), (&json!(1), &json!(2)));
        let why = "line 2: the message dead is known as dead and will not be delivered";
        assert!(ended.stderr.contains(why), "{}", ended.stderr);
        server.command(&["FLUSHALL"]);
    }
}

#[test]
fn an_interrupted_file_tells_what_was_sent() {
    let server = Server::start();
    let mut child = start(on(&server, &["send", "--file", "-"]).stdin(Stdio::piped()));
    let mut stdin = child.stdin.take().unwrap();
    for n in 0..20 {
        writeln!(stdin, "{{\"id\": \"m-{n}\", \"payload\": 1}}").unwrap();
    }
    stdin.flush().unwrap();
    wait_until("the first messages", || count(&server, "ready") == 20);
    // There may be more to come.
    send_signal(&child, "-INT");
    let ended = ended(child).code(1);
    drop(stdin);
    assert!(ended.stderr.contains("created 20, updated 0"), "{}", ended.stderr);
    assert!(ended.stderr.contains("interrupted"), "{}", ended.stderr);
}

#[test]
fn an_answer_waits_for_replicas_or_the_disk_if_asked_to() {
    let server = Server::builder().tcp().start();
    let of_server = format!("127.0.0.1 {}", server.port());
    let replica = Server::builder().tcp().config("replicaof", &of_server).start();
    wait_until("the replica follows", || replica.info("replication", "master_link_status") == "up");
    for driver in DRIVERS {
        let send = |durability| {
            let durability = format!("--durability={durability}");
            let flags = ["send", "--driver", driver, "--id", driver, "--payload", "x", &durability];
            run(on(&server, &flags))
        };
        send("replicas=1").code(0);
        let refused = send("disk").code(2);
        assert!(refused.stderr.contains("appendonly"), "{}", refused.stderr);
        for bad in ["replicas=0", "replicas=33", "replicas", "everywhere"] {
            send(bad).code(2);
        }
        replica.pause();
        let unconfirmed = send("replicas=1").code(4);
        assert!(unconfirmed.stderr.contains("0 of 1 replicas"), "{}", unconfirmed.stderr);
        // Without its id, a repeat would send another message.
        let made = ["send", "--payload", "x", "--durability=replicas=1", "--json"];
        let made = run(on(&server, &made)).code(4);
        let outcome = &made.lines()[0];
        assert_eq!(outcome["outcome"], "unknown");
        let id = outcome["id"].as_str().unwrap();
        assert!(made.stderr.contains(id) && made.stderr.contains("with --id"), "{}", made.stderr);
        run(on(&server, &["get", id])).code(0);
        replica.resume();
        send("replicas=1").code(0);
    }
}

#[test]
fn a_message_waits_for_others() {
    let server = Server::start();
    let waits = ["send", "--id", "all", "--payload", "true", "--after", "a", "--after", "b"];
    run(on(&server, &waits)).code(0);
    for id in ["a", "b"] {
        let member = ["send", "--id", id, "--payload", "true", "--wakes", "all"];
        run(on(&server, &member)).code(0);
    }
    let explained = run(on(&server, &["explain", "all"])).code(0);
    assert!(explained.stdout.contains("waits for 2 of 2 messages"), "{}", explained.stdout);
    let text = run(on(&server, &["get", "all"])).code(0).stdout;
    let waiting = "after        a\nafter        b\non failure   wait\nwait at most 86400s\n";
    assert!(text.contains(waiting), "{text}");
    let stored = run(on(&server, &["get", "all", "--json"])).code(0).lines();
    assert_eq!(stored[0]["after"], json!([{"id": "a"}, {"id": "b"}]));
    let handled = run(on(&server, &["work", "--until-empty"])).code(0).lines();
    let ended = json!([{"id": "a", "state": "acked"}, {"id": "b", "state": "acked"}]);
    assert_eq!(handled[2]["members"], json!({"why": "all_ended", "ended": ended}));
    let refused = ["send", "--payload", "x", "--after", "a", "--delay", "1h"];
    let refused = run(on(&server, &refused)).code(2);
    assert!(refused.stderr.contains("leave the due time out"), "{}", refused.stderr);
}
