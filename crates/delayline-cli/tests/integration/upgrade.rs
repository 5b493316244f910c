//! `delayline upgrade`.

use crate::support::{DRIVERS, bare, create, on, run};
use delayline_redis_protocol::SCHEMA_VERSION;
use delayline_test_server::Server;

/// Puts these bytes in the place of the control record.
fn put_control(server: &Server, bytes: &[u8]) {
    server.command(&[b"SET", &b"delayline:{orders}:control"[..], bytes]);
}

#[test]
fn a_queue_that_is_up_to_date_is_left_alone() {
    let server = Server::start();
    create(&server);
    let before = server.command(&["GET", "delayline:{orders}:control"]);
    let said = format!("orders: up to date, schema version {SCHEMA_VERSION}\n");
    for driver in DRIVERS {
        for flag in ["--dry-run", "--yes"] {
            let ended = run(on(&server, &["--driver", driver, "upgrade", flag])).code(0);
            assert_eq!(ended.stdout, said);
        }
        let json = &run(on(&server, &["upgrade", "--json"])).code(0).lines()[0];
        assert_eq!((&json["upgraded"], &json["begun"]), (&true.into(), &false.into()));
    }
    assert_eq!(server.command(&["GET", "delayline:{orders}:control"]), before);
    run(bare(&["--url", "memory:", "--queue", "orders", "upgrade"])).code(2);
}

#[test]
fn other_layouts_and_damaged_marks_are_refused() {
    let server = Server::start();
    let upgrade = || run(on(&server, &["upgrade", "--yes"])).code(3).stderr;
    let next = u8::try_from(SCHEMA_VERSION).unwrap() + 1;
    put_control(&server, &[next; 100]);
    assert!(upgrade().contains("newer"));
    put_control(&server, &[1; 100]);
    assert!(upgrade().contains("this version cannot upgrade it"));
    // Another program converts it to a layout that this version does not know.
    put_control(&server, &[255, next - 1, next, 1]);
    assert!(upgrade().contains("newer"));
    for damaged in [&[255][..], &[255, 3], &[255, 3, 9], &[255, 0, 1], &[0]] {
        put_control(&server, damaged);
        let said = upgrade();
        assert!(said.contains("damaged"), "{damaged:?}: {said}");
    }
}

#[test]
fn what_meets_an_upgrade_says_that_it_has_to_wait() {
    let server = Server::start();
    put_control(&server, &[255, 2, 3]);
    for verb in [&["stats"][..], &["pause"], &["check"], &["delete-queue"]] {
        let ended = run(on(&server, verb)).code(3);
        let said = "the queue is being upgraded from schema version 2 to 3";
        assert!(ended.stderr.contains(said), "{}", ended.stderr);
        assert!(ended.stderr.contains("delayline upgrade"), "{}", ended.stderr);
    }
}

#[test]
fn a_replica_and_a_missing_right_are_refused() {
    let server = Server::start();
    create(&server);
    server.command(&["ACL", "SETUSER", "u", "on", ">pw", "+@all", "-get", "~*"]);
    let mut command = on(&server, &["upgrade", "--yes"]);
    command.env("DELAYLINE_URL", server.url_with_login("u", "pw"));
    let refused = run(command).code(3);
    assert!(refused.stderr.contains("permit"), "{}", refused.stderr);
    // The source of its replication does not matter.
    server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    let refused = run(on(&server, &["upgrade", "--yes"])).code(3);
    assert!(refused.stderr.contains("replica"), "{}", refused.stderr);
}
