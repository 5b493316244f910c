//! `delayline relay`.

use crate::support::{
    DRIVERS, Ended, bare, count, ended, on, run, send, send_signal, start, wait_until,
};
use delayline_test_server::{Reply, Server};
use serde_json::json;

fn relay(server: &Server, driver: &str, flags: &[&str]) -> Ended {
    run(on(server, &[&["--driver", driver, "relay"], flags].concat()))
}

fn words(reply: Reply) -> Vec<String> {
    match reply {
        Reply::BulkString(bytes) => vec![String::from_utf8(bytes).unwrap()],
        Reply::Array(items) => items.into_iter().flat_map(words).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn payloads_go_to_a_list_when_they_are_due() {
    for driver in DRIVERS {
        let server = Server::start();
        send(&server, &["--payload", "now"]);
        send(&server, &["--payload", "later", "--delay", "300ms"]);
        let ended = relay(&server, driver, &["--to-list", "due", "--until-empty"]).code(0);
        assert_eq!(ended.stdout, "relayed 2\n");
        assert_eq!(words(server.command(&["LRANGE", "due", "0", "-1"])), ["now", "later"]);
        let flags = ["--to-list", "due", "--until-empty", "--json"];
        assert_eq!(relay(&server, driver, &flags).code(0).lines(), [json!({"relayed": 0})]);
        assert_eq!(count(&server, "relayed_total"), 2);
    }
}

#[test]
fn entries_go_to_a_stream_as_long_as_its_group_keeps_up() {
    for driver in DRIVERS {
        let server = Server::start();
        for id in ["a", "b", "c"] {
            send(&server, &["--id", id, "--payload", "x", "--header", "tenant=7"]);
        }
        let flags = ["--to-stream", "due", "--group", "g", "--max-backlog", "2"];
        let args: Vec<_> = ["--driver", driver, "relay"].iter().chain(&flags).copied().collect();
        let running = start(&mut on(&server, &args));
        let length = || server.command(&["XLEN", "due"]);
        wait_until("two entries", || length() == Reply::Int(2));
        // This group has read them all.
        server.command(&["XGROUP", "CREATE", "due", "g", "$"]);
        wait_until("three entries", || length() == Reply::Int(3));
        send_signal(&running, "-TERM");
        assert_eq!(ended(running).code(0).stdout, "relayed 3\n");
        let entry = words(server.command(&["XREVRANGE", "due", "+", "-", "COUNT", "1"]));
        assert_eq!(entry[1..3], ["id", "c"]);
        assert_eq!(entry[5..], ["payload", "x", "header:tenant", "7"]);
    }
}

#[test]
fn what_cannot_be_relayed_is_refused() {
    let server = Server::start();
    server.command(&["SADD", "a-set", "x"]);
    send(&server, &["--payload", "x"]);
    for driver in DRIVERS {
        for (flags, code, text) in [
            (&[][..], 2, "--to-list"),
            (&["--to-list", "a", "--to-stream", "b"], 2, "cannot be used with"),
            (&["--to-stream", "b", "--max-backlog", "3"], 2, "--group"),
            (&["--to-stream", "b", "--group", "g"], 2, "--max-backlog"),
            (&["--to-stream", "b", "--max-len", "3"], 2, "cannot be used with"),
            (&["--to-list", "b", "--group", "g", "--max-backlog", "3"], 2, "cannot be used with"),
            (&["--to-list", "delayline:{orders}:index"], 2, "belong to queues"),
            (&["--to-list", ""], 2, "is empty"),
            (&["--to-list", "a", "--max-len", "0"], 2, "'--max-len <N>'"),
            (&["--to-list", "a", "--max-len", "1000000001"], 2, "1..=1000000000"),
            (&["--to-stream", "a", "--group", "g", "--max-backlog", "0"], 2, "'--max-backlog <N>'"),
            (&["--to-list", "a", "--batch", "0"], 2, "'--batch <N>'"),
            (&["--to-list", "a", "--batch", "1001"], 2, "1..=1000"),
            (&["--to-list", "a-set"], 3, "is a-set a list?"),
        ] {
            let ended = relay(&server, driver, flags).code(code);
            assert!(ended.stderr.contains(text), "{flags:?}: {}", ended.stderr);
            assert_eq!(ended.stdout, "");
        }
    }
    assert_eq!(count(&server, "ready"), 1);
    // Bad arguments are refused without a connection.
    let flags = ["--url", "redis://127.0.0.1:1", "--queue", "q", "relay", "--to-list", "a"];
    run(bare(&[&flags[..], &["--batch", "0"]].concat())).code(2);
}

#[test]
fn rules_for_a_relay_name_its_destinations() {
    let acl = |more: &[&str]| {
        let acl = ["--queue", "orders", "acl", "relay", "--user", "mover"];
        run(bare(&[&acl[..], more].concat()))
    };
    let refused = acl(&[]).code(2).stderr;
    assert!(refused.contains("--destination"), "{refused}");
    for pattern in ["*", "due-?", "due-[0-9]"] {
        let refused = acl(&["--destination", "due", "--destination", pattern]).code(2).stderr;
        assert!(refused.contains("pattern"), "{refused}");
    }
    let rules = acl(&["--destination", "due", "--destination", "due-{orders}"]).code(0).stdout;
    assert!(rules.ends_with(" ~due ~due-{orders}\n"), "{rules}");
}

#[test]
fn rules_for_a_relay_are_enough() {
    let server = Server::start();
    let acl = ["--queue", "orders", "acl", "relay", "--user", "mover", "--destination", "due"];
    let rules = run(bare(&acl)).code(0).stdout;
    let words: Vec<_> = rules.split_whitespace().collect();
    server.command(&words);
    server.command(&["ACL", "SETUSER", "mover", ">secret"]);
    send(&server, &["--payload", "x"]);
    for (list, code) in [("due", 0), ("other", 3)] {
        let args = ["relay", "--to-list", list, "--until-empty"];
        let mut command = on(&server, &args);
        command.env("DELAYLINE_URL", server.url_with_login("mover", "secret"));
        let ended = run(command).code(code);
        assert_eq!(
            ended.stderr.contains("on the destination other"),
            code != 0,
            "{}",
            ended.stderr
        );
        send(&server, &["--payload", "y"]);
    }
}
