//! `delayline delete-queue`.

use crate::support::{DRIVERS, count, create, let_die, on, run, send, wait_until};
use delayline_test_server::{Reply, Server};

fn delete(server: &Server, driver: &str, code: i32) -> crate::support::Ended {
    run(on(server, &["--driver", driver, "delete-queue"])).code(code)
}

fn keys(server: &Server) -> i64 {
    match server.command(&["DBSIZE"]) {
        Reply::Int(keys) => keys,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_queue_that_holds_nothing_is_removed_with_all_of_its_keys() {
    let server = Server::start();
    server.command(&["SET", "delayline:{orders2}:control", "another's"]);
    for driver in DRIVERS {
        create(&server);
        send(&server, &["--id", "a", "--payload", &"x".repeat(100_000), "--delay", "1h"]);
        run(on(&server, &["cancel", "a"])).code(0);
        send(&server, &["--payload", "1", "--header", "a=b"]);
        run(on(&server, &["work", "--until-empty", "--exec", "true"])).code(0);
        assert!(keys(&server) > 4);
        assert_eq!(delete(&server, driver, 0).stdout, "orders: deleted\n");
        assert_eq!(keys(&server), 1);
        let unknown = delete(&server, driver, 1);
        assert!(unknown.is_unknown_queue(), "{}", unknown.stderr);
        create(&server);
        let json = run(on(&server, &["delete-queue", "--json"])).code(0);
        assert_eq!(json.lines()[0], serde_json::json!({"queue": "orders", "deleted": true}));
    }
}

#[test]
fn what_a_queue_holds_prevents_its_removal() {
    let server = Server::start();
    let holds = |what: &str| {
        let before = keys(&server);
        for driver in DRIVERS {
            let refused = delete(&server, driver, 1);
            let said = format!("orders holds {what}; it was not removed");
            assert!(refused.stderr.contains(&said), "{}", refused.stderr);
        }
        assert_eq!(keys(&server), before);
    };
    send(&server, &["--id", "a", "--payload", "1", "--delay", "1h"]);
    holds("1 message");
    let refused = run(on(&server, &["delete-queue", "--json"])).code(1).lines();
    let held = serde_json::json!({"messages": 1, "results": 0, "throttled": 0});
    assert_eq!(refused, [serde_json::json!({"queue": "orders", "deleted": false, "held": held})]);
    run(on(&server, &["cancel", "a"])).code(0);
    let_die(&server, 2, "no");
    holds("2 messages");
    run(on(&server, &["dead", "purge", "--all", "--yes"])).code(0);
    send(&server, &["--id", "b", "--payload", "1", "--keep-result", "1h"]);
    run(on(&server, &["work", "--until-empty", "--exec", "echo", "7"])).code(0);
    holds("1 result");
    server.command(&["DEL", "delayline:{orders}:results", "delayline:{orders}:results_until"]);
    send(&server, &["--id", "c", "--payload", "1", "--throttle", "1h"]);
    run(on(&server, &["cancel", "c"])).code(0);
    holds("1 throttled id");
    server.command(&["DEL", "delayline:{orders}:windows"]);
    // A record that its entry was lost of: a repair brings the message back.
    send(&server, &["--id", "d", "--payload", "1"]);
    server.command(&["DEL", "delayline:{orders}:index"]);
    holds("1 message");
    run(on(&server, &["check", "--repair", "--yes"])).code(0);
    assert_eq!(count(&server, "ready") + count(&server, "dead"), 1);
}

#[test]
fn a_worker_goes_on_when_its_queue_is_created_anew() {
    let server = Server::start();
    create(&server);
    let worker = crate::support::start(&mut on(&server, &["work", "--exec", "true"]));
    send(&server, &["--payload", "1"]);
    wait_until("the first ack", || count(&server, "acked_total") == 1);
    delete(&server, "redis", 0);
    send(&server, &["--payload", "2"]);
    wait_until("the second ack", || count(&server, "acked_total") == 1);
    drop(worker);
}

#[test]
fn a_newer_queue_and_a_missing_right_are_refused() {
    let server = Server::start();
    create(&server);
    server.command(&["ACL", "SETUSER", "u", "on", ">pw", "+@all", "-unlink", "~*"]);
    let mut command = on(&server, &["delete-queue"]);
    command.env("DELAYLINE_URL", server.url_with_login("u", "pw"));
    let refused = run(command).code(3);
    assert!(refused.stderr.contains("UNLINK"), "{}", refused.stderr);
    server.command(&["SET", "delayline:{orders}:control", "\u{7f}newer"]);
    let before = keys(&server);
    delete(&server, "redis", 3);
    assert_eq!(keys(&server), before);
}
