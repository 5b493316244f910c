//! The command in a cluster and behind sentinels.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

mod support;

use std::process::Command;

use delayline_test_server::{Cluster, Sentinels, Server};
use support::{DRIVERS, bare, run};

fn at(url: &str, driver: &str, args: &[&str]) -> Command {
    let mut command = bare(&["--driver", driver]);
    command.args(args).env("DELAYLINE_URL", url).env("DELAYLINE_QUEUE", "orders");
    command
}

#[test]
fn a_cluster_is_found_through_one_node() {
    let cluster = Cluster::builder().config("cluster-announce-hostname", "node.invalid").start();
    let url = cluster.url_of(&[&cluster.nodes()[2]]);
    let maps = cluster.nodes().iter().map(|node| {
        let port = node.port();
        format!("--map-address=node.invalid:{port}=127.0.0.1:{port}")
    });
    let maps: Vec<_> = maps.collect();
    for driver in DRIVERS {
        let with = |args: &[&str]| {
            let mut command = at(&url, driver, args);
            command.args(&maps);
            command
        };
        run(with(&["send", "--id", driver, "--payload", "x"])).code(0);
        let work = ["work", "--until-empty"];
        let handled = run(with(&work)).code(0);
        assert!(handled.stdout.contains(driver), "{}", handled.stdout);
        run(with(&["doctor"])).code(0);
    }
}

#[test]
fn sentinels_have_a_login_of_their_own_which_no_command_learns_unasked() {
    let sentinels = Sentinels::builder().password("pw").sentinel_password("hunter2").start();
    let url = sentinels.url().replace("://", "://:pw@");
    for driver in DRIVERS {
        let send = ["send", "--id", driver, "--payload", "x"];
        let refused = run(at(&url, driver, &send)).code(3);
        assert!(refused.stderr.contains("user name or password"), "{}", refused.stderr);
        let with = |args: &[&str]| {
            let mut command = at(&url, driver, args);
            command.env("DELAYLINE_SENTINEL_PASSWORD", "hunter2");
            command
        };
        run(with(&send)).code(0);
        let work = ["-vv", "work", "--until-empty", "--exec", "sh", "-c", "env >&2"];
        let ended = run(with(&work)).code(0);
        assert!(ended.stderr.contains("DELAYLINE_ID"), "{}", ended.stderr);
        assert!(!ended.stderr.contains("hunter2"), "{}", ended.stderr);
        // Without an id of its own: the other driver has sent one before.
        run(with(&["send", "--payload", "x"])).code(0);
        let work = ["work", "--until-empty", "--pass-url", "--exec", "sh", "-c", "env >&2"];
        let ended = run(with(&work)).code(0);
        assert!(ended.stderr.contains("DELAYLINE_SENTINEL_PASSWORD=hunter2"), "{}", ended.stderr);
    }
}

#[test]
fn urls_and_servers_that_do_not_match_are_told_apart() {
    let (cluster, server) = (Cluster::start(), Server::builder().tcp().start());
    for driver in DRIVERS {
        let told = |url: &str, words: &str| {
            let ended = run(at(url, driver, &["stats"])).code(2);
            assert!(ended.stderr.contains(words), "{words}: {}", ended.stderr);
        };
        told(&cluster.nodes()[0].url(), "redis-cluster://");
        told(&server.url().replace("redis:", "redis-cluster:"), "redis://");
        let unused = ["stats", "--map-address", "a:1=b:2"];
        run(at(&server.url(), driver, &unused)).code(2);
        let malformed = ["stats", "--map-address", "a:1"];
        run(at(&cluster.url(), driver, &malformed)).code(2);
    }
}
