//! `delayline check`.

use crate::support::{DRIVERS, bare, count, on, run};
use delayline_test_server::Server;

#[test]
fn a_sound_queue_is_found_sound_and_left_alone() {
    let server = Server::start();
    run(on(&server, &["send", "--id", "a", "--payload", "p"])).code(0);
    for driver in DRIVERS {
        let checked = run(on(&server, &["--driver", driver, "check"])).code(0);
        assert!(checked.stderr.contains("1 message examined, 0 faults"), "{}", checked.stderr);
        // Nothing is wrong, so there is no question.
        run(on(&server, &["--driver", driver, "check", "--repair"])).code(0);
    }
    let lines = run(on(&server, &["check", "--json"])).code(0).lines();
    assert_eq!(lines[0]["examined"], 1);
    run(bare(&["--url", "memory:", "--queue", "q", "check"])).code(0);
    run(on(&server, &["check", "--yes"])).code(2);
}

#[test]
fn what_is_wrong_is_named_and_repaired_on_request() {
    for driver in DRIVERS {
        let server = Server::start();
        for id in ["a", "lost", "z"] {
            run(on(&server, &["send", "--id", id, "--payload", "p", "--delay", "1h"])).code(0);
        }
        server.command(&["HDEL", "delayline:{orders}:records", "lost"]);
        let check = |args: &[&str], code| {
            run(on(&server, &[&["--driver", driver, "check"], args].concat())).code(code)
        };
        let found = check(&["--json"], 1).lines();
        assert_eq!(found[0]["finding"], "missing_record");
        assert_eq!(found[0]["detail"], "lost");
        let told = check(&[], 1).stdout;
        assert!(told.contains("missing record: lost\n"), "{told}");
        assert!(told.contains("3 indexed") && told.contains("2 records"), "{told}");
        assert!(!told.contains('{'), "{told}");

        let refused = check(&["--repair"], 2);
        assert!(refused.stderr.contains("--yes"), "{}", refused.stderr);
        assert_eq!(count(&server, "dead"), 0);

        let repaired = check(&["--repair", "--yes", "--json"], 0).lines();
        assert!(repaired[0]["repaired"].as_u64().unwrap() >= 1, "{repaired:?}");
        check(&[], 0);
        assert_eq!((count(&server, "scheduled"), count(&server, "dead")), (2, 1));
        let dead = run(on(&server, &["dead", "list", "--reason", "unreadable"])).code(0);
        assert!(dead.stdout.contains("lost"), "{}", dead.stdout);
        run(on(&server, &["dead", "purge", "lost", "--yes"])).code(0);
    }
}
