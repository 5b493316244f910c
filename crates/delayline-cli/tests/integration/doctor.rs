//! `delayline doctor` and `delayline acl`.

use crate::support::{DRIVERS, bare, on, run};
use delayline_test_server::Server;
use serde_json::Value;

fn finding<'a>(findings: &'a [Value], check: &str) -> &'a Value {
    findings.iter().find(|finding| finding["check"] == check).expect(check)
}

#[test]
fn the_load_of_a_queue_is_examined() {
    let server = Server::builder().append_only("everysec").start();
    server.command(&["CONFIG", "SET", "maxmemory", "1gb"]);
    let findings = run(on(&server, &["doctor", "--json"])).code(0).lines();
    let ahead = finding(&findings, "memory ahead");
    assert_eq!(ahead["detail"], "the queue did not grow in the last day");
    for number in 0..20 {
        crate::support::send(
            &server,
            &["--id", &number.to_string(), "--payload", "x", "--delay", "1h"],
        );
    }
    let findings = run(on(&server, &["doctor", "--json"])).code(0).lines();
    assert_eq!(finding(&findings, "queue")["detail"], "it opens");
    let detail = finding(&findings, "memory ahead")["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("20 messages more than a day ago, about "), "{detail}");
    for check in ["lateness", "expired leases", "failover"] {
        assert_eq!(finding(&findings, check)["verdict"], "good", "{findings:?}");
    }
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    let findings = run(on(&server, &["doctor", "--json"])).code(0).lines();
    let ahead = finding(&findings, "memory ahead");
    assert!(ahead["advice"].as_str().unwrap().contains("set maxmemory"), "{ahead}");
}

#[test]
fn a_fit_server_gets_a_good_report() {
    let server = Server::builder().append_only("everysec").start();
    for driver in DRIVERS {
        let findings = run(on(&server, &["--driver", driver, "doctor", "--json"])).code(0).lines();
        for check in ["version", "role", "eviction", "persistence", "as worker", "queue", "clock"] {
            assert_eq!(finding(&findings, check)["verdict"], "good", "{findings:?}");
        }
        assert!(findings.iter().all(|it| it["check"] != "versions"), "{findings:?}");
    }
    let table = run(on(&server, &["doctor"])).code(0).stdout;
    assert!(table.starts_with("SERVER") && table.contains("\nCHECK"), "{table}");
    assert!(table.contains("noeviction"), "{table}");
    assert!(table.contains("does not exist yet"), "{table}");
    let keys = server.command(&["DBSIZE"]);
    assert_eq!(keys, delayline_test_server::Reply::Int(0), "it changes nothing");
}

#[test]
fn what_is_wrong_is_named_with_what_to_do() {
    let server = Server::builder().config("maxmemory-policy", "allkeys-lru").start();
    let findings = run(on(&server, &["doctor", "--json"])).code(1).lines();
    let eviction = finding(&findings, "eviction");
    assert_eq!(eviction["verdict"], "bad");
    assert!(eviction["advice"].as_str().unwrap().contains("noeviction"));
    assert_eq!(finding(&findings, "queue")["verdict"], "bad", "it is refused");
    assert_eq!(finding(&findings, "persistence")["verdict"], "beware");

    let replica = Server::start();
    replica.command(&["REPLICAOF", "127.0.0.1", "1"]);
    let findings = run(on(&replica, &["doctor", "--json"])).code(1).lines();
    assert_eq!(finding(&findings, "role")["verdict"], "bad");

    run(bare(&["--url", "memory:", "--queue", "q", "doctor"])).code(2);
}

#[test]
fn a_key_of_another_type_and_a_password_in_clear_are_named_with_what_to_do() {
    let server = Server::builder().tcp().password("pw").start();
    let key = "delayline:{orders}:control";
    server.command(&["LPUSH", key, "x"]);
    let port = server.port();
    for driver in DRIVERS {
        // Not one of the loopback addresses, though it leads here.
        for (host, verdict) in [("0.0.0.0", "beware"), ("127.0.0.1", "good"), ("localhost", "good")]
        {
            let mut command = bare(&["--driver", driver, "--queue", "orders", "doctor", "--json"]);
            command.env("DELAYLINE_URL", format!("redis://:pw@{host}:{port}"));
            let findings = run(command).code(1).lines();
            assert_eq!(finding(&findings, "password")["verdict"], verdict, "{host}");
            let queue = finding(&findings, "queue");
            assert_eq!(queue["verdict"], "bad");
            let advice = queue["advice"].as_str().unwrap();
            assert!(advice.contains("another name"), "{queue}");
        }
    }
}

/// A server with one user, whose rules are exactly what `acl` prints.
fn with_user(role: &str) -> Server {
    let server = Server::start();
    let line = run(bare(&["--queue", "orders", "acl", role, "--user", "app"])).code(0).stdout;
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[..3], ["ACL", "SETUSER", "app"]);
    server.command(&words);
    server.command(&["ACL", "SETUSER", "app", ">secret"]);
    server
}

fn as_user(server: &Server, driver: &str, args: &[&str], code: i32) -> String {
    let mut command = bare(&[&["--driver", driver], args].concat());
    command.env("DELAYLINE_URL", server.url_with_login("app", "secret"));
    command.env("DELAYLINE_QUEUE", "orders");
    let ended = run(command).code(code);
    assert!(!ended.stderr.contains("secret"), "{}", ended.stderr);
    ended.stdout + &ended.stderr
}

#[test]
fn each_role_may_do_its_work_and_not_much_more() {
    for driver in DRIVERS {
        let server = with_user("producer");
        let user = |args: &[&str], code| as_user(&server, driver, args, code);
        for id in ["a", "b"] {
            user(&["send", "--id", id, "--payload", "p"], 0);
        }
        user(&["reschedule", "a", "--delay", "1h"], 0);
        user(&["get", "a"], 0);
        user(&["cancel", "a"], 0);
        user(&["stats"], 0);
        let report = user(&["doctor", "--json"], 0);
        assert!(report.contains("BLPOP"), "a producer may not wait: {report}");
        // Another queue is out of reach.
        let refused = user(&["--queue", "other", "stats"], 3);
        assert!(refused.contains("access rules"), "{refused}");

        let server = with_user("worker");
        run(on(&server, &["send", "--id", "a", "--payload", "p"])).code(0);
        let user = |args: &[&str], code| as_user(&server, driver, args, code);
        user(&["work", "--until-empty"], 0);
        user(&["stats"], 0);

        let server = with_user("admin");
        let user = |args: &[&str], code| as_user(&server, driver, args, code);
        let script = ["work", "--until-empty", "--exec", "false"];
        user(&["send", "--id", "a", "--payload", "p", "--max-failures", "1"], 0);
        user(&script, 0);
        user(&["dead", "redrive", "a"], 0);
        user(&script, 0);
        user(&["dead", "purge", "a", "--yes"], 0);
        user(&["pause"], 0);
        user(&["resume"], 0);
        user(&["list"], 0);
        assert!(!user(&["doctor", "--json"], 0).contains("lacks"));
    }
}

#[test]
fn a_user_name_that_would_be_more_is_refused() {
    for name in ["", "a b", "a\n", "a\"b", "\u{e9}"] {
        let refused = run(bare(&["--queue", "orders", "acl", "worker", "--user", name])).code(2);
        assert!(refused.stderr.contains(&format!("{name:?}")), "{}", refused.stderr);
    }
    run(bare(&["acl", "worker", "--user", "app"])).code(2);
    run(bare(&["--queue", "a b", "acl", "worker", "--user", "app"])).code(2);
    run(bare(&["--queue", "orders", "acl", "king", "--user", "app"])).code(2);
}
