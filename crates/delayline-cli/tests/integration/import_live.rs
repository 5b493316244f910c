//! `delayline import zset --live`, while the old producers still run.

use std::process::Command;
use std::sync::OnceLock;

use crate::support::old::{LATER, expected, held, interrupted, redis, waiting};
use crate::support::{
    DRIVERS, Running, bare, count, ended, on, run, send_signal, start, wait_until,
};
use delayline_test_server::Server;
use serde_json::{Value, json};

const ZSET: [&str; 8] =
    ["import", "zset", "reminders", "--unit", "s", "--live", "--interval", "10ms"];

fn live(server: &Server, driver: &str, flags: &[&str]) -> Command {
    on(server, &[&["--driver", driver], &ZSET[..], &["--yes", "--json"], flags].concat())
}

/// Moves what there is, and returns the counts.
#[track_caller]
fn moved(server: &Server, driver: &str, flags: &[&str], code: i32) -> Value {
    let flags = [&["--until-empty"], flags].concat();
    run(live(server, driver, &flags)).code(code).lines().remove(0)
}

/// Stops it, and returns the counts.
#[track_caller]
fn stopped(running: Running) -> Value {
    send_signal(&running, "-TERM");
    ended(running).code(0).lines().remove(0)
}

#[track_caller]
fn assert_counts(counts: &Value, wanted: &[(&str, u64)]) {
    for name in ["created", "updated", "duplicate", "withdrawn", "left"] {
        let count = wanted.iter().find(|(wanted, _)| *wanted == name).map_or(0, |(_, it)| *it);
        assert_eq!(counts[name], json!(count), "{name}: {counts}");
    }
}

/// Nothing of the sorted set and of the marks is left.
#[track_caller]
fn assert_clean(server: &Server) {
    assert_eq!(redis(server, "KEYS reminders*"), "");
}

/// Imports, and is killed when the queue has all messages and the sorted set all entries.
fn killed_before_the_removal(server: &Server, driver: &str) {
    let (url, told) = held(server, "take");
    let mut running = start(live(server, driver, &[]).env("DELAYLINE_URL", url));
    told.recv().unwrap();
    running.kill().unwrap();
    assert_eq!(ended(running).code, None);
}

fn is_moved(server: &Server) -> bool {
    redis(server, "EXISTS reminders") == "0"
}

fn work_off(server: &Server) {
    run(on(server, &["work", "--until-empty", "--exec", "true"])).code(0);
}

#[test]
fn entries_are_moved_as_producers_add_them() {
    for driver in DRIVERS {
        let server = Server::start();
        redis(&server, "ZADD reminders 0 early");
        let running = start(&mut live(&server, driver, &[]));
        wait_until("a first move", || is_moved(&server));
        redis(&server, &format!("ZADD reminders 0 early {LATER} late"));
        wait_until("a second move", || is_moved(&server));
        assert_eq!(waiting(&server), expected(&[("early", 0, 20), ("late", LATER * 1_000, 20)]));
        // A new time for a moved entry.
        redis(&server, &format!("ZADD reminders {} late", LATER + 60));
        wait_until("a third move", || is_moved(&server));
        let all = [("early", 0, 20), ("late", (LATER + 60) * 1_000, 20)];
        wait_until("the new time", || waiting(&server) == expected(&all));
        assert_counts(&stopped(running), &[("created", 2), ("updated", 1), ("duplicate", 1)]);
        assert_clean(&server);
    }
}

#[test]
fn what_is_added_again_after_it_was_handled_is_delivered_again() {
    for driver in DRIVERS {
        let server = Server::start();
        let running = start(&mut live(&server, driver, &[]));
        for times in 1..=3 {
            // With the same score.
            redis(&server, "ZADD reminders 0 user-7");
            wait_until("a move", || is_moved(&server) && count(&server, "ready") == 1);
            work_off(&server);
            assert_eq!(count(&server, "acked_total"), times);
        }
        assert_counts(&stopped(running), &[("created", 3)]);
        assert_clean(&server);
    }
}

#[test]
fn a_kill_before_the_removal_loses_nothing_and_doubles_nothing() {
    for driver in DRIVERS {
        let server = Server::start();
        redis(&server, &format!("ZADD reminders {LATER} user-7"));
        killed_before_the_removal(&server, driver);
        assert_eq!(redis(&server, "ZCARD reminders"), "1");
        assert_eq!(count(&server, "scheduled"), 1);
        // Another kind of import would not know which entries were sent.
        let plain = ["import", "zset", "reminders", "--unit", "s", "--yes"];
        let told = run(on(&server, &plain)).code(2).stderr;
        assert!(told.contains("reminders:delayline-import"), "{told}");
        assert_counts(&moved(&server, driver, &[], 0), &[("duplicate", 1)]);
        assert_eq!(waiting(&server), expected(&[("user-7", LATER * 1_000, 20)]));
        assert_clean(&server);
        run(on(&server, &plain)).code(0);
    }
}

#[test]
fn kills_at_any_point_lose_nothing_and_double_nothing() {
    const ROUNDS: u64 = 8;
    const EACH: u64 = 400;
    let server = Server::builder().append_only("always").start();
    for round in 0..ROUNDS {
        let entries: String = (0..EACH).map(|n| format!(" {LATER} m-{round}-{n}")).collect();
        redis(&server, &format!("ZADD reminders{entries}"));
        let driver = DRIVERS[usize::try_from(round / 2 % 2).unwrap()];
        let before = count(&server, "enqueued_total");
        let mut running = start(&mut live(&server, driver, &[]));
        wait_until("something is sent", || count(&server, "enqueued_total") > before);
        if round % 2 == 0 {
            running.kill().unwrap();
            ended(running);
        } else {
            // A supervisor starts it again.
            server.kill();
            let code = ended(running).code;
            assert!(matches!(code, Some(3 | 4)), "{code:?}");
            server.restart();
        }
    }
    moved(&server, "redis", &[], 0);
    assert_eq!(count(&server, "enqueued_total"), ROUNDS * EACH);
    assert_eq!(count(&server, "scheduled"), ROUNDS * EACH);
    assert_clean(&server);
}

#[test]
fn what_changed_while_an_import_was_dead_is_moved_as_it_is() {
    for driver in DRIVERS {
        for (change, counts, left) in [
            (format!("ZADD reminders {} user-7", LATER + 60), ("updated", 1), Some(LATER + 60)),
            ("ZREM reminders user-7".to_owned(), ("withdrawn", 1), None),
        ] {
            let server = Server::start();
            redis(&server, &format!("ZADD reminders {LATER} user-7"));
            killed_before_the_removal(&server, driver);
            redis(&server, &change);
            assert_counts(&moved(&server, driver, &[], 0), &[counts]);
            let left: Vec<_> = left.map(|at| ("user-7", at * 1_000, 20)).into_iter().collect();
            assert_eq!(waiting(&server), expected(&left));
            assert_clean(&server);
        }
    }
}

#[test]
fn what_was_sent_before_a_kill_and_handled_is_not_delivered_again() {
    for driver in DRIVERS {
        let server = Server::start();
        redis(&server, "ZADD reminders 0 user-7");
        killed_before_the_removal(&server, driver);
        work_off(&server);
        assert_counts(&moved(&server, driver, &[], 0), &[("duplicate", 1)]);
        assert_eq!((count(&server, "ready"), count(&server, "acked_total")), (0, 1));
        assert_clean(&server);
    }
}

#[test]
fn what_changes_in_the_moment_of_its_move_is_moved_as_it_is() {
    for driver in DRIVERS {
        let server = Server::start();
        let (first, second) = (LATER * 1_000, (LATER + 60) * 1_000);
        let interrupted = |times, command| {
            let url = interrupted(&server, "take", times, command);
            let mut import = live(&server, driver, &["--until-empty"]);
            import.env("DELAYLINE_URL", url);
            run(import).code(0).lines().remove(0)
        };
        // Another score: its message gets the other time.
        redis(&server, &format!("ZADD reminders {LATER} a"));
        let counts = interrupted(1, |_| format!("ZADD reminders {} a", LATER + 60));
        assert_counts(&counts, &[("created", 1), ("updated", 1)]);
        assert_eq!(waiting(&server), expected(&[("a", second, 20)]));
        // Another member.
        redis(&server, &format!("ZADD reminders {LATER} b"));
        let counts = interrupted(3, |n| format!("ZADD reminders {LATER} c-{n}"));
        assert_counts(&counts, &[("created", 4)]);
        let all = ["b", "c-0", "c-1", "c-2"].map(|member| (member, first, 20));
        assert_eq!(waiting(&server), expected(&[&[("a", second, 20)], &all[..]].concat()));
        // Its producer has cancelled it.
        redis(&server, &format!("ZADD reminders {LATER} d"));
        let counts = interrupted(1, |_| "ZREM reminders d".to_owned());
        assert_counts(&counts, &[("created", 1), ("withdrawn", 1)]);
        assert_eq!(waiting(&server).len(), 5);
        assert_clean(&server);
    }
}

#[test]
fn what_comes_again_after_its_withdrawal_is_moved() {
    let server = Server::start();
    redis(&server, &format!("ZADD reminders {LATER} user-7"));
    killed_before_the_removal(&server, "redis");
    redis(&server, "ZREM reminders user-7");
    // It is killed when the message is cancelled, and its entry still has a mark.
    let (url, told) = held(&server, "forget");
    let mut running = start(live(&server, "redis", &[]).env("DELAYLINE_URL", url));
    told.recv().unwrap();
    running.kill().unwrap();
    ended(running);
    assert_eq!(count(&server, "scheduled"), 0);
    redis(&server, &format!("ZADD reminders {LATER} user-7"));
    assert_counts(&moved(&server, "redis", &[], 0), &[("created", 1)]);
    assert_eq!(waiting(&server), expected(&[("user-7", LATER * 1_000, 20)]));
    assert_clean(&server);
}

#[test]
fn new_entries_before_those_that_stay_are_moved() {
    let server = Server::start();
    for n in 0..100 {
        redis(&server, &format!("ZADD reminders {LATER} no-payload-{n}"));
    }
    for n in 0..100 {
        redis(&server, &format!("HSET data early-{n} payload"));
    }
    // They come after the first page is read, and move its entries to the second one.
    let early: String = (0..100).map(|n| format!(" 0 early-{n}")).collect();
    EARLY.set(format!("ZADD reminders{early}")).unwrap();
    static EARLY: OnceLock<String> = OnceLock::new();
    let url = interrupted(&server, "199", 1, |_| EARLY.get().unwrap().clone());
    let mut import = live(&server, "redis", &["--payloads", "data"]);
    let running = start(import.env("DELAYLINE_URL", url));
    wait_until("all new ones are moved", || count(&server, "enqueued_total") == 100);
    send_signal(&running, "-TERM");
    let counts = ended(running).code(1).lines().remove(0);
    assert_counts(&counts, &[("created", 100), ("left", 100)]);
}

#[test]
fn payloads_of_a_hash_go_with_their_ids() {
    for driver in DRIVERS {
        let server = Server::start();
        redis(&server, &format!("ZADD reminders {LATER} r-1\nHSET data r-1 one r-2 two"));
        let url = interrupted(&server, "take", 1, |_| "HSET data r-1 another".to_owned());
        let mut import = live(&server, driver, &["--payloads", "data", "--until-empty"]);
        import.env("DELAYLINE_URL", url);
        let counts = run(import).code(0).lines().remove(0);
        assert_counts(&counts, &[("created", 1), ("updated", 1)]);
        assert_eq!(waiting(&server), expected(&[("another", LATER * 1_000, 20)]));
        assert_eq!(redis(&server, "HKEYS data"), "r-2");
        run(on(&server, &["get", "r-1"])).code(0);
        assert_clean(&server);
    }
}

#[test]
fn what_cannot_be_moved_stays_and_is_moved_once_it_can() {
    let server = Server::start();
    for n in 0..250 {
        redis(&server, &format!("ZADD reminders {} id-{n}", LATER + n));
        // Every fifth has no payload.
        if n % 5 != 0 {
            redis(&server, &format!("HSET data id-{n} payload-{n}"));
        }
    }
    let large = "x".repeat(16 * 1_024 + 1);
    redis(&server, &format!("ZADD reminders 1800000000000 ms {LATER} large\nHSET data ms x"));
    redis(&server, &format!("HSET data large {large}"));
    let flags = ["--payloads", "data"];
    for created in [200, 0] {
        let counts = moved(&server, "redis", &flags, 1);
        assert_counts(&counts, &[("created", created), ("left", 52)]);
        assert_eq!(counts["left_because"]["it has no payload"], 50);
        assert_eq!(redis(&server, "ZCARD reminders"), "52");
        // It ended on its own, with nothing on its way.
        assert_eq!(redis(&server, "EXISTS reminders:delayline-import"), "0");
    }
    let marks = || redis(&server, "EXISTS reminders:delayline-import");
    let running = start(&mut live(&server, "fred", &flags));
    // Only its score is wrong, so it has a mark, which goes with it.
    wait_until("a look", || marks() == "1");
    redis(&server, "ZREM reminders ms");
    wait_until("what is gone is forgotten", || marks() == "0");
    redis(&server, &format!("HSET data id-0 zero large small\nZADD reminders {LATER} ms"));
    wait_until("what can be moved is", || redis(&server, "ZCARD reminders") == "49");
    send_signal(&running, "-TERM");
    let counts = ended(running).code(1).lines().remove(0);
    assert_counts(&counts, &[("created", 3), ("left", 49)]);
    assert_eq!(count(&server, "scheduled"), 203);
}

#[test]
fn what_cannot_be_followed_is_refused_before_anything_is_sent() {
    let server = Server::builder().acl_user("mover on >pw ~* +@all -zrem").start();
    redis(
        &server,
        "SADD a-set x\nZADD reminders 0 a\nZADD marked 0 a\nSET marked:delayline-import x",
    );
    let zset = |key, flags: &[&str]| {
        let flags = [&["import", "zset", key, "--unit", "s", "--live", "--until-empty"], flags];
        on(&server, &flags.concat())
    };
    let other = Server::start();
    let url = other.url();
    for (key, flags, code, text) in [
        ("a-set", &["--yes"][..], 2, "the key a-set of the old queue is a set, not a zset"),
        ("marked", &["--yes"], 2, "marked:delayline-import of the old queue is a string"),
        ("reminders", &["--yes", "--from", &url], 2, "on the queue's own server"),
        ("reminders", &["--yes", "--dry-run"], 2, "cannot be used with"),
        ("reminders", &["--yes", "--interval", "1ms"], 2, "from 10ms to 1h"),
        ("reminders", &["--yes", "--interval", "soon"], 2, "soon"),
        ("reminders", &["--yes", "--payloads", "a-set"], 2, "is a set, not a hash"),
        ("reminders", &[], 2, "and entries added from now on, from reminders"),
    ] {
        let told = run(zset(key, flags)).code(code).stderr;
        assert!(told.contains(text), "{key} {flags:?}: {told}");
    }
    for (url, text) in [
        ("redis-cluster://h:1".to_owned(), "without Sentinel or Cluster"),
        ("redis-sentinel://h:1/service".to_owned(), "without Sentinel or Cluster"),
        ("memory:".to_owned(), "a queue in memory is gone when this command ends"),
    ] {
        let mut command = zset("reminders", &["--yes"]);
        command.env("DELAYLINE_URL", &url);
        let told = run(command).code(2).stderr;
        assert!(told.contains(text), "{url}: {told}");
    }
    let mut command = zset("reminders", &["--yes"]);
    command.env("DELAYLINE_URL", server.url_with_login("mover", "pw"));
    let told = run(command).code(3).stderr;
    assert!(told.contains("the old queue: ") && told.contains("ACL GETUSER"), "{told}");
    run(bare(&["import", "rsmq", "orders", "--live"])).code(2);
    run(bare(&["import", "zset", "k", "--unit", "s", "--until-empty"])).code(2);
    assert_eq!(redis(&server, "ZCARD reminders"), "1");
    assert_eq!(waiting(&server), []);
    // A wrong unit.
    let many: String = (0..10_100).map(|n| format!(" 1800000000000 m-{n}")).collect();
    redis(&server, &format!("ZADD many{many}"));
    let told = run(zset("many", &["--yes"])).code(1).stderr;
    assert!(told.contains("more than 10000 entries cannot be moved"), "{told}");
    assert_eq!(redis(&server, "ZCARD many"), "10100");
}
