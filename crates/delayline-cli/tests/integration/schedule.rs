//! `delayline schedule`.

use std::io::{BufRead as _, BufReader};

use crate::support::{
    DRIVERS, Ended, bare, count, ended, on, run, run_with_input, send_signal, start,
};
use delayline_test_server::Server;
use serde_json::json;

fn schedule(server: &Server, driver: &str, args: &[&str]) -> Ended {
    run(on(server, &[&["--driver", driver, "schedule"], args].concat()))
}

#[test]
fn a_scheduler_sends_what_is_put() {
    for driver in DRIVERS {
        let server = Server::start();
        let ask = |args: &[&str]| schedule(&server, driver, args);
        let put = ["put", "tick", "--every", "1s", "--payload", "{\"x\":1}", "--json"];
        assert_eq!(ask(&put).code(0).lines()[0]["outcome"], "created");
        assert_eq!(ask(&put).code(0).lines()[0]["outcome"], "unchanged");
        let running = start(&mut on(&server, &["--driver", driver, "schedule", "run"]));
        // Without a lead of a minute nothing would be there that soon.
        crate::support::wait_until("ticks", || count(&server, "scheduled") >= 3);
        send_signal(&running, "-TERM");
        assert!(ended(running).code(0).stdout.starts_with("handled "));
        let listed = run(on(&server, &["list", "--json"])).code(0).lines();
        let first = &listed[0]["messages"][0];
        assert!(first["id"].as_str().unwrap().starts_with("tick@"), "{first}");
        // Messages created ahead are removed with the schedule.
        assert_eq!(ask(&["remove", "tick"]).code(0).stdout, "tick: removed\n");
        crate::support::wait_until("no ticks", || count(&server, "scheduled") == 0);
        assert!(ask(&["remove", "tick"]).code(1).stderr.contains("no schedule tick"));
        let unknown = ask(&["remove", "tick", "--json"]).code(1).lines();
        assert_eq!(unknown, [json!({"name": "tick", "outcome": "not_found"})]);
    }
}

#[test]
fn a_scheduler_says_that_a_second_signal_ends_it() {
    let server = Server::start();
    schedule(&server, "redis", &["put", "tick", "--every", "1s"]).code(0);
    let mut running = start(&mut on(&server, &["schedule", "run"]));
    crate::support::wait_until("ticks", || count(&server, "scheduled") > 0);
    // It would end before it could be asked again.
    server.pause();
    send_signal(&running, "-TERM");
    let mut stderr = BufReader::new(running.stderr.take().unwrap()).lines();
    let said = stderr.find(|line| line.as_ref().unwrap().contains("stop at once"));
    assert!(said.is_some(), "it hears one signal only");
    server.resume();
    assert!(ended(running).code(0).stdout.starts_with("handled "));
}

#[test]
fn a_schedule_is_listed_paused_resumed_and_run_now() {
    for driver in DRIVERS {
        let server = Server::start();
        let ask = |args: &[&str]| schedule(&server, driver, args);
        let cron = ["put", "report", "--cron", "30 8 * * *", "--zone", "Europe/Berlin"];
        ask(&[&cron[..], &["--group", "shop"]].concat()).code(0);
        let listed = ask(&["list", "--json"]).code(0).lines();
        assert_eq!(listed.len(), 1);
        assert_eq!(listed[0]["next"].as_array().unwrap().len(), 10);
        assert_eq!(listed[0]["spec"]["cron"], "30 8 * * *");
        let table = ask(&["list"]).code(0).stdout;
        assert!(table.contains("30 8 * * *  Europe/Berlin") && table.contains("orders"), "{table}");
        assert_eq!(ask(&["pause", "report"]).code(0).stdout, "report: paused\n");
        assert!(ask(&["list"]).code(0).stdout.contains("paused"));
        let next = ask(&["next", "report"]).code(0);
        assert!(next.stdout.is_empty() && next.stderr.contains("is paused"));
        ask(&["resume", "report"]).code(0);
        assert_eq!(ask(&["list"]).code(0).stderr, "");
        assert_eq!(ask(&["next", "report"]).code(0).stdout.lines().count(), 10);
        assert_eq!(ask(&["run-now", "report", "--json"]).code(0).lines()[0]["outcome"], "sent");
        assert_eq!(count(&server, "ready"), 1);
        let sent = run(on(&server, &["list", "--state", "ready", "--json"])).code(0).lines();
        assert_eq!(sent[0]["messages"][0]["group"], "shop");
        for verb in ["pause", "resume", "run-now", "next", "remove"] {
            assert!(ask(&[verb, "other"]).code(1).stderr.contains("no schedule other"), "{verb}");
        }
    }
}

#[test]
fn a_file_is_all_that_its_owner_has() {
    for driver in DRIVERS {
        let server = Server::start();
        let apply = |file: &str| {
            let args = ["--driver", driver, "schedule", "apply", "-", "--json"];
            run_with_input(on(&server, &args), file.as_bytes())
        };
        let both = r#"{"owner": "shop", "schedules": {
            "a": {"every": "1h", "queue": "orders"}, "b": {"cron": "@daily", "queue": "orders"}}}"#;
        let counts = |created: u64, changed: u64, unchanged: u64, removed: u64| {
            json!({"owner": "shop", "created": created, "changed": changed,
                "unchanged": unchanged, "removed": removed})
        };
        assert_eq!(apply(both).code(0).lines(), [counts(2, 0, 0, 0)]);
        assert_eq!(apply(both).code(0).lines(), [counts(0, 0, 2, 0)]);
        // The owner of another name keeps its schedules.
        let other = both.replace("shop", "shop2");
        apply(&other).code(0);
        let bad = both.replace("@daily", "0 0 31 2 *");
        assert!(apply(&bad).code(1).stderr.contains("schedule b: "));
        let one = r#"{"owner": "shop", "schedules": {"a": {"every": "2h", "queue": "orders"}}}"#;
        assert_eq!(apply(one).code(0).lines(), [counts(0, 1, 0, 1)]);
        let names = schedule(&server, driver, &["list", "--json"]).code(0).lines();
        let names: Vec<_> = names.iter().map(|line| line["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["shop/a", "shop2/a", "shop2/b"]);
    }
}

#[test]
fn instants_of_a_line_need_no_server() {
    let next = |args: &[&str]| run(bare(&[&["schedule", "next"], args].concat()));
    let instants = next(&["--cron", "0 0 29 2 *", "--zone", "Europe/Berlin"]).code(0).stdout;
    assert_eq!(instants.lines().count(), 10);
    assert!(instants.lines().all(|line| line.ends_with("-02-29 00:00:00 CET")), "{instants}");
    let autumn = ["--cron", "30 */2 * * *", "--zone", "Europe/Berlin", "--count", "3", "--after"];
    let autumn = next(&[&autumn[..], &["2026-10-24T22:30:00Z"]].concat()).code(0).stdout;
    let both = "2026-10-25 02:30:00 CEST\n2026-10-25 02:30:00 CET\n2026-10-25 04:30:00 CET\n";
    assert_eq!(autumn, both);
    let every = next(&["--cron", "@every 90s", "--after", "1970-01-01T00:00:00Z", "--count", "1"]);
    assert_eq!(every.code(0).stdout, "1970-01-01T00:01:30.000Z\n");
    let every = next(&["--every", "1h", "--json"]).code(0).lines();
    assert_eq!(every[0]["next"].as_array().unwrap().len(), 10);
    for (args, text) in [
        (&["--cron", "0 0 31 2 *"][..], "no date"),
        (&["--cron", "61 * * * *"], "minute"),
        (&["--cron", "* * *"], "3 fields"),
        (&["--cron", "@daily", "--zone", "Mars/Base"], "time zone"),
        (&["--every", "10ms"], "1 second"),
        (&["--every", "a while"], "is not a duration"),
        (&["--zone", "UTC"], "--cron"),
        (&["--every", "1h", "--count", "0"], "--count"),
        (&["--every", "1h", "--after", "when"], "is not a time"),
        (&[], "--cron"),
    ] {
        let ended = next(args).code(2);
        assert!(ended.stderr.contains(text), "{args:?}: {}", ended.stderr);
        assert_eq!(ended.stdout, "");
    }
}

#[test]
fn bad_schedules_are_refused() {
    let server = Server::start();
    for driver in DRIVERS {
        for (args, text) in [
            (&["put", "a@b", "--every", "1m"][..], "`@`"),
            (&["put", "", "--every", "1m"], "1 to 100 bytes"),
            (&["put", "a"], "--cron"),
            (&["put", "a", "--every", "1m", "--cron", "@daily"], "cannot be used with"),
            (&["put", "a", "--every", "1m", "--payload", "{"], "not JSON"),
            (&["put", "a", "--every", "1m", "--lead", "2h"], "lead"),
            (&["put", "a", "--every", "1m", "--grace", "32d"], "grace"),
            (&["put", "a", "--every", "1m", "--schedules", "a b"], "queue"),
            (&["put", "a", "--every", "1m", "--kind", ""], "kind"),
            (&["put", "a", "--every", "1m", "--group", ""], "group"),
        ] {
            let ended = schedule(&server, driver, args).code(2);
            assert!(ended.stderr.contains(text), "{args:?}: {}", ended.stderr);
            assert_eq!(ended.stdout, "");
        }
        assert!(schedule(&server, driver, &["list", "--json"]).code(0).stdout.is_empty());
    }
}
