//! `delayline demo`.

use std::io::{BufRead as _, BufReader};

use crate::support::{bare, ended, run, send_signal, start};

#[test]
fn the_demo_needs_no_server_and_shows_a_recovery_and_a_dead_letter() {
    let mut demo = bare(&["demo"]);
    let directory = tempfile::tempdir().unwrap();
    demo.env("DELAYLINE_URL", "redis://127.0.0.1:1").env("TMPDIR", directory.path());
    let ended = run(demo).code(0);
    for words in [
        "That process was killed.",
        "order-1003  attempt 3",
        "order-1004  was paid",
        "order-1005 is a dead letter after 2 failures: there is no such customer",
        "deliveries 8, closed 4, failures 4, dead letters 1, cancelled 1, early 0",
    ] {
        assert!(ended.stdout.contains(words), "{words}:\n{}", ended.stdout);
    }
    assert_eq!(ended.stderr, "");
    // It was killed after the first attempt, and the next process has gone on.
    let (before, after) = ended.stdout.split_once("That process was killed.").unwrap();
    assert!(before.contains("order-1003  attempt 1") && after.contains("order-1003  attempt 2"));
    let left = std::fs::read_dir(&directory).unwrap().count();
    assert_eq!(left, 0, "it leaves nothing behind");
}

#[test]
fn an_ended_demo_leaves_no_process() {
    for (signal, code) in [("-TERM", Some(1)), ("-KILL", None)] {
        let directory = tempfile::tempdir().unwrap();
        let mut demo = start(bare(&["demo"]).env("TMPDIR", directory.path()));
        let mut stdout = BufReader::new(demo.stdout.take().unwrap());
        stdout.read_line(&mut String::new()).unwrap();
        send_signal(&demo, signal);
        // The other process holds stderr open as well.
        let ended = ended(demo);
        assert_eq!(ended.code, code);
        let left = std::fs::read_dir(&directory).unwrap().count();
        assert!(left == 0 || signal == "-KILL", "{}", ended.stderr);
    }
}

#[test]
fn help_tells_the_exit_codes_and_no_secrets() {
    let mut help = bare(&["--help"]);
    help.env("DELAYLINE_URL", "redis://:hunter2@localhost");
    let ended = run(help).code(0);
    assert!(ended.stdout.contains("Exit codes:"), "{}", ended.stdout);
    assert!(!ended.stdout.contains("hunter2"), "{}", ended.stdout);
}
