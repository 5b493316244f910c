//! `delayline list` and `delayline get`.

use std::os::unix::ffi::OsStringExt as _;
use std::process::Stdio;

use crate::support::{DRIVERS, HOSTILE, harmless, let_die, on, run, run_with_input, send};
use delayline_test_server::Server;
use serde_json::Value;

fn many(server: &Server, count: usize) {
    let lines: String = (0..count)
        .map(|n| {
            format!("{{\"id\": \"m-{n:04}\", \"payload\": {n}, \"delay\": \"{}s\"}}\n", 3_600 + n)
        })
        .collect();
    run_with_input(on(server, &["send", "--file", "-"]), lines.as_bytes()).code(0);
}

/// The ids of pages, or of messages.
fn ids(lines: &[Value]) -> Vec<String> {
    let messages = lines.iter().flat_map(|line| match &line["messages"] {
        Value::Array(messages) => messages.as_slice(),
        _ => std::slice::from_ref(line),
    });
    messages.map(|message| message["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn an_empty_queue_is_no_error() {
    let server = Server::start();
    crate::support::create(&server);
    for driver in DRIVERS {
        for verb in
            [&["list"][..], &["list", "--all"], &["list", "--state", "dead"], &["dead", "list"]]
        {
            let with = |more: &[&'static str]| {
                run(on(&server, &[&["--driver", driver], verb, more].concat())).code(0)
            };
            let table = with(&[]);
            assert_eq!((table.stdout.as_str(), table.stderr.as_str()), ("", "no messages\n"));
            let page = serde_json::json!({"messages": [], "next": null});
            let is_all = verb.contains(&"--all");
            assert_eq!(with(&["--json"]).lines(), if is_all { vec![] } else { vec![page] });
        }
    }
}

#[test]
fn states_come_one_after_the_other_and_the_cursor_knows_where_it_is() {
    let server = Server::start();
    let_die(&server, 3, "no");
    send(&server, &["--id", "r", "--payload", "x"]);
    send(&server, &["--id", "s", "--payload", "x", "--delay", "1h"]);
    let all = run(on(&server, &["list", "--json"])).code(0).lines();
    assert_eq!(ids(&all)[..2], ["s", "r"]);
    assert_eq!(ids(&all).len(), 5);
    // One by one, over the borders of the states.
    let (mut seen, mut cursor) = (Vec::new(), "scheduled".to_owned());
    loop {
        let args = ["list", "--limit", "1", "--json", "--after", &cursor];
        let page = run(on(&server, &args)).code(0).lines().remove(0);
        seen.extend(ids(std::slice::from_ref(&page)));
        match page["next"].as_str() {
            Some(next) => cursor = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(seen, ids(&all));
    let dead = run(on(&server, &["list", "--state", "dead", "--json"])).code(0).lines();
    assert_eq!(ids(&dead).len(), 3);
    for bad in ["dead:4:1:1", "x", "ready:0:1", ""] {
        let ended = run(on(&server, &["list", "--after", bad])).code(2);
        assert!(ended.stderr.contains("cursor"), "{}", ended.stderr);
    }
    let other = run(on(&server, &["dead", "list", "--after", "ready"])).code(2);
    assert!(other.stderr.contains("another state"), "{}", other.stderr);
    for flags in [
        &["--limit", "0"][..],
        &["--limit", "-1"],
        &["--state", "acked"],
        &["--limit", "1", "--all"],
    ] {
        run(on(&server, &[&["list"], flags].concat())).code(2);
    }
}

#[test]
fn a_reader_that_goes_away_ends_the_list() {
    let server = Server::start();
    many(&server, 3_000);
    let mut child = crate::support::start(&mut on(&server, &["list", "--all", "--json"]));
    drop(child.stdout.take());
    assert_eq!(crate::support::ended(child).code(0).stderr, "");
}

#[test]
fn everything_known_of_a_message() {
    let server = Server::start();
    send(
        &server,
        &[
            "--id",
            "a",
            "--payload",
            "one\ntwo",
            "--header",
            "shop=9",
            "--group",
            "tenant\n7",
            "--delay",
            "1h",
            "--expires-in",
            "2h",
        ],
    );
    for driver in DRIVERS {
        let get = |more: &[&str]| run(on(&server, &[&["--driver", driver, "get"], more].concat()));
        let text = get(&["a"]).code(0).stdout;
        for part in [
            "id           a\n",
            "scheduled",
            "group        tenant\\n7\n",
            "failures     0 of 20",
            "expires      20",
            "header shop: 9\n",
            "payload of 7 bytes:\n  one\n  two\n",
        ] {
            assert!(text.contains(part), "{part:?}: {text}");
        }
        let json = &get(&["a", "--json"]).code(0).lines()[0];
        assert_eq!((&json["payload"], &json["headers"]["shop"]), (&"one\ntwo".into(), &"9".into()));
        assert_eq!(json["group"], "tenant\n7");
        let list = run(on(&server, &["list"])).code(0).stdout;
        assert!(list.contains("  group tenant\\n7\n"), "{list}");
        assert_eq!(
            (&json["state"], &json["max_crashes"], &json["last_error"]),
            (&"scheduled".into(), &5.into(), &Value::Null)
        );
        assert_eq!(get(&["a", "--raw"]).code(0).stdout, "one\ntwo");

        let both = get(&["a", "absent", "--json"]).code(1).lines();
        assert_eq!((&both[0]["id"], &both[1]["state"]), (&"a".into(), &"unknown".into()));
        let none = get(&["absent", "--raw"]).code(1);
        assert_eq!(none.stdout, "");
        assert!(none.stderr.contains("unknown"), "{}", none.stderr);
        get(&["a", "b", "--raw"]).code(2);
        get(&["a", "--raw", "--json"]).code(2);
        get(&[]).code(2);
        get(&[""]).code(2);
        get(&[&"x".repeat(129)]).code(2);
    }
    run(on(&server, &["cancel", "a"])).code(0);
    assert!(run(on(&server, &["get", "a"])).code(0).stdout.contains("cancelled"));
    run(on(&server, &["get", "a", "--raw"])).code(1);
}

#[test]
fn hostile_text_reaches_no_terminal_and_programs_get_it_whole() {
    let server = Server::start();
    let header = format!("h={HOSTILE}");
    send(
        &server,
        &["--id", HOSTILE, "--payload", HOSTILE, "--header", &header, "--max-failures", "1"],
    );
    let mut work = on(&server, &["work", "--until-empty", "--exec"]);
    work.args(["sh", "-c", "printf '%s' \"$WORDS\" >&2; exit 3"]).env("WORDS", HOSTILE);
    // The output of a command is passed on unchanged.
    run(work).code(0);
    for driver in DRIVERS {
        let ask = |args: &[&str]| run(on(&server, &[&["--driver", driver], args].concat())).code(0);
        for args in [
            &["list"][..],
            &["dead", "list"],
            &["get", HOSTILE],
            &["list", "--json"],
            &["get", HOSTILE, "--json"],
            &["dead", "purge", HOSTILE, "--dry-run"],
        ] {
            let ended = ask(args);
            harmless(&ended.stdout);
            harmless(&ended.stderr);
            assert!(!ended.stdout.is_empty());
        }
        let json = &ask(&["get", HOSTILE, "--json"]).lines()[0];
        assert_eq!((&json["id"], &json["payload"]), (&HOSTILE.into(), &HOSTILE.into()));
        assert_eq!(json["headers"]["h"], HOSTILE);
        assert!(json["last_error"].as_str().unwrap().contains("\u{1b}[2Jx"), "{json}");
        let attempt = &json["attempts"][0];
        assert_eq!(attempt["outcome"], "failed");
        assert!(attempt["error"].as_str().unwrap().contains("\u{1b}[2Jx"), "{json}");
        let text = ask(&["get", HOSTILE]).stdout;
        let line = text.lines().find(|line| line.starts_with("attempt      2")).unwrap();
        assert!(line.contains(" failed: "), "{line}");
        assert_eq!(ask(&["get", HOSTILE, "--raw"]).stdout, HOSTILE);
    }
    let ended = run(on(&server, &["get", "--raw", "\u{1b}[2J"])).code(1);
    harmless(&ended.stderr);
}

#[test]
fn bytes_that_are_no_text() {
    let server = Server::start();
    let line = b"{\"id\": \"bytes\", \"payload_base64\": \"/wAKGw==\"}\n";
    run_with_input(on(&server, &["send", "--file", "-"]), line).code(0);
    let json = &run(on(&server, &["get", "bytes", "--json"])).code(0).lines()[0];
    assert_eq!((&json["payload_base64"], &json["payload"]), (&"/wAKGw==".into(), &Value::Null));
    let text = run(on(&server, &["get", "bytes"])).code(0).stdout;
    assert!(text.contains("payload of 4 bytes, in base64:\n  /wAKGw==\n"), "{text}");
    let raw = on(&server, &["get", "bytes", "--raw"]).stderr(Stdio::null()).output().unwrap();
    assert_eq!((raw.status.code(), raw.stdout), (Some(0), vec![255, 0, 10, 27]));
    // An id need not be text either.
    let mut command = on(&server, &["get", "--json"]);
    command.arg(std::ffi::OsString::from_vec(vec![255, 27]));
    assert_eq!(run(command).code(1).lines()[0]["id_base64"], "/xs=");
}

#[test]
fn messages_are_explained() {
    let server = Server::start();
    run(on(&server, &["send", "--id", "a", "--payload", "1", "--delay", "1h"])).code(0);
    run(on(&server, &["send", "--id", "b", "--payload", "1"])).code(0);
    for driver in DRIVERS {
        let explain = |ids: &[&str], code| {
            run(on(&server, &[&["--driver", driver, "explain"], ids].concat())).code(code)
        };
        let text = explain(&["a", "b", "c"], 1).stdout;
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].starts_with("a: It is due in 59 min "), "{text}");
        assert!(lines[1].starts_with("b: It has been due for "), "{text}");
        assert!(lines[2].starts_with("c: The queue does not know it"), "{text}");
        let line = &explain(&["b", "--json"], 0).lines()[0];
        assert_eq!((&line["id"], &line["why"]), (&"b".into(), &"ready".into()));
        let words = line["explanation"].as_str().unwrap();
        assert!(words.ends_with("waits for a free worker."), "{words}");
    }
    send(&server, &["--id", HOSTILE, "--payload", "1"]);
    harmless(&run(on(&server, &["explain", HOSTILE])).code(0).stdout);
}

#[test]
fn a_wait_ends_with_the_message() {
    let server = Server::start();
    for driver in DRIVERS {
        let wait = |more: &[&str], code| {
            run(on(&server, &[&["--driver", driver, "wait"], more].concat())).code(code)
        };
        let (id, other) = (format!("a-{driver}"), format!("b-{driver}"));
        send(&server, &["--id", &id, "--payload", "1", "--keep-result", "1h"]);
        let told = wait(&[&id, "--timeout", "20ms"], 1);
        assert_eq!((told.stdout.as_str(), told.stderr.as_str()), ("", "pending\n"));
        run(on(&server, &["work", "--until-empty"])).code(0);
        assert_eq!(wait(&[&id], 0).stderr, "acked\n");
        assert_eq!(wait(&["absent"], 1).stderr, "unknown\n");
        send(&server, &["--id", &other, "--payload", "1"]);
        run(on(&server, &["cancel", "--yes", &other])).code(0);
        let line = &wait(&[&other, "--json"], 1).lines()[0];
        assert_eq!((&line["id"], &line["state"]), (&other.clone().into(), &"cancelled".into()));
    }
    let beyond = ["send", "--id", "x", "--payload", "1", "--keep-result", "8d"];
    let told = run(on(&server, &beyond)).code(2).stderr;
    assert!(told.contains("691200000") && told.contains("604800000"), "{told}");
}

#[test]
fn a_history_tells_what_happened() {
    let server = Server::start();
    run(on(&server, &["send", "--id", "b", "--payload", "1"])).code(0);
    run(on(&server, &["work", "--until-empty"])).code(0);
    many(&server, 60);
    for driver in DRIVERS {
        let history = |more: &[&str]| {
            run(on(&server, &[&["--driver", driver, "history"], more].concat())).code(0)
        };
        for flags in [&[][..], &["--hours"]] {
            let text = history(flags).stdout;
            let row = |name: &str| {
                let line = text.lines().find(|line| line.starts_with(name)).unwrap();
                line.strip_prefix(name).unwrap().trim().to_owned()
            };
            assert!(row("sent").contains("  61 in all, at most 6"), "{text}");
            assert!(
                row("acked").contains('\u{2588}') && row("acked").contains("  1 in all"),
                "{text}"
            );
            assert!(row("waiting").contains("60 now, at most 60"), "{text}");
            assert!(row("late by").starts_with("50 % below "), "{text}");
        }
        let value = &history(&["--json"]).lines()[0];
        assert_eq!((&value["queue"], &value["resolution"]), (&"orders".into(), &"minutes".into()));
        assert_eq!(value["lateness_below_ms"].as_array().unwrap().len(), 16);
        let points = value["points"].as_array().unwrap();
        let (first, last) = (&points[0], points.last().unwrap());
        assert_eq!((&first["enqueued_total"], &last["enqueued_total"]), (&0.into(), &61.into()));
        assert_eq!((&last["delivered_total"], &last["scheduled"]), (&1.into(), &60.into()));
    }
}

#[test]
fn a_forecast_counts_what_falls_due() {
    let server = Server::start();
    many(&server, 60);
    run(on(&server, &["send", "--id", "b", "--payload", "1"])).code(0);
    for driver in DRIVERS {
        let forecast = |more: &[&str]| {
            run(on(&server, &[&["--driver", driver, "forecast"], more].concat())).code(0)
        };
        let all = forecast(&[]).stdout;
        assert_eq!(all.lines().count(), 9, "{all}");
        let text = forecast(&["--within", "30m,90m"]).stdout;
        let row = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap();
            line.strip_prefix(name).unwrap().split_whitespace().collect::<Vec<_>>()
        };
        assert_eq!((row("ready"), row("later")), (vec!["1", "#"], vec!["0"]), "{text}");
        assert_eq!(row("within 30m"), ["0"], "{text}");
        assert_eq!(row("within 90m"), ["60", &"#".repeat(40)], "{text}");

        // A longer delay includes what falls due within a shorter one.
        let text = forecast(&["--within", "90m,3h"]).stdout;
        let line = text.lines().find(|line| line.starts_with("within 3h")).unwrap();
        assert!(line.split_whitespace().nth(2) == Some("60"), "{text}");

        let value = &forecast(&["--within", "30m, 2 days", "--json"]).lines()[0];
        let due = serde_json::json!([
            {"within_ms": 1_800_000, "count": 0}, {"within_ms": 172_800_000, "count": 60}
        ]);
        assert_eq!((&value["due"], &value["ready"], &value["later"]), (&due, &1.into(), &0.into()));
    }
}

#[test]
fn groups_are_counted_and_their_messages_listed() {
    let server = Server::start();
    crate::support::create(&server);
    for driver in DRIVERS {
        let of = |args: &[&str]| run(on(&server, &[&["--driver", driver], args].concat())).code(0);
        let none = of(&["groups"]);
        assert_eq!((&*none.stdout, &*none.stderr), ("", "no groups\n"));
        for (id, group) in [("a", "shop-1"), ("b", "shop-1"), ("c", "shop\u{1b}[2J")] {
            send(&server, &["--id", id, "--payload", "x", "--group", group]);
        }
        send(&server, &["--id", "d", "--payload", "x"]);
        let table = of(&["groups"]).stdout;
        let rows: Vec<Vec<&str>> =
            table.lines().map(|it| it.split_whitespace().collect()).collect();
        assert_eq!((rows.len(), &rows[1][..3]), (3, &["shop-1", "2", "0"][..]), "{table}");
        assert!(!table.contains('\u{1b}'), "{table}");
        let one = of(&["groups", "--json", "--order", "oldest", "--limit", "1"]);
        assert_eq!(one.stderr, "1 group more; --limit shows them\n");
        let counted = &one.lines()[0];
        assert_eq!((&counted["group"], &counted["ready"]), (&"shop-1".into(), &2.into()));
        let due = run(on(&server, &["get", "a", "--json"])).code(0).lines()[0]["due"].clone();
        assert_eq!(counted["oldest_due"], due);

        assert_eq!(ids(&of(&["list", "--json", "--group", "shop-1"]).lines()), ["a", "b"]);
        run(on(&server, &["list", "--group", &"x".repeat(129)])).code(2);
        server.command(&["FLUSHALL"]);
        crate::support::create(&server);
    }
}

#[test]
fn a_list_is_searched_by_header_and_content() {
    let server = Server::start();
    many(&server, 250);
    let send = |flags: &[&str]| send(&server, flags);
    send(&["--id", "a", "--payload", "customer-17", "--header", "region=eu-west"]);
    send(&["--id", "b", "--payload", "customer-17", "--delay", "1h"]);
    for driver in DRIVERS {
        let list = |flags: &[&str]| {
            let args = [&["--driver", driver, "list", "--json"], flags].concat();
            ids(&run(on(&server, &args)).code(0).lines())
        };
        assert_eq!(list(&["--content", "customer-17"]), ["b", "a"]);
        assert_eq!(list(&["--content", "customer-17", "--limit", "1"]), ["b"]);
        assert_eq!(list(&["--content", "customer-17", "--state", "ready"]), ["a"]);
        assert_eq!(list(&["--header", "region=eu", "--content", "17"]), ["a"]);
        assert_eq!(list(&["--kind", "invoice"]), [] as [String; 0]);
        assert_eq!(
            list(&["--all", "--content", "1"]).len(),
            2 + (0..250).filter(|n| n.to_string().contains('1')).count()
        );
    }
    let table = run(on(&server, &["list", "--content", "customer"])).code(0).stdout;
    assert!(table.starts_with("ID") && table.lines().count() == 3, "{table}");
    let cut = run(on(&server, &["list", "--json", "--content", "1", "--limit", "3"])).code(0);
    assert!(cut.stderr.contains("there may be more"), "{}", cut.stderr);
    assert_eq!(run(on(&server, &["list", "--all", "--content", "1"])).code(0).stderr, "");
    let none = run(on(&server, &["list", "--content", "absent"])).code(0);
    assert_eq!((&*none.stdout, &*none.stderr), ("", "no messages\n"));
    run(on(&server, &["list", "--content", ""])).code(2);
    run(on(&server, &["list", "--content", "a", "--after", "ready"])).code(2);
}
