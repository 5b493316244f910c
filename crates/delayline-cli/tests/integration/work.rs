//! `delayline work`.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{ChildStderr, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::support::{
    DRIVERS, Running, count, ended, full_pipe, on, run, run_with_input, send_signal, start,
    wait_until,
};
use delayline_test_server::Server;
use serde_json::Value;

/// Sends messages of these ids and delays.
fn send(server: &Server, messages: impl IntoIterator<Item = (String, u64)>) {
    let line = |(id, delay_ms)| {
        format!("{{\"id\": \"{id}\", \"payload\": \"{id}\", \"delay\": \"{delay_ms}ms\"}}\n")
    };
    let lines: String = messages.into_iter().map(line).collect();
    run_with_input(on(server, &["send", "--file", "-"]), lines.as_bytes()).code(0);
}

#[test]
fn deliveries_are_printed_as_json_and_acked() {
    for driver in DRIVERS {
        let server = Server::start();
        let input = br#"
            {"id": "a", "payload": "\u009b2J", "headers": {"shop": "9"}, "group": "t"}
            {"id": "b", "payload_base64": "/wA=", "delay": "300ms"}"#;
        run_with_input(on(&server, &["send", "--file", "-"]), input).code(0);
        let flags = ["--driver", driver, "work", "--until-empty"];
        let ended = run(on(&server, &flags)).code(0);
        let mut lines = ended.lines();
        // A machine that has much else to do may claim both at once.
        lines.sort_by_key(|line| line["id"].to_string());
        let [a, b] = &lines[..] else { panic!("{}", ended.stdout) };
        assert_eq!((&a["id"], &a["payload"]), (&"a".into(), &"\u{9b}2J".into()));
        assert!(!ended.stdout.contains('\u{9b}'), "it would steer a terminal");
        assert_eq!(
            (&a["headers"]["shop"], &a["group"], &b["group"]),
            (&"9".into(), &"t".into(), &Value::Null)
        );
        assert_eq!((&b["id"], &b["payload_base64"]), (&"b".into(), &"/wA=".into()));
        assert_eq!((&b["epoch"], &b["failures"], &b["crashes"]), (&1.into(), &0.into(), &0.into()));
        assert!(b["lateness_ms"].is_u64());
        assert!(b["due"].as_str().unwrap().ends_with('Z'));
        assert_eq!((count(&server, "acked_total"), count(&server, "leased")), (2, 0));
    }
}

#[test]
fn a_closed_stderr_stops_nothing_but_the_words() {
    let server = Server::start();
    let closed = |args: &[&str]| {
        let mut command = on(&server, args);
        command.stderr(std::io::pipe().unwrap().1);
        command
    };
    run(closed(&["send", "--id", "a", "--payload", "a"])).code(0);
    run(closed(&["list", "--limit", "1"])).code(0);
    run(closed(&["dead", "purge", "--all"])).code(0);
    run(closed(&["get", "unknown"])).code(1);
    let worker = start(&mut closed(&["work", "--exec", "true"]));
    wait_until("the ack", || count(&server, "acked_total") == 1);
    send_signal(&worker, "-TERM");
    ended(worker).code(0);
}

#[test]
fn a_command_acks_by_succeeding_and_is_tried_again_after_failing() {
    for driver in DRIVERS {
        let server = Server::start();
        let log = tempfile::tempdir().unwrap();
        send(&server, [("a".to_owned(), 0)]);
        let script = r#"
            payload=$(cat)
            echo "$DELAYLINE_ID $payload $DELAYLINE_ATTEMPT $DELAYLINE_HEADERS" >> "$0/log"
            echo oops >&2
            exit $((1 - DELAYLINE_FAILURES))"#;
        let directory = log.path().to_str().unwrap();
        let flags =
            ["--driver", driver, "work", "--until-empty", "--exec", "sh", "-c", script, directory];
        let ended = run(on(&server, &flags)).code(0);
        assert_eq!(fs::read_to_string(log.path().join("log")).unwrap(), "a a 1 {}\na a 2 {}\n");
        assert_eq!(ended.stderr, "oops\noops\n");
    }
}

#[test]
fn a_command_gets_the_id_and_the_group_of_its_message_and_no_other() {
    let server = Server::start();
    let lines = r#"{"id": "a", "payload": "", "group": "shop 9"}
{"id": "\u0000", "payload": "", "group": "\u0000"}
{"id": "c", "payload": ""}
"#;
    run_with_input(on(&server, &["send", "--file", "-"]), lines.as_bytes()).code(0);
    let script = r#"
        group=${DELAYLINE_GROUP-none}:$DELAYLINE_GROUP_BASE64
        echo "$DELAYLINE_ID:$DELAYLINE_ID_BASE64 $group""#;
    let flags = ["work", "--until-empty", "--concurrency", "1", "--exec", "sh", "-c", script];
    let mut work = on(&server, &flags);
    for name in ["ID", "ID_BASE64", "GROUP", "GROUP_BASE64"] {
        work.env(format!("DELAYLINE_{name}"), "of another message");
    }
    let mut said: Vec<_> = run(work).code(0).stdout.lines().map(str::to_owned).collect();
    said.sort();
    assert_eq!(said, [":AA== none:AA==", "a: shop 9:", "c: none:"]);
}

#[test]
fn what_a_command_prints_is_the_result_if_somebody_wants_it() {
    let server = Server::start();
    let lines = r#"{"id": "small", "payload": "7\n", "keep_result": "1h"}
{"id": "large", "payload": "yes | head -c 65537", "keep_result": "1h"}
{"id": "unasked", "payload": "7"}
"#;
    run_with_input(on(&server, &["send", "--file", "-"]), lines.as_bytes()).code(0);
    let script = r#"[ "$DELAYLINE_ID" = large ] && exec sh; cat; echo said >&2"#;
    let flags = ["work", "--until-empty", "--concurrency", "1", "--exec", "sh", "-c", script];
    let ended = run(on(&server, &flags)).code(0);
    assert!(ended.stdout.starts_with("7\n") && ended.stdout.ends_with("7"), "it is passed on");
    assert_eq!(ended.stdout.len(), 65_537 + 3);
    assert!(ended.stderr.contains("id=large limit=65536"), "{}", ended.stderr);
    for (id, result) in [("small", "7\n"), ("large", ""), ("unasked", "")] {
        assert_eq!(run(on(&server, &["wait", id])).code(0).stdout, result, "{id}");
    }
}

#[test]
fn a_part_of_a_result_is_not_kept_as_the_whole() {
    let server = Server::start();
    // The output of the first fills the pipe, which is not read.
    let lines = r#"{"id": "loud", "payload": "60000"}
{"id": "asked", "payload": "30000", "keep_result": "1h"}
"#;
    run_with_input(on(&server, &["send", "--file", "-"]), lines.as_bytes()).code(0);
    let script = r#"head -c "$(cat)" /dev/zero"#;
    let flags = ["work", "--until-empty", "--concurrency", "1", "--exec", "sh", "-c", script];
    let mut child = start(&mut on(&server, &flags));
    let (mut stderr, mut line) = (BufReader::new(child.stderr.take().unwrap()), String::new());
    while !line.contains("stdout is not being read; the result is not kept id=asked") {
        line.clear();
        assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "it has kept a part of it");
    }
    ended(child).code(0);
    assert_eq!(run(on(&server, &["wait", "asked"])).code(0).stdout, "");
}

#[test]
fn a_command_that_cannot_be_run_costs_no_message_its_life() {
    let server = Server::start();
    send(&server, [("a".to_owned(), 0)]);
    let ended = run(on(&server, &["work", "--exec", "/nowhere/close-order"])).code(2);
    assert!(ended.stderr.contains("/nowhere/close-order cannot be run"), "{}", ended.stderr);
    assert_eq!((count(&server, "ready"), count(&server, "dead")), (1, 0));
}

#[cfg(target_os = "linux")]
#[test]
fn a_machine_without_room_for_a_command_costs_no_message_its_life() {
    use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
    let server = Server::start();
    send(&server, [("a".to_owned(), 0)]);
    let child = start(&mut on(&server, &["work", "--exec", "true"]));
    wait_until("the first message is handled", || count(&server, "acked_total") == 1);
    let pid = Pid::from_raw(child.id().try_into().unwrap());
    let before = getrlimit(Resource::Nofile);
    let no_more = Rlimit { current: Some(3), maximum: before.maximum };
    prlimit(pid, Resource::Nofile, no_more).unwrap();
    crate::support::send(&server, &["--id", "b", "--payload", "x", "--max-failures", "1"]);
    wait_until("an attempt", || count(&server, "released_total") + count(&server, "dead") > 0);
    assert_eq!(count(&server, "dead"), 0);
    prlimit(pid, Resource::Nofile, before).unwrap();
    wait_until("the second message is handled", || count(&server, "acked_total") == 2);
    send_signal(&child, "-TERM");
    assert!(ended(child).code(0).stderr.contains("tried again in 1s"));
}

fn fifo(path: &Path) {
    use rustix::fs::{CWD, Mode, mkfifoat};
    mkfifoat(CWD, path, Mode::from_raw_mode(0o600)).unwrap();
}

/// A pipe with a name, which a command's processes hold open for as long as they live.
struct Lifeline {
    directory: tempfile::TempDir,
    ended: mpsc::Receiver<String>,
}

impl Lifeline {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pipe");
        fifo(&path);
        let (sender, ended) = mpsc::channel();
        std::thread::spawn(move || sender.send(fs::read_to_string(path).unwrap()));
        Self { directory, ended }
    }

    /// Starts a worker, and waits until it runs a command that writes `begun` and then does what
    /// `script` says.
    #[track_caller]
    fn at_work(&self, server: &Server, flags: &[&str], script: &str) -> Running {
        let script = format!(r#"exec > "$0/pipe"; echo begun; touch "$0/begun"; {script}"#);
        let mut work = Command::new("env");
        // On Linux, where SIGHUP is heard, the tests themselves may run under nohup.
        work.args(cfg!(target_os = "linux").then_some("--default-signal=HUP"));
        work.args([env!("CARGO_BIN_EXE_delayline"), "work"]);
        work.args(["--url", &server.url(), "--queue", "orders"]).args(flags);
        work.args(["--exec", "sh", "-c", &script, self.directory()]);
        work.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = start(&mut work);
        let begun = self.directory.path().join("begun");
        wait_until("the command", || begun.exists());
        child
    }

    /// A pipe with the name `go`, from which commands can read what is written to this end.
    fn go(&self) -> fs::File {
        let path = self.directory.path().join("go");
        fifo(&path);
        // Opened for reading and writing, so that opening it does not block.
        fs::File::options().read(true).write(true).open(path).unwrap()
    }

    fn directory(&self) -> &str {
        self.directory.path().to_str().unwrap()
    }

    /// What the processes wrote, once the last of them has ended.
    #[track_caller]
    fn last_words(&self) -> String {
        self.ended.recv_timeout(Duration::from_secs(60)).expect("a process runs on")
    }
}

#[test]
fn what_a_command_has_started_ends_before_its_message_is_tried_again() {
    let flags = ["work", "--until-empty", "--concurrency", "1", "--timeout"];
    // The time limits are long enough for the scripts to begin, and run out side by side.
    let cases = [
        // It waits for its child.
        ("8s", r#"sleep 600 > "$0/pipe" & wait"#, "timed out after 8s"),
        // Neither of them minds a gentle signal.
        ("8s", r#"trap '' TERM; sleep 600 > "$0/pipe" & wait"#, "timed out after 8s"),
        // It fails, and its child runs on.
        ("1h", r#"sleep 600 > "$0/pipe" & exit 3"#, "exit code 3"),
        // It has time to say goodbye.
        (
            "8s",
            r#"exec > "$0/pipe"; trap 'echo bye; echo sorry >&2; exit 1' TERM; sleep 600 & wait"#,
            "timed out after 8s: sorry",
        ),
    ];
    side_by_side(cases, |(limit, script, error)| {
        let server = Server::start();
        let lifeline = Lifeline::new();
        crate::support::send(&server, &["--id", "a", "--payload", "x", "--max-failures", "1"]);
        let mut work = on(&server, &flags);
        work.args([limit, "--exec", "sh", "-c", script, lifeline.directory()]);
        run(work).code(0);
        let words = lifeline.last_words();
        assert_eq!(words, if script.contains("bye") { "bye\n" } else { "" }, "{script}");
        let get = run(on(&server, &["get", "a", "--json"])).code(0).lines();
        assert_eq!(get[0]["last_error"], error, "{script}");
    });
}

#[test]
fn what_a_command_leaves_behind_can_still_write() {
    let server = Server::start();
    let lifeline = Lifeline::new();
    let mut go = lifeline.go();
    send(&server, [("a".to_owned(), 0)]);
    let script = r#"{ read go < "$0/go"; echo late >&2; echo alive; } &"#;
    let mut child = lifeline.at_work(&server, &[], script);
    wait_until("the message is handled", || count(&server, "acked_total") == 1);
    go.write_all(b"go\n").unwrap();
    assert_eq!(lifeline.last_words(), "begun\nalive\n");
    let (mut stderr, mut late) = (BufReader::new(child.stderr.take().unwrap()), String::new());
    stderr.read_line(&mut late).unwrap();
    assert_eq!(late, "late\n");
    send_signal(&child, "-TERM");
    ended(child).code(0);
}

#[test]
fn a_stop_does_not_undo_the_success_of_a_command() {
    let server = Server::start();
    let lifeline = Lifeline::new();
    let mut go = lifeline.go();
    send(&server, [("a".to_owned(), 0)]);
    // The process left behind holds the command's stderr open.
    let script = r#"{ read go < "$0/go"; echo alive; } & echo $$ > "$0/new"; mv "$0/new" "$0/id""#;
    let child = lifeline.at_work(&server, &["--grace", "0s"], script);
    let id = lifeline.directory.path().join("id");
    wait_until("the command's id", || id.exists());
    let id = fs::read_to_string(id).unwrap().trim().parse().unwrap();
    let id = rustix::process::Pid::from_raw(id).unwrap();
    wait_until("the command's end", || rustix::process::test_kill_process(id).is_err());
    send_signal(&child, "-TERM");
    ended(child).code(0);
    assert_eq!((count(&server, "acked_total"), count(&server, "released_total")), (1, 0));
    go.write_all(b"go\n").unwrap();
    assert_eq!(lifeline.last_words(), "begun\nalive\n");
}

/// Runs a test for each case, at the same time.
fn side_by_side<T: Send>(cases: impl IntoIterator<Item = T>, test: impl Fn(T) + Sync) {
    let test = &test;
    std::thread::scope(|scope| {
        for case in cases {
            scope.spawn(move || test(case));
        }
    });
}

#[test]
fn a_command_that_is_ended_by_a_stop_costs_its_message_nothing() {
    for signal in ["-TERM"].into_iter().chain(cfg!(target_os = "linux").then_some("-HUP")) {
        let server = Server::start();
        let lifeline = Lifeline::new();
        crate::support::send(&server, &["--id", "a", "--payload", "x"]);
        let child = lifeline.at_work(&server, &["--grace", "100ms"], "sleep 600");
        send_signal(&child, signal);
        ended(child).code(0);
        assert_eq!(lifeline.last_words(), "begun\n");
        let get = run(on(&server, &["get", "a", "--json"])).code(0).lines();
        let (state, error) = (&get[0]["state"], &get[0]["last_error"]);
        assert_eq!((state, &get[0]["failures"], error), (&"ready".into(), &0.into(), &Value::Null));
    }
}

#[test]
fn a_worker_under_nohup_survives_the_terminal() {
    let server = Server::start();
    let mut under = Command::new("sh");
    under.args(["-c", r#"trap '' HUP; exec "$0" "$@""#, env!("CARGO_BIN_EXE_delayline")]);
    under.args(["--url", &server.url(), "--queue", "orders", "work"]);
    let child = start(under.stdout(Stdio::piped()).stderr(Stdio::piped()));
    send(&server, [("a".to_owned(), 0)]);
    wait_until("the first message is handled", || count(&server, "acked_total") == 1);
    send_signal(&child, "-HUP");
    send(&server, [("b".to_owned(), 0)]);
    wait_until("the second message is handled", || count(&server, "acked_total") == 2);
    send_signal(&child, "-TERM");
    ended(child).code(0);
}

#[test]
fn commands_learn_their_queue_the_url_only_if_they_are_to_and_the_secret_never() {
    let server = Server::start();
    let log = tempfile::NamedTempFile::new().unwrap();
    let path = log.path().to_str().unwrap();
    let script = r#"
        secrets=$DELAYLINE_POST_SECRET$DELAYLINE_FROM_URL$DELAYLINE_PROMETHEUS
        echo "${DELAYLINE_URL:-none} $DELAYLINE_QUEUE $secrets" >> "$0""#;
    for flags in [&["work", "--until-empty"][..], &["work", "--until-empty", "--pass-url"]] {
        crate::support::send(&server, &["--payload", "x"]);
        let mut work = on(&server, flags);
        work.args(["--queue", "orders", "--exec", "sh", "-c", script, path]);
        work.env("DELAYLINE_QUEUE", "other");
        work.env("DELAYLINE_POST_SECRET", "hunter2hunter2hunter2");
        work.env("DELAYLINE_FROM_URL", "redis://:hunter2@old");
        work.env("DELAYLINE_PROMETHEUS", "http://me:hunter2@prometheus");
        run(work).code(0);
    }
    let expected = format!("none orders \n{} orders \n", server.url());
    assert_eq!(fs::read_to_string(path).unwrap(), expected);
    run(on(&server, &["work", "--pass-url"])).code(2);
}

#[test]
fn a_closed_stdout_ends_the_work_without_acking_what_was_not_printed() {
    let server = Server::start();
    // More than a pipe holds.
    let payload = "x".repeat(200_000);
    let lines: String =
        (0..10).map(|n| format!("{{\"id\": \"{n}\", \"payload\": \"{payload}\"}}\n")).collect();
    run_with_input(on(&server, &["send", "--file", "-"]), lines.as_bytes()).code(0);
    let mut child = start(&mut on(&server, &["work", "--concurrency", "1"]));
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    stdout.read_line(&mut first).unwrap();
    drop(stdout);
    let ended = ended(child).code(0);
    assert_eq!(ended.stderr, "");
    assert_eq!(count(&server, "leased"), 0);
    // The second may or may not have been written before the pipe was closed.
    assert!(count(&server, "ready") >= 8, "{}", count(&server, "ready"));
    let mut without = Command::new("sh");
    let program = env!("CARGO_BIN_EXE_delayline");
    without.args(["-c", "exec \"$0\" \"$@\" >&-", program, "--url", &server.url()]);
    without.args(["--queue", "orders", "work", "--until-empty"]).stderr(Stdio::piped());
    assert!(run(without).code(5).stderr.contains("stdout is closed"));
    assert!(count(&server, "ready") >= 8);
}

#[test]
fn work_until_empty_without_rights_ends() {
    let server = Server::start();
    crate::support::send(&server, &["--payload", "x"]);
    let line = run(on(&server, &["acl", "worker", "--user", "app"])).code(0).stdout;
    server.command(&line.split_whitespace().collect::<Vec<_>>());
    server.command(&["ACL", "SETUSER", "app", ">secret", "-zadd"]);
    for driver in DRIVERS {
        let mut work = on(&server, &["--driver", driver, "work", "--until-empty"]);
        work.env("DELAYLINE_URL", server.url_with_login("app", "secret"));
        let ended = run(work).code(3);
        assert!(ended.stderr.contains("access rules"), "{}", ended.stderr);
        assert!(ended.stderr.lines().count() <= 8, "{}", ended.stderr);
    }
    assert_eq!(count(&server, "ready"), 1);
}

#[test]
fn work_on_a_paused_queue_says_so() {
    let server = Server::start();
    for driver in DRIVERS {
        run(on(&server, &["pause", "--create"])).code(0);
        let paused = run(on(&server, &["--driver", driver, "work", "--until-empty"])).code(0);
        assert_eq!(paused.stderr.matches("the queue is paused").count(), 1, "{}", paused.stderr);
        run(on(&server, &["resume"])).code(0);
        let running = run(on(&server, &["--driver", driver, "work", "--until-empty"])).code(0);
        assert_eq!(running.stderr, "");
    }
}

#[test]
fn logs_in_a_pipe_have_no_colours_and_name_the_queue() {
    let server = Server::start();
    let id = "a\u{202e}b";
    crate::support::send(&server, &["--id", id, "--payload", "x", "--max-failures", "1"]);
    let ended = run(on(&server, &["-vv", "work", "--until-empty", "--exec", "false"])).code(0);
    assert!(ended.stderr.contains("dead letter"), "{}", ended.stderr);
    assert!(ended.stderr.contains("queue=\"orders\"") && ended.stderr.contains("a\\u{202e}b"));
    assert!(!ended.stderr.contains(['\u{1b}', '\u{202e}']), "{:?}", ended.stderr);
    let stats = run(on(&server, &["-vv", "stats"])).code(0);
    assert!(stats.stderr.contains("stats"), "{}", stats.stderr);
}

/// Asks a worker to stop, and waits until it has heard. The rest follows here.
#[track_caller]
fn stop(child: &mut Running, signal: &str) -> BufReader<ChildStderr> {
    send_signal(child, signal);
    let (mut stderr, mut answer) = (BufReader::new(child.stderr.take().unwrap()), String::new());
    stderr.read_line(&mut answer).unwrap();
    assert!(answer.contains("send the signal again to stop at once"), "{answer}");
    stderr
}

#[test]
fn sigterm_lets_a_command_finish() {
    let server = Server::start();
    let lifeline = Lifeline::new();
    let mut go = lifeline.go();
    send(&server, [("a".to_owned(), 0), ("b".to_owned(), 3_600_000)]);
    let mut child = lifeline.at_work(&server, &["--grace", "1h"], r#"read go < "$0/go""#);
    let _stderr = stop(&mut child, "-TERM");
    go.write_all(b"go\n").unwrap();
    lifeline.last_words();
    ended(child).code(0);
    assert_eq!((count(&server, "acked_total"), count(&server, "scheduled")), (1, 1));
}

#[test]
fn a_signal_ends_the_work_although_stderr_is_not_read() {
    let server = Server::start();
    send(&server, [("a".to_owned(), 0)]);
    let (_reader, writer) = full_pipe();
    let child = start(on(&server, &["work"]).stderr(writer));
    wait_until("the message is handled", || count(&server, "acked_total") == 1);
    send_signal(&child, "-TERM");
    ended(child).code(0);
}

#[test]
fn a_second_signal_does_not_wait() {
    let server = Server::start();
    let lifeline = Lifeline::new();
    send(&server, [("a".to_owned(), 0)]);
    let mut child = lifeline.at_work(&server, &["--grace", "1h"], "sleep 600");
    let _stderr = stop(&mut child, "-INT");
    send_signal(&child, "-INT");
    lifeline.last_words();
    ended(child).code(0);
    assert_eq!((count(&server, "ready"), count(&server, "leased")), (1, 0));
}

#[test]
fn a_test_that_fails_leaves_neither_its_worker_nor_what_that_runs() {
    let server = Server::start();
    let lifeline = Lifeline::new();
    send(&server, [("a".to_owned(), 0)]);
    drop(lifeline.at_work(&server, &["--grace", "1h"], "sleep 600"));
    lifeline.last_words();
}
