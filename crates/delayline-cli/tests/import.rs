//! `delayline import`, from data as other queues write it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

mod support;

use std::process::Command;

use delayline_test_server::{Reply, Server};
use serde_json::{Value, json};
use support::{DRIVERS, bare, on, run};

/// In 2027, in seconds.
const LATER: u64 = 1_800_000_000;

/// Executes Redis commands, one a line, and returns the reply to the last one as text.
fn redis(server: &Server, commands: &str) -> String {
    let mut last = String::new();
    for line in commands.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let words: Vec<&str> = line.split(' ').collect();
        last = text(&server.command(&words));
    }
    last
}

fn text(reply: &Reply) -> String {
    match reply {
        Reply::Int(number) => number.to_string(),
        Reply::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Reply::Array(replies) => replies.iter().map(text).collect::<Vec<_>>().join(" "),
        _ => String::new(),
    }
}

fn import(server: &Server, driver: &str, args: &[&str]) -> Command {
    let args = [&["--driver", driver, "import"], args].concat();
    on(server, &args)
}

/// Imports, and returns the counts.
#[track_caller]
fn imported(server: &Server, driver: &str, args: &[&str], code: i32) -> Value {
    let args = [args, &["--yes", "--json"]].concat();
    run(import(server, driver, &args)).code(code).lines().remove(0)
}

/// Payload, due time in ms and `max_failures` of each message that waits, sorted.
fn waiting(server: &Server) -> Vec<(String, u64, u64)> {
    let mut messages = Vec::new();
    for state in ["scheduled", "ready"] {
        for page in run(on(server, &["list", "--state", state, "--all", "--json"])).code(0).lines()
        {
            for message in page["messages"].as_array().unwrap() {
                let id = message["id"].as_str().unwrap();
                let whole = run(on(server, &["get", id, "--json"])).code(0).lines().remove(0);
                let due: jiff::Timestamp = whole["due"].as_str().unwrap().parse().unwrap();
                messages.push((
                    whole["payload"]
                        .as_str()
                        .map_or_else(|| whole["payload"].to_string(), str::to_owned),
                    u64::try_from(due.as_millisecond()).unwrap(),
                    whole["max_failures"].as_u64().unwrap(),
                ));
            }
        }
    }
    messages.sort();
    messages
}

fn expected(messages: &[(&str, u64, u64)]) -> Vec<(String, u64, u64)> {
    messages.iter().map(|(payload, due, most)| ((*payload).to_owned(), *due, *most)).collect()
}

#[test]
fn a_sorted_set_is_moved_with_its_due_times() {
    for driver in DRIVERS {
        let server = Server::start();
        redis(&server, &format!("ZADD reminders {LATER} one {LATER}.0004 two 0 three"));
        let flags = ["zset", "reminders", "--unit", "s"];
        let dry = [&flags[..], &["--dry-run", "--json"]].concat();
        let counts = run(import(&server, driver, &dry)).code(0).lines().remove(0);
        assert_eq!((&counts["created"], &counts["dry_run"]), (&json!(3), &json!(true)));
        assert_eq!(redis(&server, "ZCARD reminders"), "3");
        assert_eq!(waiting(&server), []);

        let counts = imported(&server, driver, &flags, 0);
        assert_eq!((&counts["created"], &counts["left"]), (&json!(3), &json!(0)));
        let later = LATER * 1000;
        let all = expected(&[("one", later, 20), ("three", 0, 20), ("two", later + 1, 20)]);
        assert_eq!(waiting(&server), all);
        assert_eq!(redis(&server, "EXISTS reminders"), "0");
        // An import that has not got as far as removing them is repeated.
        redis(&server, &format!("ZADD reminders {LATER} one"));
        let counts = imported(&server, driver, &flags, 0);
        assert_eq!((&counts["created"], &counts["duplicate"]), (&json!(0), &json!(1)));
        assert_eq!(waiting(&server), all);
        assert_eq!(imported(&server, driver, &flags, 0)["created"], 0, "nothing is left");
    }
}

#[test]
fn more_than_a_page_is_moved_and_what_cannot_be_is_left() {
    let server = Server::start();
    for n in 0..250 {
        redis(&server, &format!("ZADD jobs {} id-{n}", LATER * 1000 + n));
        // Every fifth has no payload.
        if n % 5 != 0 {
            redis(&server, &format!("HSET jobs:data id-{n} payload-{n}"));
        }
    }
    redis(&server, "ZADD jobs 1800000000 in-seconds\nHSET jobs:data in-seconds x");
    // The queue has another message of this id.
    run(on(&server, &["send", "--id", "id-1", "--payload", "another", "--delay", "1h"])).code(0);
    let flags = ["zset", "jobs", "--unit", "ms", "--payloads", "jobs:data"];
    for created in [199, 0] {
        let counts = imported(&server, "redis", &flags, 1);
        assert_eq!((&counts["created"], &counts["left"]), (&json!(created), &json!(52)));
        assert_eq!(counts["left_because"]["it has no payload"], 50);
        assert_eq!(counts["left_because"]["the queue knows its id with different content"], 1);
        assert_eq!(redis(&server, "ZCARD jobs"), "52");
        assert_eq!(redis(&server, "HLEN jobs:data"), "2");
    }
    let told = run(import(&server, "redis", &[&flags[..], &["--yes"]].concat())).code(1).stderr;
    assert!(told.contains("left 50: it has no payload"), "{told}");
    assert!(told.contains("left in-seconds: its score is before the year 1973"), "{told}");
}

#[test]
fn a_queue_of_hdt3213_is_moved_with_its_retries() {
    for (driver, flags, queue) in
        [("redis", &[][..], "dp:orders"), ("fred", &["--hash-tag"], "{dp:orders}")]
    {
        let server = Server::start();
        redis(
            &server,
            &format!(
                "ZADD {queue}:pending {LATER} a {LATER} expired
                 RPUSH {queue}:ready b
                 RPUSH {queue}:retry c
                 ZADD {queue}:unack {} d
                 SET {queue}:msg:a A
                 SET {queue}:msg:b B
                 SET {queue}:msg:c C
                 SET {queue}:msg:d D
                 HSET {queue}:retry:cnt a 3 b 0",
                LATER + 5,
            ),
        );
        let args = [&["hdt3213", "orders"], flags].concat();
        let counts = imported(&server, driver, &args, 1);
        assert_eq!((&counts["created"], &counts["left"]), (&json!(4), &json!(1)));
        let later = LATER * 1000;
        let all = [("A", later, 4), ("B", 0, 1), ("C", 0, 20), ("D", later + 5_000, 20)];
        assert_eq!(waiting(&server), expected(&all));
        let left = redis(&server, "KEYS *dp:orders*");
        assert!(
            left.contains("pending") && !left.contains("msg") && !left.contains("retry"),
            "{left}"
        );
    }
}

#[test]
fn an_rdelayedqueue_is_moved_in_both_of_its_layouts() {
    for (driver, pack) in [
        ("redis", "struct.pack('Bc0Lc0',8,'\\1\\2\\3\\4\\5\\6\\7\\8',#ARGV[2],ARGV[2])"),
        ("fred", "struct.pack('dLc0',1.5,#ARGV[2],ARGV[2])"),
    ] {
        let server = Server::start();
        let offer = format!(
            "local m={pack};redis.call('ZADD',KEYS[1],ARGV[1],m);redis.call('RPUSH',KEYS[2],m)"
        );
        let (timeouts, list) =
            ("redisson_delay_queue_timeout:{orders}", "redisson_delay_queue:{orders}");
        let due = (LATER * 1000).to_string();
        server.command(&["EVAL", &offer, "2", timeouts, list, &due, "an-order"]);
        assert_eq!(redis(&server, &format!("LLEN {list}")), "1");
        assert_eq!(imported(&server, driver, &["redisson", "orders"], 0)["created"], 1);
        assert_eq!(waiting(&server), expected(&[("an-order", LATER * 1000, 20)]));
        assert_eq!(redis(&server, &format!("EXISTS {timeouts} {list}")), "0");
    }
}

#[test]
fn queues_of_rsmq_and_apalis_are_moved() {
    for driver in DRIVERS {
        let server = Server::start();
        let later = LATER * 1000;
        redis(
            &server,
            &format!(
                "ZADD rsmq:orders {later} dk1
                 HSET rsmq:orders:Q vt 30 totalsent 1 dk1 first dk1:rc 2 dk1:fr 1700000000000"
            ),
        );
        assert_eq!(imported(&server, driver, &["rsmq", "orders"], 0)["created"], 1);
        assert_eq!(waiting(&server), expected(&[("first", later, 20)]));
        assert_eq!(redis(&server, "HKEYS rsmq:orders:Q"), "vt totalsent");

        let server = Server::start();
        redis(
            &server,
            &format!(
                "ZADD texts:scheduled {LATER} t1
                 RPUSH texts:active t2
                 ZADD texts:workers 1700000000 w1
                 SADD texts:inflight:w1 t3
                 HSET texts:data t1 1 t2 2 t3 3 done 4
                 HSET texts:meta:t1 attempts 5 max_attempts 25 status Pending
                 HSET texts:meta:t3 attempts 30 max_attempts 25"
            ),
        );
        assert_eq!(imported(&server, driver, &["apalis", "texts"], 0)["created"], 3);
        let all = [("1", later, 20), ("2", 0, 20), ("3", 0, 1)];
        assert_eq!(waiting(&server), expected(&all));
        assert_eq!(redis(&server, "HKEYS texts:data"), "done");
        assert_eq!(redis(&server, "KEYS texts:meta:*"), "");
    }
}

#[test]
fn an_import_asks_first_and_refuses_what_is_no_old_queue() {
    let server = Server::start();
    redis(&server, "SET text x\nHSET hash a b\nZADD jobs 0 a");
    let zset = |key| run(import(&server, "redis", &["zset", key, "--unit", "s", "--yes"]));
    let told = zset("text").code(2).stderr;
    assert!(told.contains("the key text of the old queue is a string, not a zset"), "{told}");
    zset("hash").code(2);
    zset("missing").code(0);
    // Nobody can answer.
    let told = run(import(&server, "redis", &["zset", "jobs", "--unit", "s"])).code(2).stderr;
    assert!(told.contains("move 1 message from jobs to the queue orders"), "{told}");
    assert!(told.contains("--yes"), "{told}");
    assert_eq!(redis(&server, "ZCARD jobs"), "1");
    // The payloads are not in a hash.
    let flags = ["zset", "jobs", "--unit", "s", "--payloads", "text", "--yes"];
    run(import(&server, "fred", &flags)).code(2);
    run(import(&server, "redis", &["zset", "jobs"])).code(2);
    for cluster in ["redis-cluster://h:1", "redis-sentinel://h:1/service"] {
        let flags = ["zset", "jobs", "--unit", "s", "--from", cluster];
        let told = run(import(&server, "redis", &flags)).code(2).stderr;
        assert!(told.contains("must be on a single server"), "{told}");
    }
}

#[test]
fn the_old_queue_may_be_on_another_server_whose_password_is_not_shown() {
    let old = Server::builder().password("a secret").start();
    let new = Server::start();
    let url = old.url_with_login("default", "a secret");
    for driver in DRIVERS {
        old.command(&["ZADD", "jobs", "0", driver]);
        let mut command = import(&new, driver, &["zset", "jobs", "--unit", "s", "--yes"]);
        command.env("DELAYLINE_FROM_URL", &url);
        run(command).code(0);
        assert_eq!(redis(&old, "EXISTS jobs"), "0");
    }
    assert_eq!(waiting(&new), expected(&[("fred", 0, 20), ("redis", 0, 20)]));
    let wrong = old.url_with_login("default", "the wrong one");
    let mut refused = import(&new, "redis", &["zset", "jobs", "--unit", "s", "--yes"]);
    refused.env("DELAYLINE_FROM_URL", wrong);
    let refused = run(refused).code(3);
    assert!(!refused.stderr.contains("the wrong one"), "{}", refused.stderr);
    let help = run(bare(&["import", "zset", "--help"])).code(0).stdout;
    assert!(!help.contains("a secret"), "{help}");
}
