//! BullMQ itself, in a Node.js process that reads one command per line.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use delayline_benches::PAYLOAD_BYTES;
use delayline_test_server::Server;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::load::TASKS;
use crate::measure::Peer;

pub(crate) struct Bullmq {
    _child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// What `npm ci` needs, and the program.
const FILES: [&str; 3] = ["package.json", "package-lock.json", "bench.mjs"];

impl Peer for Bullmq {
    async fn open(server: &Server) -> Result<Self> {
        let program = install().await?.join("bench.mjs");
        let [port, tasks, payload] =
            [usize::from(server.port()), TASKS, PAYLOAD_BYTES].map(|number| number.to_string());
        let mut child = Command::new("node")
            .args([program.as_os_str(), port.as_ref(), tasks.as_ref(), payload.as_ref()])
            .env("NODE_ENV", "production")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("starting node")?;
        let input = child.stdin.take().context("the child has an input")?;
        let output = BufReader::new(child.stdout.take().context("the child has an output")?);
        let mut peer = Self { _child: child, input, output };
        peer.answer().await?;
        Ok(peer)
    }

    async fn send(&mut self, messages: usize) -> Result<()> {
        let sent = self.ask(&format!("send {messages}")).await?;
        ensure!(sent == messages, "{sent} were sent");
        Ok(())
    }

    async fn send_in_bulk(&mut self, messages: usize) -> Result<bool> {
        let sent = self.ask(&format!("bulk {messages}")).await?;
        ensure!(sent == messages, "{sent} were sent");
        Ok(true)
    }

    async fn work(&mut self, messages: usize) -> Result<usize> {
        self.ask(&format!("work {messages}")).await
    }

    async fn unfinished(&mut self) -> Result<usize> {
        self.ask("waiting").await
    }
}

impl Bullmq {
    async fn ask(&mut self, line: &str) -> Result<usize> {
        let line = format!("{line}\n");
        self.input.write_all(line.as_bytes()).await.context("writing to node")?;
        self.answer().await
    }

    async fn answer(&mut self) -> Result<usize> {
        let mut line = String::new();
        self.output.read_line(&mut line).await.context("reading from node")?;
        let answer: Value = serde_json::from_str(&line).with_context(|| format!("{line:?}"))?;
        let messages = answer["messages"].as_u64().context("an answer without a number")?;
        Ok(usize::try_from(messages)?)
    }
}

/// Installs the packages of the lock file with npm, unless they are installed. Returns where.
///
/// Below `target`, not next to the sources: our rules do not apply to the packages.
async fn install() -> Result<PathBuf> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("bullmq");
    let target = env::current_exe()?;
    let target = target.parent().and_then(Path::parent).context("a program has a directory")?;
    let folder = target.join("bullmq");
    fs::create_dir_all(&folder)?;
    let locked = fs::read(sources.join("package-lock.json"))?;
    let installed = folder.join("node_modules/.lock-of-this");
    let current = fs::read(&installed).is_ok_and(|lock| lock == locked);
    for file in FILES {
        fs::copy(sources.join(file), folder.join(file)).with_context(|| file.to_owned())?;
    }
    if !current {
        let ended = Command::new("npm")
            .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error"])
            .current_dir(&folder)
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .status()
            .await
            .context("starting npm")?;
        ensure!(ended.success(), "npm ci: {ended}");
        fs::write(installed, locked)?;
    }
    Ok(folder)
}
