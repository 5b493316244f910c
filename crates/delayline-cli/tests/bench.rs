//! `delayline bench`: that it measures what it says, not how much that is.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

mod support;

use delayline_test_server::Server;
use support::{DRIVERS, bare, ended, run, send_signal, wait_until};

fn bench(url: &str, args: &[&str]) -> std::process::Command {
    let mut command = bare(&[&["bench"], args].concat());
    command.env("DELAYLINE_URL", url);
    command
}

/// How many messages the queue of the benchmark holds, and how many it ever held.
fn held_and_enqueued(server: &Server) -> (u64, u64) {
    let mut command = bare(&["--queue", "delayline-bench", "stats", "--json"]);
    command.env("DELAYLINE_URL", server.url());
    let stats = run(command).code(0).lines().remove(0);
    let count = |name: &str| stats[name].as_u64().unwrap();
    let held = ["scheduled", "ready", "leased", "dead"].map(count).iter().sum();
    (held, count("enqueued_total"))
}

#[test]
fn lateness_is_measured_everywhere_and_nothing_is_early() {
    let server = Server::start();
    let args = ["lateness", "--messages", "5", "--within", "100ms", "--compare", "--json"];
    let lines = run(bench(&server.url(), &args)).code(0).lines();
    let places: Vec<_> = lines.iter().map(|line| line["place"].as_str().unwrap()).collect();
    assert_eq!(places, ["redis-rs", "fred", "memory"]);
    for line in &lines {
        assert_eq!((&line["messages"], &line["early"]), (&5.into(), &0.into()), "{line}");
        let at = |name: &str| line[name].as_f64().unwrap();
        assert!(at("p50_ms") > 0.0 && at("p50_ms") <= at("p99_ms") && at("p99_ms") <= at("max_ms"));
    }
    assert_eq!(held_and_enqueued(&server), (0, 10));
    let text =
        run(bench(&server.url(), &["lateness", "--messages", "3", "--within", "0s"])).code(0);
    let version = format!("Redis {}", server.info("server", "redis_version"));
    assert!(text.stdout.contains(&version) && text.stdout.contains('#'), "{}", text.stdout);
}

#[test]
fn throughput_is_measured_step_by_step() {
    let server = Server::start();
    for (driver, place) in DRIVERS.into_iter().zip(["redis-rs", "fred"]) {
        let args = ["--driver", driver, "throughput", "--messages", "500", "--json"];
        let steps = run(bench(&server.url(), &args)).code(0).lines();
        assert_eq!(steps.len(), 4);
        for step in steps {
            assert_eq!((&step["messages"], &step["place"]), (&500.into(), &place.into()));
            assert!(step["messages_per_second"].as_f64().unwrap() > 0.0);
            assert!(step["server_cpu_us_per_message"].is_number());
        }
    }
    assert_eq!(held_and_enqueued(&server), (0, 2_000));
    let table = run(bench("memory:", &["throughput", "--messages", "100"])).code(0).stdout;
    assert!(table.contains("MESSAGES/S"), "{table}");
}

#[test]
fn an_interrupted_run_leaves_nothing() {
    let server = Server::start();
    for args in [
        &["lateness", "--within", "300ms"][..],
        &["throughput", "--messages", "1000000", "--concurrency", "4"],
    ] {
        let (_, before) = held_and_enqueued(&server);
        let child = support::start(&mut bench(&server.url(), args));
        wait_until("the first messages", || held_and_enqueued(&server).1 > before);
        send_signal(&child, "-INT");
        ended(child).code(0);
        assert_eq!(held_and_enqueued(&server).0, 0, "{args:?}");
    }
}

#[test]
fn a_queue_that_holds_messages_is_left_alone() {
    let server = Server::start();
    let send = ["--queue", "delayline-bench", "send", "--payload", "p", "--delay", "1h"];
    let mut command = bare(&send);
    command.env("DELAYLINE_URL", server.url());
    run(command).code(0);
    for verb in ["lateness", "throughput"] {
        let refused = run(bench(&server.url(), &[verb])).code(2);
        assert!(refused.stderr.contains("in use"), "{}", refused.stderr);
    }
    assert_eq!(held_and_enqueued(&server), (1, 1));
}

#[test]
fn bad_values_are_refused() {
    let server = Server::start();
    for wrong in [
        &["lateness", "--messages", "0"][..],
        &["lateness", "--within", "soon"],
        &["throughput", "--concurrency", "0"],
        &["throughput", "--concurrency", "1001"],
        &["throughput", "--payload", "2000000"],
        &["speed"],
    ] {
        run(bench(&server.url(), wrong)).code(2);
    }
    run(bench("unix:/nowhere/s", &["lateness"])).code(3);
}
