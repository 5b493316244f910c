//! Runs the command.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

use std::io::Write as _;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use delayline_test_server::Server;
use serde_json::Value;

pub const DRIVERS: [&str; 2] = ["redis", "fred"];

/// The command, without what this process's environment says.
pub fn bare(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_delayline"));
    command.args(args).env_remove("DELAYLINE_URL").env_remove("DELAYLINE_QUEUE");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The command on a server's queue `orders`.
pub fn on(server: &Server, args: &[&str]) -> Command {
    let mut command = bare(args);
    command.env("DELAYLINE_URL", server.url()).env("DELAYLINE_QUEUE", "orders");
    command
}

/// How a command has ended.
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

pub fn run(mut command: Command) -> Ended {
    ended(command.spawn().unwrap())
}

pub fn run_with_input(mut command: Command, input: &[u8]) -> Ended {
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // The command may end before it has read everything.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let ended = ended(child);
    writer.join().unwrap();
    ended
}

pub fn ended(child: Child) -> Ended {
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
}

impl Ended {
    /// Checks the exit code.
    #[track_caller]
    pub fn code(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }

    /// The lines of stdout as JSON.
    #[track_caller]
    pub fn lines(&self) -> Vec<Value> {
        self.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// One number of `stats --json`.
#[track_caller]
pub fn count(server: &Server, name: &str) -> u64 {
    run(on(server, &["stats", "--json"])).code(0).lines()[0][name].as_u64().unwrap()
}

/// Waits until a condition holds.
#[track_caller]
pub fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what} did not happen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub fn send_signal(child: &Child, signal: &str) {
    let kill = Command::new("kill").args([signal, &child.id().to_string()]).status();
    assert!(kill.unwrap().success());
}
