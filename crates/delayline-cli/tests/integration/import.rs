//! `delayline import`, from data as other queues write it.

use std::io::Write as _;
use std::process::Command;

use crate::support::old::{LATER, expected, interrupted, redis, waiting};
use crate::support::{DRIVERS, bare, count, on, run};
use delayline_test_server::Server;
use serde_json::{Value, json};

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
    for (driver, flags, queue, bodies) in [
        ("redis", &[][..], "dp:orders", "dp:orders"),
        ("fred", &["--hash-tag"], "{dp:orders}", "{dp:orders}"),
        ("redis", &["--prefix", "shop"], "shop:orders", "dp:orders"),
        ("redis", &["--prefix=shop", "--hash-tag"], "{shop:orders}", "{dp:orders}"),
    ] {
        let server = Server::start();
        redis(
            &server,
            &format!(
                "ZADD {queue}:pending {LATER} a {LATER} expired
                 RPUSH {queue}:ready b
                 RPUSH {queue}:retry c
                 ZADD {queue}:unack {} d 0 e 0 f
                 SET {bodies}:msg:a A
                 SET {bodies}:msg:b B
                 SET {bodies}:msg:c C
                 SET {bodies}:msg:d D
                 SET {bodies}:msg:e E
                 SET {bodies}:msg:f F
                 HSET {queue}:retry:cnt a 3 b 0 c 2 d 3 e 0",
                LATER + 5,
            ),
        );
        let args = [&["hdt3213", "orders"], flags].concat();
        let counts = imported(&server, driver, &args, 1);
        assert_eq!((&counts["created"], &counts["left"]), (&json!(4), &json!(3)));
        let reasons = json!({ "it has no payload": 1, "it has no retries left": 2 });
        assert_eq!(counts["left_because"], reasons);
        let later = LATER * 1000;
        let all = [("A", later, 4), ("B", 0, 1), ("C", 0, 3), ("D", later + 5_000, 3)];
        assert_eq!(waiting(&server), expected(&all));
        let left = format!("{queue}:pending {queue}:unack {queue}:retry:cnt");
        let left = format!("EXISTS {left} {bodies}:msg:e {bodies}:msg:f");
        assert_eq!(redis(&server, &left), "5");
        assert_eq!(redis(&server, "KEYS *:orders*").split(' ').count(), 5);
    }
}

#[test]
fn lists_of_hdt3213_keep_their_order() {
    let server = Server::start();
    let is_left = |n: &u32| n.is_multiple_of(5);
    for n in 10..50 {
        // The consumer takes the last one first.
        redis(&server, &format!("LPUSH dp:orders:ready id-{n}"));
        if !is_left(&n) {
            redis(&server, &format!("SET dp:orders:msg:id-{n} x"));
        }
    }
    assert_eq!(imported(&server, "redis", &["hdt3213", "orders"], 1)["created"], 32);
    let list = run(on(&server, &["list", "--state", "ready", "--all", "--json"])).code(0).lines();
    let ids: Vec<_> = list.iter().map(|message| message["id"].as_str().unwrap()).collect();
    let all: Vec<_> = (10..50).filter(|n| !is_left(n)).map(|n| format!("id-{n}")).collect();
    assert_eq!(ids, all);
    let left = "id-45 id-40 id-35 id-30 id-25 id-20 id-15 id-10";
    assert_eq!(redis(&server, "LRANGE dp:orders:ready 0 -1"), left);
}

#[test]
fn an_rdelayedqueue_is_moved_in_both_of_its_layouts() {
    let with_byte = "struct.pack('Bc0Lc0',8,'\\1\\2\\3\\4\\5\\6\\7\\8',#ARGV[2],ARGV[2])";
    let without = "struct.pack('dLc0',1.5,#ARGV[2],ARGV[2])";
    for (driver, pack, name, tagged) in [
        ("redis", with_byte, "orders", "{orders}"),
        ("fred", without, "{shop}:orders", "{shop}:orders"),
    ] {
        let server = Server::start();
        let offer = format!(
            "local m={pack};redis.call('ZADD',KEYS[1],ARGV[1],m);redis.call('RPUSH',KEYS[2],m)"
        );
        let [timeouts, list] = ["redisson_delay_queue_timeout", "redisson_delay_queue"]
            .map(|key| format!("{key}:{tagged}"));
        let due = (LATER * 1000).to_string();
        server.command(&["EVAL", &offer, "2", &timeouts, &list, &due, "an-order"]);
        assert_eq!(redis(&server, &format!("LLEN {list}")), "1");
        assert_eq!(imported(&server, driver, &["redisson", name], 0)["created"], 1);
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

        for protocol in ["", "?protocol=resp3"] {
            let server = Server::start();
            redis(
                &server,
                &format!(
                    "ZADD texts:scheduled {LATER}.5 t1
                     RPUSH texts:active t2
                     ZADD texts:workers 1700000000 w1
                     SADD texts:inflight:w1 t3
                     HSET texts:data t1 1 t2 2 t3 3 done 4
                     HSET texts:meta:t1 attempts 5 max_attempts 25 status Pending
                     HSET texts:meta:t3 attempts 30 max_attempts 25"
                ),
            );
            let from = format!("{}{protocol}", server.url());
            let counts = imported(&server, driver, &["apalis", "texts", "--from", &from], 0);
            assert_eq!(counts["created"], 3);
            let all = [("1", later + 500, 20), ("2", 0, 20), ("3", 0, 1)];
            assert_eq!(waiting(&server), expected(&all));
            assert_eq!(redis(&server, "HKEYS texts:data"), "done");
            assert_eq!(redis(&server, "KEYS texts:meta:*"), "");
        }
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
    // There is no terminal to answer on.
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

#[test]
fn a_queue_in_memory_takes_nothing_and_shows_what_would_come() {
    let old = Server::start();
    redis(&old, "ZADD jobs 0 a");
    let url = old.url();
    let args = ["--url=memory:", "--queue=q", "import", "zset", "jobs", "--unit", "s", "--from"];
    let told = run(bare(&[&args[..], &[url.as_str(), "--yes"]].concat())).code(2).stderr;
    assert!(told.contains("a queue in memory is gone when this command ends"), "{told}");
    assert_eq!(redis(&old, "ZCARD jobs"), "1");
    let dry = [&args[..], &[url.as_str(), "--dry-run", "--json"]].concat();
    assert_eq!(run(bare(&dry)).code(0).lines()[0]["created"], 1);
    assert_eq!(redis(&old, "ZCARD jobs"), "1");
}

#[test]
fn keys_of_queues_and_urls_without_a_server_are_refused() {
    let server = Server::start();
    let urgent = ["--id", "a", "--payload", "x", "--delay", "1h", "--priority", "urgent"];
    crate::support::send(&server, &urgent);
    let (own, hash) = ("delayline:{orders}:index", "delayline:{orders}:records");
    for old in [
        &["zset", own, "--unit", "ms", "--yes"][..],
        &["zset", own, "--unit", "ms", "--dry-run"],
        &["zset", own, "--unit", "ms", "--live", "--until-empty", "--yes"],
        &["zset", "jobs", "--unit", "ms", "--payloads", hash, "--yes"],
        &["rsmq", "{orders}:index", "--namespace", "delayline", "--yes"],
    ] {
        let refused = run(import(&server, "redis", old)).code(2).stderr;
        assert!(refused.contains("belongs to a queue of Delayline"), "{old:?}: {refused}");
    }
    run(on(&server, &["check"])).code(0);
    assert_eq!(waiting(&server).len(), 1);

    // Nothing is created before the old queue is known.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new");
    let url = format!("file:{}", path.display());
    let old = ["import", "zset", "jobs", "--unit", "s", "--yes"];
    let into =
        |from: &[&str]| run(bare(&[&["--url", &url, "--queue", "q"], &old[..], from].concat()));
    for from in [&[][..], &["--from", &url], &["--from", "memory:"], &["--from", "jobs"]] {
        let refused = into(from).code(2).stderr;
        assert!(refused.starts_with("delayline: the old queue: "), "{from:?}: {refused}");
        assert!(refused.contains("--from names its Redis server"), "{refused}");
    }
    assert!(!path.exists());
    let dry = |queue: &str| {
        let target = ["--url", &url, "--queue", queue];
        run(bare(&[&target, &old[..5], &["--dry-run", "--from", &server.url()]].concat()))
    };
    assert!(dry("q").code(0).stderr.starts_with("no messages in jobs\n"));
    assert!(dry("a b").code(2).stderr.contains("queue name"));
    assert!(!path.exists());
    std::fs::create_dir(&path).unwrap();
    dry("q").code(0);
    std::fs::remove_dir(&path).unwrap();
    let none = into(&["--from", &server.url()]).code(0).stderr;
    assert!(none.starts_with("no messages in jobs\n"), "{none}");
    redis(&server, "ZADD jobs 0 a");
    assert!(into(&["--from", &server.url()]).code(0).stderr.starts_with("created 1, "));
}

#[test]
fn a_dry_run_fails_if_this_queue_cannot_be_opened() {
    let (old, new) = (Server::start(), Server::builder().password("a secret").start());
    redis(&old, "ZADD jobs 0 a");
    let url = old.url();
    let flags = ["zset", "jobs", "--unit", "s", "--from", url.as_str(), "--dry-run"];
    let target = new.url_with_login("default", "the wrong one");
    let mut command = import(&new, "redis", &flags);
    command.env("DELAYLINE_URL", target);
    let told = run(command).code(3).stderr;
    assert!(!told.contains("would import"), "{told}");
}

#[test]
fn what_changes_nothing_stores_no_number_of_shards() {
    let server = Server::start();
    redis(&server, "ZADD jobs 0 a");
    let zset = ["zset", "jobs", "--unit", "s"];
    for flags in [&["--shards", "61", "--dry-run"][..], &["--shards", "61"]] {
        // Without --yes, there is no terminal to answer on.
        let code = if flags.contains(&"--dry-run") { 0 } else { 2 };
        run(import(&server, "redis", &[&zset, flags].concat())).code(code);
    }
    run(on(&server, &["--queue", "misspelt", "--shards", "61", "check"])).code(1);
    assert_eq!(redis(&server, "KEYS delayline*"), "");
    run(import(&server, "redis", &[&zset[..], &["--shards", "2", "--yes"]].concat())).code(0);
    let flags = [&zset[..], &["--shards", "61", "--dry-run"]].concat();
    let told = run(import(&server, "redis", &flags)).code(3).stderr;
    assert!(told.contains("2 shards"), "{told}");
}

#[test]
fn an_authority_is_for_the_place_that_is_encrypted() {
    let (plain, encrypted) = (Server::start(), Server::builder().tls().start());
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(encrypted.ca_pem().as_bytes()).unwrap();
    let authority = ["--tls-ca", file.path().to_str().unwrap()];
    run(on(&plain, &["send", "--id", "a", "--delay", "1h", "--payload", "1"])).code(0);
    for (from, to) in [(&plain, &encrypted), (&encrypted, &plain)] {
        let url = from.url();
        let moves = ["import", "queue", "orders", "--from", &url, "--yes"];
        let printed = run(on(to, &[&authority[..], &moves].concat())).code(0);
        assert!(printed.stderr.contains("created 1"), "{}", printed.stderr);
    }
    let url = plain.url();
    let moves = ["import", "queue", "orders", "--from", &url, "--yes"];
    run(on(&Server::start(), &[&authority[..], &moves].concat())).code(2);
}

#[test]
fn a_member_that_comes_again_with_another_score_is_another_message() {
    let server = Server::start();
    let flags = ["zset", "reminders", "--unit", "s"];
    // The last two are the first ones again.
    let scores = [LATER.to_string(), (LATER + 60).to_string(), "0".to_owned(), "-1".to_owned()];
    for (n, score) in scores.iter().chain([&scores[0], &scores[2]]).enumerate() {
        redis(&server, &format!("ZADD reminders {score} user-7"));
        let counts = imported(&server, "redis", &flags, 0);
        let expected = if n < scores.len() { (1, 0) } else { (0, 1) };
        assert_eq!(
            (&counts["created"], &counts["duplicate"]),
            (&json!(expected.0), &json!(expected.1)),
            "{score}"
        );
    }
    let later = LATER * 1000;
    let all = [0, 0, later, later + 60_000].map(|due| ("user-7", due, 20));
    assert_eq!(waiting(&server), expected(&all));
}

#[test]
fn payloads_of_entries_that_stay_are_not_printed() {
    let server = Server::start();
    let timeouts = "redisson_delay_queue_timeout:{orders}";
    redis(
        &server,
        &format!("ZADD reminders 1800000000000 hunter2\nZADD {timeouts} 1.5e12 hunter2"),
    );
    for (flags, name) in [
        (&["zset", "reminders", "--unit", "s"][..], "the entry with the score 1800000000000.0"),
        (
            &["zset", "reminders", "--unit", "s", "--live", "--until-empty"],
            "the entry with the score 1800000000000.0",
        ),
        (&["redisson", "orders"], "the entry with the score 1500000000000.0"),
    ] {
        let printed = run(import(&server, "redis", &[flags, &["--yes"]].concat())).code(1).stderr;
        assert!(printed.contains(&format!("left {name} and 7 bytes: ")), "{flags:?}: {printed}");
        assert!(!printed.contains("hunter2"), "{flags:?}: {printed}");
    }
    // Of an id that this queue will not deliver, the report has the id.
    let flags = ["zset", "jobs", "--unit", "s", "--yes"];
    let add = || redis(&server, &format!("ZADD jobs {LATER} hunter2"));
    add();
    run(import(&server, "redis", &flags)).code(0);
    let list = run(on(&server, &["list", "--all", "--json"])).code(0).lines().remove(0);
    let id = list["id"].as_str().unwrap();
    run(on(&server, &["cancel", id])).code(0);
    add();
    let printed = run(import(&server, "redis", &flags)).code(1).stderr;
    assert!(printed.contains(&format!("left {id}: ")), "{printed}");
}

#[test]
fn a_page_that_others_change_is_read_again() {
    let server = Server::start();
    redis(&server, &format!("ZADD jobs {LATER} a {LATER} b"));
    let url = interrupted(&server, "EXEC", 2, |n| format!("ZADD jobs {LATER} late-{n}"));
    let flags = ["zset", "jobs", "--unit", "s", "--from", url.as_str()];
    let counts = imported(&server, "redis", &flags, 0);
    assert_eq!((&counts["created"], &counts["duplicate"]), (&json!(4), &json!(0)));
    let due = LATER * 1000;
    let all = [("a", due, 20), ("b", due, 20), ("late-0", due, 20), ("late-1", due, 20)];
    assert_eq!(waiting(&server), expected(&all));
    assert_eq!(redis(&server, "EXISTS jobs"), "0");

    // A new payload, which was not read. The entry has another content now.
    redis(&server, &format!("ZADD jobs {LATER} c\nHSET data c old"));
    let url = interrupted(&server, "EXEC", 1, |_| "HSET data c new".to_owned());
    let flags = ["zset", "jobs", "--unit", "s", "--payloads", "data", "--from", url.as_str()];
    let counts = imported(&server, "redis", &flags, 1);
    assert_eq!(counts["left_because"]["the queue knows its id with different content"], 1);
    assert_eq!(redis(&server, "HGET data c"), "new");
}

#[test]
fn an_import_ends_if_the_old_queue_is_still_in_use() {
    let server = Server::start();
    redis(&server, &format!("ZADD jobs {LATER} a"));
    let url = interrupted(&server, "EXEC", usize::MAX, |n| format!("ZADD jobs {LATER} late-{n}"));
    let flags = ["zset", "jobs", "--unit", "s", "--yes", "--from", url.as_str()];
    let told = run(import(&server, "redis", &flags)).code(1).stderr;
    assert!(told.contains("created 11, duplicate 0, left 0"), "{told}");
    assert!(told.contains("other clients still change jobs of the old queue"), "{told}");
    assert!(told.contains("stop the old producers and consumers, then import again"), "{told}");
    assert_eq!(redis(&server, "ZCARD jobs"), "12");
    // They have stopped.
    let counts = imported(&server, "redis", &["zset", "jobs", "--unit", "s"], 0);
    assert_eq!((&counts["created"], &counts["duplicate"]), (&json!(1), &json!(11)));
    assert_eq!(count(&server, "scheduled"), 12);
    assert_eq!(redis(&server, "EXISTS jobs"), "0");
}

#[test]
fn a_connection_lost_before_the_removal_leaves_messages_in_both_queues() {
    let server = Server::start();
    redis(&server, &format!("ZADD jobs {LATER} a"));
    // All but one.
    let url = interrupted(&server, "EXEC", 1, |_| "CLIENT KILL TYPE normal SKIPME yes".to_owned());
    let flags = ["zset", "jobs", "--unit", "s", "--yes", "--from", url.as_str()];
    let told = run(import(&server, "redis", &flags)).code(4).stderr;
    assert!(told.contains("created 1, duplicate 0, left 0"), "{told}");
    assert!(told.contains("the old queue: "), "{told}");
    assert!(told.contains("in both queues; import again before the old consumers run"), "{told}");
    assert_eq!(redis(&server, "ZCARD jobs"), "1");
    let counts = imported(&server, "redis", &["zset", "jobs", "--unit", "s"], 0);
    assert_eq!(counts["duplicate"], 1);
    assert_eq!(redis(&server, "EXISTS jobs"), "0");
}

#[test]
fn what_this_queue_will_not_deliver_stays_in_the_old_one() {
    let server = Server::start();
    let fill = || {
        redis(
            &server,
            "RPUSH dp:orders:ready bad gone deleted done
             SET dp:orders:msg:bad A
             SET dp:orders:msg:gone B
             SET dp:orders:msg:deleted C
             SET dp:orders:msg:done D
             HSET dp:orders:retry:cnt bad 0 deleted 0",
        );
    };
    fill();
    assert_eq!(imported(&server, "redis", &["hdt3213", "orders"], 0)["created"], 4);
    run(on(&server, &["cancel", "gone"])).code(0);
    let done_else_dead = "case $DELAYLINE_ID in done) ;; *) exit 1 ;; esac";
    run(on(&server, &["work", "--until-empty", "--exec", "sh", "-c", done_else_dead])).code(0);
    run(on(&server, &["dead", "purge", "deleted", "--yes"])).code(0);

    fill();
    let counts = imported(&server, "redis", &["hdt3213", "orders"], 1);
    assert_eq!((&counts["duplicate"], &counts["left"]), (&json!(1), &json!(3)));
    let reason = "the queue knows its id as dead, cancelled or deleted";
    assert_eq!(counts["left_because"], json!({ reason: 3 }));
    assert_eq!(redis(&server, "LRANGE dp:orders:ready 0 -1"), "bad gone deleted");
    assert_eq!(redis(&server, "EXISTS dp:orders:msg:bad dp:orders:msg:done"), "1");
}

#[test]
fn missing_rights_are_told_before_anything_is_sent() {
    let old = Server::builder().acl_user("mover on >pw ~* +@all -hdel").start();
    let new = Server::start();
    redis(&old, "ZADD jobs 0 a\nHSET data a A");
    let url = old.url_with_login("mover", "pw");
    let flags = ["zset", "jobs", "--unit", "s", "--payloads", "data", "--yes"];
    let mut command = import(&new, "redis", &flags);
    command.env("DELAYLINE_FROM_URL", &url);
    let told = run(command).code(3).stderr;
    assert!(told.contains("the old queue: ") && told.contains("ACL GETUSER"), "{told}");
    assert_eq!(waiting(&new), []);
    assert_eq!(redis(&old, "ZCARD jobs"), "1");
    assert_eq!(redis(&old, "HLEN data"), "1");
}

#[test]
fn a_set_of_several_pages_is_moved_and_what_cannot_be_is_left() {
    let server = Server::start();
    redis(&server, "ZADD texts:workers 1700000000 w1");
    for n in 0..250 {
        redis(&server, &format!("SADD texts:inflight:w1 id-{n}"));
        // Every fifth has no payload.
        if n % 5 != 0 {
            redis(&server, &format!("HSET texts:data id-{n} payload-{n}"));
        }
    }
    for created in [200, 0] {
        let counts = imported(&server, "redis", &["apalis", "texts"], 1);
        assert_eq!((&counts["created"], &counts["left"]), (&json!(created), &json!(50)));
        assert_eq!(redis(&server, "SCARD texts:inflight:w1"), "50");
        assert_eq!(redis(&server, "EXISTS texts:data"), "0");
    }
    assert_eq!(count(&server, "ready"), 200);
}
