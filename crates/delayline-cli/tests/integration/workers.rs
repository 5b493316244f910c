//! `delayline workers`.

use crate::support::{DRIVERS, bare, on, run, send, send_signal, start, wait_until};
use delayline_test_server::Server;
use serde_json::{Value, json};

/// The processes that the command lists.
fn listed(server: &Server, flags: &[&str]) -> Vec<Value> {
    let args = [&["workers", "--json"], flags].concat();
    let printed = run(on(server, &args)).code(0).lines().remove(0);
    assert_eq!(printed["complete"], true);
    printed["processes"].as_array().unwrap().clone()
}

#[test]
fn workers_are_listed_with_what_they_hold() {
    for driver in DRIVERS {
        let server = Server::start();
        let home = tempfile::tempdir().unwrap();
        let end = home.path().join("end");
        send(&server, &["--id", "a-1", "--payload", "x"]);
        assert_eq!(listed(&server, &["--driver", driver]), [] as [Value; 0]);
        let none = run(on(&server, &["workers"])).code(0);
        assert_eq!((&*none.stdout, &*none.stderr), ("", "no workers\n"));

        // Its handler waits for a file.
        let script = r#"while ! [ -e "$0" ]; do sleep 0.05; done"#;
        let flags =
            ["--driver", driver, "work", "--concurrency", "3", "--exec", "sh", "-c", script];
        // No heartbeat moves the end of the lease between two lists.
        let lease = ["--lease", "1h"];
        let args = flags[..5].iter().chain(&lease).chain(&flags[5..]).copied();
        let args: Vec<&str> = args.chain(end.to_str()).collect();
        let worker = start(&mut on(&server, &args));
        let holds = |held: &Value| held["held"][0]["id"] == "a-1";
        wait_until("the message is held", || {
            listed(&server, &["--driver", driver]).first().is_some_and(holds)
        });
        let process = listed(&server, &["--driver", driver]).remove(0);
        assert_eq!((&process["introduced"], &process["handlers"]), (&true.into(), &3.into()));
        assert_eq!(process["pid"], worker.id());
        assert_eq!(process["queues"], json!([{"queue": "orders", "handlers": 3}]));
        assert_eq!(process["held"].as_array().unwrap().len(), 1);
        assert_eq!(listed(&server, &["--queue", "other"]), [] as [Value; 0]);
        let mut all = bare(&["workers", "--json"]);
        all.env("DELAYLINE_URL", server.url());
        assert_eq!(run(all).code(0).lines()[0]["processes"][0], process);
        let table = run(on(&server, &["workers"])).code(0).stdout;
        assert!(table.starts_with("PROCESS") && table.contains("orders=3"), "{table}");
        let row: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!((row[0], row[7]), (process["process"].as_str().unwrap(), "1"));

        std::fs::write(&end, "").unwrap();
        send_signal(&worker, "-TERM");
        crate::support::ended(worker).code(0);
        wait_until("it has left", || listed(&server, &[]).is_empty());
    }
}

#[test]
fn a_list_that_is_refused_still_has_the_leases() {
    let server = Server::builder().acl_user("operator on >pw ~* +@all -client|list").start();
    let home = tempfile::tempdir().unwrap();
    let end = home.path().join("end");
    send(&server, &["--id", "a-1", "--payload", "x"]);
    let script = r#"while ! [ -e "$0" ]; do sleep 0.05; done"#;
    let flags = ["work", "--exec", "sh", "-c", script];
    let args: Vec<&str> = flags.into_iter().chain(end.to_str()).collect();
    let worker = start(&mut on(&server, &args));
    wait_until("the message is held", || crate::support::count(&server, "leased") == 1);
    let mut refused = on(&server, &["workers", "--json"]);
    refused.env("DELAYLINE_URL", server.url_with_login("operator", "pw"));
    let refused = run(refused).code(1);
    let printed = refused.lines().remove(0);
    assert_eq!(
        (&printed["complete"], &printed["processes"][0]["introduced"]),
        (&false.into(), &false.into())
    );
    assert_eq!(printed["processes"][0]["held"][0]["id"], "a-1");
    assert!(refused.stderr.contains("client|list"), "{}", refused.stderr);
    std::fs::write(&end, "").unwrap();
    drop(worker);
}
