//! What the command says when a server is not there, or not fit.

use std::io::Write as _;
use std::path::Path;

use crate::support::{DRIVERS, Ended, bare, on, run};
use delayline_test_server::Server;

fn stats(url: &str, driver: &str) -> Ended {
    let mut command = bare(&["--driver", driver, "--queue", "orders", "stats"]);
    command.env("DELAYLINE_URL", url);
    run(command)
}

/// One clear sentence, and never the password.
#[track_caller]
fn refused(ended: Ended, code: i32, words: &str) {
    let ended = ended.code(code);
    assert!(ended.stderr.starts_with("delayline: "), "{}", ended.stderr);
    assert!(ended.stderr.contains(words), "{words}: {}", ended.stderr);
    assert!(!ended.stderr.contains("hunter2") && !ended.stderr.contains("panicked"));
    assert!(ended.stderr.lines().count() <= 2, "{}", ended.stderr);
    assert_eq!(ended.stdout, "");
}

#[test]
fn urls_that_are_none() {
    for driver in DRIVERS {
        refused(stats("http://:hunter2@localhost", driver), 2, "scheme \"http\"");
        refused(stats("hunter2", driver), 2, "redis://");
        refused(stats("redis://:hunter2@localhost:99999", driver), 2, "");
        refused(stats("redis://:hunter2@127.0.0.1:1", driver), 3, "cannot be reached");
        refused(stats("redis://:hunter2@127.0.0.1:1", driver), 3, "redis://127.0.0.1:1");
        refused(stats("unix:/nowhere/redis.sock?password=hunter2", driver), 3, "cannot be reached");
    }
    refused(run(bare(&["stats"])), 2, "--queue");
}

#[test]
fn every_verb_says_that_the_server_cannot_be_reached() {
    for driver in DRIVERS {
        let verbs = "send --payload x, work, relay --to-list due, stats --watch, list, get a, \
            get a --raw, cancel a, cancel a b --yes, reschedule a --delay 1h, dead list, \
            dead redrive a, dead redrive --all, dead purge --all --yes, pause, resume";
        for verb in verbs.split(", ") {
            let verb: Vec<_> = verb.split(' ').collect();
            let mut command = bare(&[&["--driver", driver], &verb[..]].concat());
            command.env("DELAYLINE_URL", "redis://:hunter2@127.0.0.1:1");
            command.env("DELAYLINE_QUEUE", "orders");
            refused(run(command), 3, "cannot be reached");
        }
    }
}

/// Before anything is sent: there is no server.
#[test]
fn options_that_no_verb_can_follow_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path().to_str().unwrap();
    let hostile = format!("\u{1b}[2J{}", "x".repeat(100_000));
    for (verb, words) in [
        (&["stats", "--watch", "soon"][..], &["--watch", "is not a duration"][..]),
        (&["stats", "--watch", "99ms"], &["--watch", "100ms"]),
        (&["top", "--interval=-1s"], &["--interval", "is not a duration"]),
        (&["stats", "--watch", "-5s"], &["--watch", "it is negative"]),
        (&["send", "--payload", "-5", "--delay", "-5s"], &["--delay", "it is negative"]),
        (&["send", "--payload", "1", "--expires-in", "-1m"], &["--expires-in", "it is negative"]),
        (&["send", "--payload", "1", "--at", "-5m"], &["--at", "is not a time"]),
        (&["forecast", "--within", "-5s"], &["--within", "it is negative"]),
        (&["dead", "list", "--died-after", "-5s"], &["--died-after", "it is negative"]),
        (&["schedule", "next", "--every", "-5m"], &["every", "it is negative"]),
        (&["schedule", "next", "--every", "5m", "--after", "-5m"], &["--after", "not a time"]),
        (&["limits", "--hold", "-5s"], &["--hold", "it is negative"]),
        (&["top", "--interval", "199ms"], &["--interval", "200ms"]),
        (&["wait", "a", "--timeout", "5"], &["--timeout", "is not a duration"]),
        (&["work", "--lease", "5"], &["--lease", "is not a duration"]),
        (&["work", "--grace", "5"], &["--grace", "is not a duration"]),
        (&["work", "--timeout", "5", "--exec", "cat"], &["--timeout", "is not a duration"]),
        (&["work", "--timeout", "0s", "--exec", "cat"], &["--timeout", "longer than 0s"]),
        (&["work", "--exec", ""], &["--exec", "no command"]),
        (&["serve", "--exec", " "], &["--exec", "no command"]),
        (&["work", "--lease", &hostile], &["--lease", "\\u{1b}", "..."]),
        (&["reschedule", "a", "--delay", "1 year"], &["--delay", "is not a duration"]),
        (&["reschedule", "a", "--delay", "40000d"], &["--delay", "3155760000000"]),
        (&["dead", "redrive", "--all", "--delay", "40000d"], &["--delay", "3155760000000"]),
        (&["limits", "--rate", "none", "--burst", "6"], &["--burst", "--rate none"]),
        (&["send", "--file", directory], &[directory, "cannot be read"]),
        (&["schedule", "apply", directory], &[directory, "cannot be read"]),
        (&["cancel", "--file", directory], &[directory, "cannot be read"]),
        (
            &["send", "--id", "a", "--payload", "1", "--after", "a", "--after-in", "orders"],
            &["would wait for itself"],
        ),
        (&["work", "--lease", "2d"], &["--lease", "from 1 to 86400000"]),
        (&["serve", "--post", "nowhere"], &["--post", "http://"]),
        (&["serve", "--post-secret", "a secret of 16 bytes"], &["--post-secret needs --post"]),
        (&["stats", "--sentinel-password", "a"], &["redis-sentinel://"]),
        (&["serve", "--schedules", "a b"], &["the queue name"]),
        (&["doctor", "--schedules", "a b"], &["the queue name"]),
        (&["workers", "--queue", "a b"], &["the queue name"]),
        (&["import", "queue", "a b"], &["the queue name"]),
        (&["forecast", "--within", "1h,1h"], &["--within", "longer than the one before"]),
        (&["forecast", "--within", "40000d"], &["--within", "3155760000000"]),
        (&["schedule", "put", "a@b", "--every", "1m"], &["no `@`"]),
        (&["schedule", "pause", ""], &["the message id is empty"]),
    ] {
        let mut command = bare(verb);
        command.env("DELAYLINE_URL", "redis://127.0.0.1:1").env("DELAYLINE_QUEUE", "orders");
        let said = run(command).code(2).stderr;
        assert!(said.starts_with("delayline: ") && said.len() < 500, "{verb:?}: {said}");
        assert!(words.iter().all(|word| said.contains(word)), "{verb:?}: {said}");
    }
    // Nothing was created.
    let new = format!("file:{directory}/new");
    for verb in [
        &["work", "--concurrency", "0"][..],
        &["work", "--lease", "2d"],
        &["serve", "--concurrency", "1001"],
        &["serve", "--concurrency", "9"],
        &["work", "--sentinel-password", "a"],
        &["send", "--payload", "1", "--durability", "replicas=1"],
        &["schedule", "put", "", "--every", "1m"],
    ] {
        run(bare(&[&["--url", &new, "--queue", "orders"], verb].concat())).code(2);
        assert!(!Path::new(directory).join("new").exists(), "{verb:?}");
    }
    // An option without a value is not blamed for the word behind it.
    let said = run(bare(&["dead", "purge", "--yes", "-5", "--all"])).code(2).stderr;
    assert!(said.contains("unexpected argument '-5'"), "{said}");
    let said = run(bare(&["work", "--concurrency", "1001"])).code(2).stderr;
    assert!(said.contains("is not in 1..=1000"), "{said}");
}

#[test]
fn a_queue_in_memory_takes_messages_and_says_that_it_ends() {
    for driver in DRIVERS {
        let ended = stats("memory:", driver);
        assert!(ended.stderr.contains("is gone when this command ends"), "{}", ended.stderr);
        ended.code(0);
    }
}

#[test]
fn a_wrong_password_is_named_as_such_and_not_printed() {
    let server = Server::builder().tcp().password("secret").start();
    for driver in DRIVERS {
        refused(stats(&server.url(), driver), 3, "user name or password");
        let url = server.url_with_login("", "hunter2");
        refused(stats(&url, driver), 3, "user name or password");
        let let_in = stats(&server.url_with_login("", "secret"), driver);
        assert!(let_in.is_unknown_queue(), "{}", let_in.stderr);
    }
}

#[test]
fn a_read_only_replica_is_refused() {
    let primary = Server::builder().tcp().start();
    let replica = Server::start();
    replica.command(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    crate::support::wait_until("the replication", || {
        replica.info("replication", "master_link_status") == "up"
    });
    for driver in DRIVERS {
        refused(stats(&replica.url(), driver), 3, "read-only replica");
    }
}

#[test]
fn a_server_that_evicts_is_refused_unless_allowed() {
    let server = Server::builder().config("maxmemory-policy", "allkeys-lru").start();
    server.command(&["CONFIG", "SET", "maxmemory", "100mb"]);
    for driver in DRIVERS {
        refused(stats(&server.url(), driver), 3, "allkeys-lru");
        run(on(&server, &["--driver", driver, "--allow-eviction", "pause", "--create"])).code(0);
    }
}

#[test]
fn tls_needs_an_authority_that_is_trusted() {
    let server = Server::builder().tls().start();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(server.ca_pem().as_bytes()).unwrap();
    let path = file.path().to_str().unwrap();
    for driver in DRIVERS {
        refused(stats(&server.url(), driver), 3, "TLS");
        run(on(&server, &["--driver", driver, "--tls-ca", path, "pause", "--create"])).code(0);
        let mut other = tempfile::NamedTempFile::new().unwrap();
        other.write_all(delayline_test_server::foreign_ca_pem().as_bytes()).unwrap();
        let other = other.path().to_str().unwrap();
        let ended = run(on(&server, &["--driver", driver, "--tls-ca", other, "stats"])).code(3);
        assert!(ended.stderr.contains("is the authority of --tls-ca"), "{}", ended.stderr);
        // Neither side says that it speaks TLS, or that it does not.
        refused(stats(&server.url().replace("rediss:", "redis:"), driver), 3, "use rediss://");
    }
    let plain = Server::start();
    refused(run(on(&plain, &["--tls-ca", path, "stats"])), 2, "rediss://");
    refused(run(on(&server, &["--tls-ca", "/nowhere/ca.pem", "stats"])), 2, "cannot be read");
    let none = tempfile::NamedTempFile::new().unwrap();
    let none = none.path().to_str().unwrap();
    let said = format!("{none} has no certificate");
    refused(run(on(&server, &["--tls-ca", none, "stats"])), 2, &said);
}

#[test]
fn an_empty_variable_is_not_set_and_a_short_secret_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let url = format!("file:{}", place.path().display());
    let mut top = bare(&["--url", &url, "top", "--once"]);
    top.env("DELAYLINE_QUEUE", "");
    assert_eq!(run(top).code(0).stderr, "no queues\n");
    let serve = ["--url", &url, "serve", "--listen", "127.0.0.1:0", "--claim-secret", ""];
    refused(run(bare(&serve)), 2, "at least 16 bytes");
}
