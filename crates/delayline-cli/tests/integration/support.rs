//! Runs the command.

#![allow(unreachable_pub, reason = "the tests are one crate")]

pub mod old;
pub mod terminal;

use std::io::{BufRead as _, BufReader, PipeReader, PipeWriter, Read as _, Write as _, pipe};
use std::net::TcpStream;
use std::ops::{Deref, DerefMut};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use delayline_test_server::Server;
use rustix::io::ioctl_fionbio;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub const DRIVERS: [&str; 2] = ["redis", "fred"];

/// The command, without what this process's environment says.
pub fn bare(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_delayline"));
    command.args(args).env_remove("DELAYLINE_URL").env_remove("DELAYLINE_QUEUE");
    command.env_remove("DELAYLINE_SENTINEL_PASSWORD");
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

/// A running command. It does not outlive a test that fails.
pub struct Running(Option<Child>);

pub fn start(command: &mut Command) -> Running {
    Running(Some(command.spawn().unwrap()))
}

impl Deref for Running {
    type Target = Child;

    fn deref(&self) -> &Child {
        self.0.as_ref().unwrap()
    }
}

impl DerefMut for Running {
    fn deref_mut(&mut self) -> &mut Child {
        self.0.as_mut().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(mut child) = self.0.take() else { return };
        // At a second signal a worker ends its commands, which would survive a kill.
        for _ in 0..400 {
            if !matches!(child.try_wait(), Ok(None)) {
                return;
            }
            let _ = kill_process(Pid::from_child(&child), Signal::TERM);
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = child.kill();
        let _ = child.wait();
    }
}

pub fn run(mut command: Command) -> Ended {
    ended(start(&mut command))
}

pub fn run_with_input(mut command: Command, input: &[u8]) -> Ended {
    let mut child = start(command.stdin(Stdio::piped()));
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // The command may end before it has read everything.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let ended = ended(child);
    writer.join().unwrap();
    ended
}

pub fn ended(mut child: Running) -> Ended {
    let output = child.0.take().unwrap().wait_with_output().unwrap();
    let Output { status, stdout, stderr } = output;
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

    /// Whether it was refused because the server has no such queue.
    pub fn is_unknown_queue(&self) -> bool {
        self.code == Some(1) && self.stderr.contains(" has no queue orders")
    }

    /// The lines of stdout as JSON.
    #[track_caller]
    pub fn lines(&self) -> Vec<Value> {
        self.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// One number of `stats --json`; 0 if there is no such queue.
#[track_caller]
pub fn count(server: &Server, name: &str) -> u64 {
    let stats = run(on(server, &["stats", "--json"]));
    if stats.is_unknown_queue() {
        return 0;
    }
    stats.code(0).lines()[0][name].as_u64().unwrap()
}

/// Creates the queue `orders`, without a message.
#[track_caller]
pub fn create(server: &Server) {
    run(on(server, &["pause", "--create"])).code(0);
    run(on(server, &["resume"])).code(0);
}

/// Waits until a condition holds.
#[track_caller]
pub fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what} did not happen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until `serve` listens, and returns the addresses that it prints.
#[track_caller]
pub fn listening<const N: usize>(mut child: Running) -> (Running, [String; N]) {
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    let addresses = std::array::from_fn(|_| {
        let line = lines.next().unwrap().unwrap();
        let address = line.strip_prefix("http://").and_then(|it| it.strip_suffix('/'));
        address.unwrap_or_else(|| panic!("{line:?}")).to_owned()
    });
    drop(lines);
    (child, addresses)
}

/// Sends a request with these lines, and returns the status and the whole response.
pub fn ask(address: &str, head: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let length = body.len();
    let request = format!("{head}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("{answer:?}")), answer)
}

/// Requests a path, and returns the status and the whole response.
pub fn get(address: &str, path: &str) -> (u16, String) {
    ask(address, &format!("GET {path} HTTP/1.1\r\nhost: {address}"), "")
}

/// The lines of a request that posts JSON to the queue `orders`. Its path ends with `verb`.
pub fn post(address: &str, verb: &str) -> String {
    let kind = "content-type: application/json";
    format!("POST /api/v1/queues/orders/{verb} HTTP/1.1\r\nhost: {address}\r\n{kind}")
}

/// How many connections the server at an address has that it has read a request from.
pub fn served(address: &str) -> u64 {
    let port: u16 = address.rsplit(':').next().unwrap().parse().unwrap();
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let local = format!("0100007F:{port:04X}");
    // 01 is ESTABLISHED. A request that was read has left the queue of received bytes.
    let is_served = |line: &&str| {
        let mut fields = line.split_whitespace().skip(1);
        let (own, _, state) = (fields.next(), fields.next(), fields.next());
        let unread = fields.next().and_then(|it| it.split(':').nth(1)) != Some("00000000");
        own == Some(&*local) && state == Some("01") && !unread
    };
    table.lines().filter(is_served).count().try_into().unwrap()
}

/// A pipe without room, for an output that is not read.
pub fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = pipe().unwrap();
    // Both ends would be so for the command as well.
    ioctl_fionbio(&writer, true).unwrap();
    while writer.write(&[b'\n'; 4_096]).is_ok() {}
    ioctl_fionbio(&writer, false).unwrap();
    (reader, writer)
}

pub fn send_signal(child: &Child, signal: &str) {
    let signal = match signal {
        "-HUP" => Signal::HUP,
        "-INT" => Signal::INT,
        "-TERM" => Signal::TERM,
        "-KILL" => Signal::KILL,
        other => panic!("{other}"),
    };
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Sends a message.
#[track_caller]
pub fn send(server: &Server, flags: &[&str]) {
    run(on(server, &[&["send"], flags].concat())).code(0);
}

/// Sends messages that fail at once, and lets them: `bad-0`, `bad-1` and so on, which say `words`.
#[track_caller]
pub fn let_die(server: &Server, count: usize, words: &str) {
    let lines: String = (0..count)
        .map(|n| format!("{{\"id\": \"bad-{n}\", \"payload\": {n}, \"max_failures\": 1}}\n"))
        .collect();
    run_with_input(on(server, &["send", "--file", "-"]), lines.as_bytes()).code(0);
    let mut work = on(server, &["work", "--until-empty", "--concurrency", "4", "--exec"]);
    work.args(["sh", "-c", "printf '%s' \"$WORDS\" >&2; exit 3"]).env("WORDS", words);
    run(work).code(0);
    assert_eq!(self::count(server, "dead"), count as u64);
}

/// What a hostile sender would write: it clears screens, fakes lines, and turns the direction.
pub const HOSTILE: &str = "\u{1b}[2Jx\r\nstate ready\u{9b}31m\u{202e}\u{7}";

/// Checks that nothing of it reaches a terminal.
#[track_caller]
pub fn harmless(text: &str) {
    let bad = |c: char| c != '\n' && c.is_control() || c == '\u{202e}';
    assert!(!text.chars().any(bad), "{text:?}");
    assert!(!text.lines().any(|line| line.starts_with("state ready")), "{text}");
}
