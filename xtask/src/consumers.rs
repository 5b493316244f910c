//! `cargo xtask prove consumers`.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use delayline_test_server::{Reply, Server};
use xshell::{Shell, cmd};

use crate::programs::Running;
use crate::{packages, redis_server, workspace};

/// What a consumer prints of the messages that are sent.
const EXPECTED: [&str; 3] = ["order-1 first", "order-2 second", "order-3 third"];

/// Runs the consumers of crates/delayline/docs/guides/relay.md as they are printed there, on a
/// stream that a relay feeds. Gets their packages from PyPI and npm, below the target directory.
pub(crate) fn run(shell: &Shell) -> Result<()> {
    redis_server::ensure(shell)?;
    let guide = shell.read_file("crates/delayline/docs/guides/relay.md")?;
    let target = workspace::target_directory(shell)?;
    let place = target.join("consumers");
    shell.create_dir(&place)?;
    cmd!(shell, "cargo build --package delayline-cli").run()?;
    let delayline = target.join("debug/delayline");
    let consumers = [python(shell, &place, &guide)?, node(shell, &place, &guide)?];
    for (name, consumer) in ["Python", "Node"].into_iter().zip(consumers) {
        feed(&delayline, consumer).with_context(|| format!("the consumer in {name}"))?;
        println!("The consumer in {name} got all messages.");
    }
    Ok(())
}

fn python(shell: &Shell, place: &Path, guide: &str) -> Result<Command> {
    let file = place.join("consumer.py");
    shell.write_file(&file, block(guide, "python")?)?;
    let mut command = Command::new(packages::python(shell, place, &["redis"])?);
    command.arg("-u").arg(file);
    Ok(command)
}

fn node(shell: &Shell, place: &Path, guide: &str) -> Result<Command> {
    let file = place.join("consumer.mjs");
    shell.write_file(&file, block(guide, "javascript")?)?;
    packages::node(shell, place, &["redis"])?;
    let mut command = Command::new("node");
    command.arg(file);
    Ok(command)
}

/// The code of the guide in this language.
fn block<'a>(guide: &'a str, language: &str) -> Result<&'a str> {
    let begin = format!("```{language}\n");
    let code = guide.split_once(&begin).and_then(|(_, rest)| rest.split_once("```\n"));
    code.map(|(code, _)| code).with_context(|| format!("the guide has no code in {language}"))
}

/// Relays messages to a stream that the consumer reads, and compares its output.
fn feed(delayline: &Path, mut consumer: Command) -> Result<()> {
    let server = Server::builder().tcp().try_start()?;
    let url = server.url();
    let run = |args: &[&str]| -> Result<()> {
        let mut command = Command::new(delayline);
        command.args(args).env("DELAYLINE_URL", &url).env("DELAYLINE_QUEUE", "orders");
        ensure!(command.status()?.success(), "delayline {args:?} failed");
        Ok(())
    };
    consumer.env("REDIS_URL", &url).stdout(Stdio::piped());
    let mut running = Running(consumer.spawn()?);
    let lines = running.0.stdout.take().map(BufReader::new).context("no output")?.lines();
    let (sender, printed) = mpsc::channel();
    thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
    for line in EXPECTED {
        let (id, payload) = line.split_once(' ').unwrap_or_default();
        run(&["send", "--id", id, "--payload", payload, "--delay", "50ms"])?;
        run(&["relay", "--to-stream", STREAM, "--until-empty"])?;
    }
    for expected in EXPECTED {
        let line = printed.recv_timeout(PATIENCE).context("it printed too little")?;
        ensure!(line == expected, "it printed {line:?} instead of {expected:?}");
    }
    let begin = Instant::now();
    while server.command(&["XLEN", STREAM]) != Reply::Int(0) {
        ensure!(begin.elapsed() < PATIENCE, "it does not delete what it has acknowledged");
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

const STREAM: &str = "due-orders";
const PATIENCE: Duration = Duration::from_secs(30);
