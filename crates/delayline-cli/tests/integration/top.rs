//! `delayline top`, without a terminal.

use std::io::{BufRead as _, BufReader, Read as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::support::{full_pipe, on, run, send, send_signal, start, wait_until};
use delayline_test_server::Server;
use rustix::io::ioctl_fionread;
use serde_json::Value;

#[test]
fn one_table_has_all_queues_and_their_rates() {
    let server = Server::start();
    send(&server, &["--id", "a", "--payload", "x"]);
    send(&server, &["--queue", "texts", "--id", "b", "--payload", "x", "--delay", "1h"]);
    run(on(&server, &["--queue", "texts", "pause"])).code(0);
    let top = |args: &[&str]| {
        let mut command = on(&server, &[&["top", "--once", "--interval", "200ms"], args].concat());
        command.env_remove("DELAYLINE_QUEUE");
        run(command)
    };
    let ended = top(&[]).code(0);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert!(lines[0].starts_with("QUEUE") && lines[0].contains("SENT/S"), "{}", ended.stdout);
    // The queue with a message that waits is on top.
    assert!(lines[1].starts_with("orders") && lines[2].starts_with("texts"), "{}", ended.stdout);
    assert!(lines[2].ends_with("paused") && lines.len() == 3, "{}", ended.stdout);
    let rows = top(&["--json"]).code(0).lines();
    assert_eq!((&rows[0]["queue"], &rows[0]["ready"]), (&"orders".into(), &1.into()));
    assert_eq!(rows[1]["rates"]["sent"], 0);
    assert!(rows[1]["rates"]["in_ms"].as_u64().unwrap() >= 150);
    assert_eq!(top(&["--queue", "texts", "--json"]).code(0).lines().len(), 1);
}

#[test]
fn an_unreachable_server_is_reported_until_it_is_back() {
    let server = Server::start();
    send(&server, &["--id", "a", "--payload", "x"]);
    let mut top = start(&mut on(&server, &["top", "--json", "--interval", "200ms"]));
    let lines = BufReader::new(top.stdout.take().unwrap()).lines();
    let (counts, errors) = <(Arc<AtomicU32>, Arc<AtomicU32>)>::default();
    let seen = (Arc::clone(&counts), Arc::clone(&errors));
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let row: Value = serde_json::from_str(&line).unwrap();
            let kind = if row.get("error").is_some() { &seen.1 } else { &seen.0 };
            kind.fetch_add(1, Ordering::SeqCst);
        }
    });
    let counts = || counts.load(Ordering::SeqCst);
    wait_until("a count", || counts() > 0);
    server.kill();
    // Each table has a line, not only the first one.
    wait_until("errors", || errors.load(Ordering::SeqCst) > 2);
    let before = counts();
    server.restart();
    wait_until("another count", || counts() > before);
    send_signal(&top, "-TERM");
    assert_eq!(crate::support::ended(top).code, Some(0));
}

#[test]
fn a_queue_that_cannot_be_opened_has_a_line_until_it_can() {
    let server = Server::start();
    send(&server, &["--id", "a", "--payload", "x"]);
    let control = "delayline:{future}:control";
    server.command(&["SET", control, &"x".repeat(100)]);
    let mut command = on(&server, &["top", "--json", "--interval", "200ms"]);
    let mut top = start(command.env_remove("DELAYLINE_QUEUE"));
    let lines = BufReader::new(top.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut rows = lines.map(|line| serde_json::from_str::<Value>(&line).unwrap());
    let mut next = |queue: &str, has_error: bool| {
        rows.find(|row| row["queue"] == queue && row.get("error").is_some() == has_error).unwrap();
    };
    next("future", true);
    next("orders", false);
    server.command(&["DEL", control]);
    next("future", false);
    send_signal(&top, "-TERM");
    assert_eq!(crate::support::ended(top).code, Some(0));
}

#[test]
fn a_signal_ends_the_top_although_stdout_is_not_read() {
    let server = Server::start();
    // Together, their rows are longer than PIPE_BUF, so a part of them is written.
    for n in 0..16 {
        let name = format!("{n}-{}", "x".repeat(100));
        send(&server, &["--queue", &name, "--id", "a", "--payload", "x"]);
    }
    let (mut reader, writer) = full_pipe();
    let full = ioctl_fionread(&reader).unwrap();
    reader.read_exact(&mut [0; 4_096]).unwrap();
    let mut command = on(&server, &["top", "--json", "--interval", "200ms"]);
    let top = start(command.env_remove("DELAYLINE_QUEUE").stdout(writer));
    wait_until("it waits for room", || ioctl_fionread(&reader).unwrap() == full);
    send_signal(&top, "-TERM");
    assert_eq!(crate::support::ended(top).code, Some(0));
}

#[test]
fn missing_queues_and_servers_are_told_apart() {
    let server = Server::start();
    run(on(&server, &["top", "--once", "--queue", "absent"])).code(1);
    let mut command = on(&server, &["top", "--once"]);
    command.env_remove("DELAYLINE_QUEUE");
    assert_eq!(run(command).code(0).stderr, "no queues\n");
    let mut command = on(&server, &["top", "--once"]);
    command.env("DELAYLINE_URL", "redis://127.0.0.1:1").env_remove("DELAYLINE_QUEUE");
    assert_eq!(run(command).code(3).stdout, "");
}
