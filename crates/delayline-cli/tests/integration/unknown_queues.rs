//! Queues that the server does not have.

use crate::support::{DRIVERS, bare, on, run, send};
use delayline_redis_protocol::SCHEMA_VERSION;
use delayline_test_server::{Reply, Server};

/// Whether the server has any key.
fn is_empty(server: &Server) -> bool {
    matches!(server.command(&["DBSIZE"]), Reply::Int(0))
}

#[test]
fn verbs_refuse_a_queue_that_does_not_exist_and_create_none() {
    let server = Server::start();
    for driver in DRIVERS {
        let verbs = "stats, stats --json, stats --watch, forecast, history, list, get a, explain a, \
            wait a --timeout 1s, cancel a, reschedule a --delay 1h, dead list, dead redrive a, \
            dead redrive --all --yes, dead purge --all --yes, pause, resume, limits, \
            limits --leased 3, upgrade --dry-run, upgrade --yes, check, check --repair --yes";
        for verb in verbs.split(", ") {
            let mut args = vec!["--driver", driver, "--queue", "misspelt"];
            args.extend(verb.split(' '));
            let ended = run(on(&server, &args)).code(1);
            let said = "the server has no queue misspelt";
            assert!(ended.stderr.contains(said), "{verb:?}: {}", ended.stderr);
            assert!(ended.stderr.contains("--create of pause and limits"), "{}", ended.stderr);
            assert_eq!(ended.stdout, "", "{verb:?}");
            assert!(is_empty(&server), "{verb:?}");
        }
    }
}

#[test]
fn a_queue_is_created_by_a_message_or_if_a_flag_says_so() {
    let server = Server::start();
    run(on(&server, &["pause", "--create"])).code(0);
    let paused = &run(on(&server, &["stats", "--json"])).code(0).lines()[0]["paused"];
    assert_eq!(paused, true);
    run(on(&server, &["resume"])).code(0);
    run(on(&server, &["--queue", "calls", "limits", "--leased", "3", "--create"])).code(0);
    send(&server, &["--queue", "texts", "--payload", "1"]);
    run(on(&server, &["--queue", "texts", "pause"])).code(0);
    run(on(&server, &["--queue", "texts", "check"])).code(0);
    // A worker may start before the first producer.
    run(on(&server, &["--queue", "later", "work", "--until-empty", "--exec", "true"])).code(0);
    // A queue in memory ends with the command, so that it is always new.
    run(bare(&["--url", "memory:", "--queue", "orders", "stats"])).code(0);
}

#[test]
fn a_queue_that_has_lost_its_control_record_is_known() {
    let server = Server::start();
    send(&server, &["--id", "a", "--payload", "1"]);
    server.command(&["DEL", "delayline:{orders}:control"]);
    run(on(&server, &["stats"])).code(0);
    server.command(&["DEL", "delayline:{orders}:index"]);
    run(on(&server, &["check", "--repair", "--yes"])).code(0);
    run(on(&server, &["get", "a"])).code(0);
    send(&server, &["--id", "b", "--payload", "1"]);
    server.command(&["DEL", "delayline:{orders}:control"]);
    run(on(&server, &["--queue", "new", "import", "queue", "orders", "--yes"])).code(0);
    run(on(&server, &["--queue", "new", "get", "b"])).code(0);
}

/// The number of shards is stored by verbs that create queues, and no other number is accepted.
#[test]
fn a_queue_keeps_its_number_of_shards() {
    let server = Server::start();
    for driver in DRIVERS {
        let on_queue = |args: &[&str]| {
            run(on(&server, &[&["--driver", driver, "--queue", driver], args].concat()))
        };
        on_queue(&["--shards", "4", "stats"]).code(1);
        for n in 0..8 {
            on_queue(&["--shards", "4", "send", "--id", &n.to_string(), "--payload", "1"]).code(0);
        }
        let stats = &on_queue(&["stats", "--json"]).code(0).lines()[0]["ready"].clone();
        assert_eq!(stats, 8);
        let refused = on_queue(&["--shards", "5", "send", "--payload", "1"]).code(3);
        assert!(
            refused.stderr.contains("has 4 shards, and 5 were requested"),
            "{}",
            refused.stderr
        );
        on_queue(&["--shards", "65", "stats"]).code(2);
        on_queue(&["--shards", "4", "cancel", "3"]).code(0);
        let listed = on_queue(&["list", "--limit", "3"]).code(0);
        assert!(listed.stderr.contains("--after ready:"), "{}", listed.stderr);
        // Verbs about the whole queue look at every shard.
        let upgraded = on_queue(&["upgrade", "--dry-run"]).code(0).stdout;
        assert!(upgraded.contains("up to date"), "{upgraded}");
        assert!(on_queue(&["check"]).code(0).stderr.contains("7 messages examined, 0 faults"));
        let found = on_queue(&["doctor"]).stdout;
        assert!(found.contains("4 shards, and 0 messages in none of them"), "{found}");
        let control = format!("delayline:{{{driver}#2}}:control");
        let intact = server.command(&["GET", &control]);
        let newer = [u8::try_from(SCHEMA_VERSION).unwrap() + 1; 100];
        server.command(&[b"SET", control.as_bytes(), &newer[..]]);
        let refused = on_queue(&["upgrade", "--dry-run"]).code(3).stderr;
        assert!(refused.contains("newer"), "{refused}");
        let Reply::BulkString(intact) = intact else { panic!("{intact:?}") };
        server.command(&[b"SET", control.as_bytes(), &intact[..]]);
        // A queue that never had a message has its shards all the same.
        let empty = format!("{driver}-empty");
        let on_empty = |args: &[&str]| {
            run(on(&server, &[&["--driver", driver, "--queue", &empty], args].concat()))
        };
        on_empty(&["--shards", "4", "work", "--until-empty", "--exec", "true"]).code(0);
        for verb in [&["stats"][..], &["check"], &["list"], &["--shards", "4", "stats"]] {
            on_empty(verb).code(0);
        }
        on_empty(&["--shards", "5", "stats"]).code(3);
    }
    let queues = run(on(&server, &["queues"])).code(0);
    assert!(!queues.stdout.contains('#'), "{}", queues.stdout);
}

#[tokio::test]
async fn messages_that_were_sent_past_the_shards_are_moved_into_them() {
    let server = Server::start();
    let connection = delayline::connect(&server.url()).await.unwrap();
    let opened_before: delayline::Queue<u64> = connection.queue("orders").await.unwrap();
    let _sharded: delayline::Queue<u64> = connection.queue("orders").shards(4).await.unwrap();
    opened_before.send(&1).await.unwrap();
    let run = |args: &[&str]| run(on(&server, &[&["--queue", "orders"], args].concat()));
    let found = run(&["doctor"]).stdout;
    assert!(found.contains("4 shards, and 1 messages in none of them"), "{found}");
    let import = ["import", "queue", "orders", "--yes", "--json"];
    for more in [&["--dry-run"][..], &[]] {
        let counts = run(&[&import[..], more].concat()).code(0).lines().remove(0);
        assert_eq!((&counts["created"], &counts["left"]), (&1.into(), &0.into()));
    }
    assert_eq!(run(&["stats", "--json"]).code(0).lines()[0]["ready"], 1);
    assert!(run(&["doctor"]).stdout.contains("4 shards, and 0 messages in none of them"));
}
