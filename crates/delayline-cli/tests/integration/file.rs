//! The verbs on a directory, alone and beside a process that has it open.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use delayline_test_server::{Reply, Server};
use serde_json::{Value, json};

use crate::support::{
    Ended, Running, ask, bare, ended, listening, run, run_with_input, send_signal, start,
    wait_until,
};

/// The command on the queue `orders` of a directory.
pub(crate) fn on(path: &Path, args: &[&str]) -> Command {
    let mut command = bare(args);
    let url = format!("file:{}", path.display());
    command.env("DELAYLINE_URL", url).env("DELAYLINE_QUEUE", "orders");
    command
}

fn at(path: &Path, args: &[&str]) -> Ended {
    run(on(path, args))
}

/// One number of `stats --json`.
#[track_caller]
fn count(path: &Path, name: &str) -> u64 {
    at(path, &["stats", "--json"]).code(0).lines()[0][name].as_u64().unwrap()
}

/// Starts `serve` on a free port, and waits until it listens.
fn serving(path: &Path, args: &[&str]) -> (Running, String) {
    let all = [&["serve", "--all", "--listen", "127.0.0.1:0"], args].concat();
    let (child, [address]) = listening(start(&mut on(path, &all)));
    (child, address)
}

fn http(address: &str, head: &str, body: &str) -> String {
    let head = format!("{head} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json");
    ask(address, &head, body).1
}

#[test]
fn a_directory_has_schedules_if_its_server_runs_a_scheduler() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path();
    let (mut child, address) = serving(path, &["--scheduler"]);
    // Through its socket.
    at(path, &["schedule", "put", "tick", "--every", "1s"]).code(0);
    wait_until("ticks", || count(path, "scheduled") >= 3);
    let listed = http(&address, "GET /api/v1/schedules/tick", "");
    assert!(listed.starts_with("HTTP/1.1 200") && listed.contains("\"every_ms\":1000"), "{listed}");
    let page = http(&address, "GET /schedules", "");
    assert!(page.contains("every 1 s") && page.contains("Run now"), "{page}");
    let body = r#"{"owner": "shop", "schedules": {"a": {"every": "1h", "queue": "orders"}}}"#;
    let declared = http(&address, "POST /api/v1/schedules", body);
    assert!(declared.contains("\"created\":1"), "{declared}");
    assert!(at(path, &["schedule", "list"]).code(0).stdout.contains("shop/a"));
    at(path, &["schedule", "run-now", "shop/a"]).code(0);
    at(path, &["schedule", "remove", "tick"]).code(0);
    wait_until("no ticks", || count(path, "scheduled") == 0);
    send_signal(&child, "-TERM");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    // Without its server, the schedules are still there.
    assert!(at(path, &["schedule", "list"]).code(0).stdout.contains("shop/a"));
}

/// What an operator does, on a queue with the dead letter `bad` and the message `later`.
fn operate(path: &Path) {
    for (args, expected) in [
        (&["queues"][..], "orders\n"),
        (&["stats"], "dead"),
        (&["top", "--once"], "orders"),
        (&["workers"], ""),
        (&["doctor"], "disk"),
        (&["limits", "--leased", "5"], ""),
        (&["limits", "--leased", "none"], ""),
        (&["list", "--state", "dead"], "bad"),
        (&["get", "bad"], "bad"),
        (&["explain", "later"], "later"),
        (&["history"], ""),
        (&["forecast"], ""),
        (&["reschedule", "later", "--delay", "2h"], "later"),
        (&["dead", "list"], "bad"),
        (&["dead", "groups"], "1"),
        (&["pause"], ""),
        (&["resume"], ""),
        (&["dead", "redrive", "bad", "--delay", "1h"], "bad"),
        (&["cancel", "bad"], "bad"),
        (&["schedule", "put", "report", "--every", "1h", "--payload", "1"], "created"),
        (&["schedule", "list"], "report"),
        (&["schedule", "pause", "report"], "paused"),
        (&["schedule", "resume", "report"], "report"),
        (&["schedule", "next", "report"], "20"),
        (&["schedule", "remove", "report"], "removed"),
    ] {
        let ended = at(path, args);
        let fits = matches!(ended.code, Some(0)) && ended.stdout.contains(expected);
        assert!(fits, "{args:?}: {:?}\n{}\n{}", ended.code, ended.stdout, ended.stderr);
    }
    assert!(at(path, &["wait", "bad", "--timeout", "1m"]).code(1).stderr.contains("cancelled"));
    assert!(at(path, &["check"]).code(0).stderr.contains("1 message examined, 0 faults"));
}

/// Sends the message `later`, and lets another one die.
fn prepare(path: &Path) {
    at(path, &["send", "--id", "bad", "--payload", "1", "--max-failures", "1"]).code(0);
    at(path, &["work", "--until-empty", "--exec", "false"]).code(0);
    assert_eq!(count(path, "dead"), 1);
    at(path, &["send", "--id", "later", "--payload", "2", "--delay", "1h"]).code(0);
}

#[test]
fn every_verb_works_on_a_directory() {
    let parent = tempfile::tempdir().unwrap();
    let path = &parent.path().join("new");
    prepare(path);
    operate(path);
    // Each command has closed it.
    assert!(!path.join("delayline.sock").exists());
    for verb in [&["upgrade"][..], &["relay", "--to-list", "due"], &["send"]] {
        let all = if verb[0] == "send" {
            &["send", "--payload", "1", "--durability", "replicas=1"]
        } else {
            verb
        };
        let refused = at(path, all).code(2);
        assert!(!refused.stderr.contains("hint: is a Redis"), "{}", refused.stderr);
    }
}

/// Every check of `doctor --json`, with its verdict.
#[track_caller]
fn examined(path: &Path, args: &[&str]) -> Vec<(String, String)> {
    let lines = at(path, &[args, &["doctor", "--json"]].concat()).code(0).lines();
    let text = |line: &Value, name: &str| line[name].as_str().unwrap().to_owned();
    lines.iter().map(|line| (text(line, "check"), text(line, "verdict"))).collect()
}

#[test]
fn a_directory_is_examined_and_its_empty_queues_are_deleted() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path();
    at(&path.join("absent"), &["doctor"]).code(1);
    prepare(path);
    let names = |found: Vec<(String, String)>| found.into_iter().map(|it| it.0).collect::<Vec<_>>();
    let found = names(examined(path, &[]));
    for check in ["disk", "files", "last checkpoint", "syncs", "room", "free", "queue", "clock"] {
        assert!(found.iter().any(|it| it == check), "{check}: {found:?}");
    }
    at(path, &["--queue", "misspelt", "doctor"]).code(1);
    let check = at(path, &["check"]).code(0);
    assert!(check.stderr.contains("directory: 1 queue; a log of"), "{}", check.stderr);
    let lines = at(path, &["check", "--json"]).code(0).lines();
    assert_eq!(lines.last().unwrap()["directory"]["queues"], 1);

    let held = at(path, &["delete-queue"]).code(1);
    assert!(held.stderr.contains("2 messages"), "{}", held.stderr);
    at(path, &["cancel", "--yes", "later", "bad"]).code(0);
    assert!(at(path, &["delete-queue"]).code(0).stdout.contains("deleted"));
    assert_eq!(at(path, &["queues"]).code(0).stdout, "");
    at(path, &["delete-queue"]).code(1);
}

#[test]
fn accept_clock_is_for_directories() {
    let parent = tempfile::tempdir().unwrap();
    at(parent.path(), &["--accept-clock", "send", "--payload", "1"]).code(0);
    let refused = run(bare(&["--accept-clock", "--queue", "q", "stats"])).code(2);
    assert!(refused.stderr.contains("only a file: URL names a directory"), "{}", refused.stderr);
}

#[test]
fn commands_work_beside_a_running_serve() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path();
    prepare(path);
    let (mut child, address) = serving(path, &[]);
    operate(path);
    // It is the same queue.
    at(path, &["send", "--id", "order-1", "--payload", "7"]).code(0);
    let page = http(&address, "GET /metrics", "");
    assert!(page.contains("delayline_messages{queue=\"orders\",state=\"ready\"} 1"), "{page}");
    for metric in ["delayline_directory_segments 1", "delayline_directory_sync_seconds_bucket"] {
        assert!(page.contains(metric), "{page}");
    }
    let sent =
        http(&address, "POST /api/v1/queues/orders/messages", r#"{"id": "order-2", "payload": 7}"#);
    assert!(sent.starts_with("HTTP/1.1 201"), "{sent}");
    assert_eq!(count(path, "ready"), 2);
    let syncs = at(path, &["check", "--json"]).code(0).lines().pop().unwrap();
    assert!(syncs["directory"]["syncs"]["count"].as_u64().unwrap() > 2, "{syncs}");
    assert!(at(path, &["doctor"]).code(0).stdout.contains("p99"));
    at(path, &["delete-queue"]).code(1);

    // Work is for the process that has it.
    for args in [
        &["serve", "--listen", "127.0.0.1:0"][..],
        &["work", "--exec", "true"],
        &["schedule", "run"],
    ] {
        let refused = at(path, args).code(3);
        let said = &refused.stderr;
        let holder = format!("process {} has opened", child.id());
        assert!(said.contains(&holder) && said.contains("stop it first"), "{said}");
        assert!(said.contains("hint: `delayline serve QUEUE") && !said.contains("::"), "{said}");
    }
    // An open page ends, too.
    let mut page = TcpStream::connect(&address).unwrap();
    write!(page, "GET /live HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
    page.read_exact(&mut [0; 15]).unwrap();
    send_signal(&child, "-TERM");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    // A clean end leaves a snapshot, the lock file, and nothing else.
    let mut names: Vec<_> = std::fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert!(
        matches!(&names[..], [lock, snapshot] if lock == "delayline.lock"
        && snapshot.starts_with("snapshot-")),
        "{names:?}"
    );
    assert_eq!(count(path, "ready"), 2);
}

#[test]
fn commands_at_one_time_take_turns() {
    let parent = tempfile::tempdir().unwrap();
    let ids: Vec<_> = (0..20).map(|n| format!("order-{n}")).collect();
    let send = |id| start(&mut on(parent.path(), &["send", "--id", id, "--payload", "7"]));
    let sends: Vec<_> = ids.iter().map(|id| send(id)).collect();
    for send in sends {
        ended(send).code(0);
    }
    assert_eq!(count(parent.path(), "ready"), 20);
}

#[test]
fn a_backup_is_made_with_and_without_a_process_and_takes_the_place_of_the_directory() {
    let parent = tempfile::tempdir().unwrap();
    let [path, closed, running] =
        ["queues", "new/closed", "running"].map(|name| parent.path().join(name));
    let backup = |to: &Path| at(&path, &["backup", "--json", to.to_str().unwrap()]);
    assert!(backup(&closed).code(1).stderr.contains("there is no directory"));
    prepare(&path);
    let made = backup(&closed).code(0).lines().remove(0);
    assert_eq!((&made["queues"], &made["messages"]), (&1.into(), &2.into()), "{made}");
    let (mut child, _) = serving(&path, &[]);
    at(&path, &["send", "--id", "order-1", "--payload", "7"]).code(0);
    let printed = at(&path, &["backup", running.to_str().unwrap()]).code(0).stdout;
    assert!(printed.contains("running: 1 queue with 3 messages, "), "{printed}");
    for (to, code, expected) in [
        (&closed, 2, "exists: a backup needs a new directory"),
        (&path, 2, "exists: a backup needs a new directory"),
        (&path.join("../queues/below/backup"), 3, "is in the directory that is backed up"),
        (&parent.path().join("running/delayline.lock/backup"), 3, "cannot be written"),
    ] {
        let refused = backup(to).code(code);
        assert!(refused.stderr.contains(expected), "{}", refused.stderr);
    }
    assert!(!path.join("below").exists());
    run(bare(&["backup", "--url", "memory:", running.to_str().unwrap()])).code(2);
    child.kill().unwrap();
    child.wait().unwrap();
    std::fs::remove_dir_all(&path).unwrap();
    std::fs::rename(&running, &path).unwrap();
    assert!(at(&path, &["check"]).code(0).stderr.contains("3 messages examined, 0 faults"));
    assert_eq!((count(&path, "ready"), count(&closed, "ready")), (1, 0));
    let mut names: Vec<_> =
        parent.path().read_dir().unwrap().map(|it| it.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["new", "queues"]);
}

#[test]
fn what_is_no_directory_of_queues_is_refused() {
    let parent = tempfile::tempdir().unwrap();
    let absent = parent.path().join("absent");
    let verbs =
        "stats, queues, list, dead list, pause, check, delete-queue, upgrade, schedule list";
    for verb in verbs.split(", ") {
        let refused = at(&absent, &verb.split(' ').collect::<Vec<_>>()).code(1);
        assert!(refused.stderr.contains("there is no directory"), "{}", refused.stderr);
    }
    assert!(!absent.exists());
    std::fs::write(parent.path().join("notes.txt"), "not ours").unwrap();
    let refused = at(parent.path(), &["send", "--payload", "1"]).code(3);
    assert!(refused.stderr.contains("notes.txt"), "{}", refused.stderr);
    // No message could create it.
    let refused = at(&parent.path().join("notes.txt/sub"), &["stats"]).code(3);
    assert!(refused.stderr.contains("cannot create the directory"), "{}", refused.stderr);
    run(bare(&["--url", "file:", "--queue", "q", "stats"])).code(2);
    at(&absent, &["send", "--payload", "1"]).code(0);
    let unknown = at(&absent, &["--queue", "misspelt", "stats"]).code(1);
    assert!(unknown.stderr.contains("the directory has no queue misspelt"), "{}", unknown.stderr);
}

#[test]
fn a_queue_moves_from_a_directory_to_a_server_and_back() {
    let server = Server::start();
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("queues");
    let lines: String = (0..250)
        .map(|n| {
            let due = format!("2100-01-01T00:{:02}:{:02}Z", n / 60, n % 60);
            format!("{{\"id\": \"order-{n}\", \"payload\": {n}, \"at\": \"{due}\"}}\n")
        })
        .collect();
    run_with_input(on(&path, &["send", "--file", "-"]), lines.as_bytes()).code(0);
    at(&path, &["send", "--id", "now", "--group", "shop-7", "--payload", "1"]).code(0);
    let listed = |command: Command| {
        let pages = run(command).code(0).lines();
        let mut all: Vec<_> =
            pages.iter().flat_map(|page| page["messages"].as_array().unwrap()).collect();
        all.sort_by_key(|it| it["id"].to_string());
        let pick = |it: &&Value| [&it["id"], &it["due"], &it["group"]].map(ToString::to_string);
        all.iter().map(pick).collect::<Vec<_>>()
    };
    let list = ["list", "--limit", "300", "--json"];
    let expected = listed(on(&path, &list));
    let sharded = ["--queue", "sharded", "--shards", "3"];
    at(&path, &[&sharded[..], &["send", "--payload", "1"]].concat()).code(0);
    at(&path, &[&sharded[..], &["stats"]].concat()).code(0);
    assert_eq!(expected.len(), 251);
    let from = format!("file:{}", path.display());
    let there = ["import", "queue", "orders", "--from", &from, "--yes", "--json"];
    // Nothing is created, neither a queue nor the number of its shards.
    let dry = [&there[..], &["--dry-run"]].concat();
    let there = [&["--shards", "3"], &there[..]].concat();
    let counts = run(crate::support::on(&server, &dry)).code(0).lines().remove(0);
    assert_eq!((&counts["created"], &counts["dry_run"]), (&json!(251), &json!(true)));
    assert!(matches!(server.command(&["DBSIZE"]), Reply::Int(0)));
    let counts = run(crate::support::on(&server, &there)).code(0).lines().remove(0);
    assert_eq!((&counts["created"], &counts["left"]), (&json!(251), &json!(0)));
    assert_eq!(listed(on(&path, &list)), Vec::<[String; 3]>::new());
    assert_eq!(listed(crate::support::on(&server, &list)), expected);
    // Within the hour in which the directory remembers these ids.
    let url = server.url();
    let back = ["import", "queue", "orders", "--from", &url, "--live", "--until-empty", "--yes"];
    let told = at(&path, &back).code(0).stderr;
    assert!(told.contains("created 251"), "{told}");
    assert_eq!(listed(on(&path, &list)), expected);
    assert_eq!(count(&path, "ready"), 1);
    for (args, code, expected) in [
        (&["import", "queue", "nothing", "--from", &url, "--yes"][..], 1, "no queue nothing"),
        (&["import", "queue", "orders", "--yes"], 2, "needs two queues"),
        (&["import", "queue", "a", "--from", "memory:", "--yes"], 2, "in memory"),
        (&["import", "queue", "orders#1", "--yes"], 2, "reserved for the shards"),
    ] {
        let told = at(&path, args).code(code).stderr;
        assert!(told.contains(expected), "{told}");
    }
}
