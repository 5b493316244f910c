//! `cargo xtask prove released`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use anyhow::{Context, Result, bail, ensure};
use delayline_test_server::Server;
use serde_json::Value;
use xshell::{Shell, cmd};

use crate::programs::Running;
use crate::{redis_server, workspace};

/// Messages that each version sends for the workers of both.
const MESSAGES: usize = 100;
/// More than a busy machine takes for them.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs the command of an earlier version and of this one on one queue, at the same time. The
/// earlier ones are the tags, branches or commits in `args`, otherwise the last release. They are
/// built from the repository, below the target directory, with the dependencies that they were
/// released with.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<()> {
    redis_server::ensure(shell)?;
    let revisions = match args {
        [] => vec![last_release(shell)?],
        args => args.to_vec(),
    };
    let target = workspace::target_directory(shell)?;
    cmd!(shell, "cargo build --package delayline-cli").run()?;
    let this = Version { name: "this version".to_owned(), command: target.join("debug/delayline") };
    for revision in revisions {
        let command = built(shell, &target, &revision)?;
        let that = Version { name: revision.clone(), command };
        for (one, other) in [(&that, &this), (&this, &that)] {
            side_by_side(one, other)
                .with_context(|| format!("{} beside {}", one.name, other.name))?;
        }
        println!("{revision} and this version have worked on one queue.");
    }
    Ok(())
}

fn last_release(shell: &Shell) -> Result<String> {
    let tags = cmd!(shell, "git tag --list v* --sort=-version:refname").read()?;
    let last = tags.lines().next().map(str::to_owned);
    last.context("nothing has been released: name a tag or a commit")
}

/// The command of a revision.
fn built(shell: &Shell, target: &Path, revision: &str) -> Result<PathBuf> {
    let of_tag = format!("{revision}^{{commit}}");
    let commit = cmd!(shell, "git rev-parse --verify --end-of-options {of_tag}").read()?;
    let place = target.join("released").join(&commit);
    let command = place.join("delayline");
    if command.exists() {
        return Ok(command);
    }
    shell.create_dir(&place)?;
    let (archive, sources) = (place.join("sources.tar"), place.join("sources"));
    shell.create_dir(&sources)?;
    cmd!(shell, "git archive --format=tar --output={archive} {commit}").run()?;
    cmd!(shell, "tar -xf {archive} -C {sources}").run()?;
    let (manifest, build) = (sources.join("Cargo.toml"), target.join("released/build"));
    cmd!(
        shell,
        "cargo build --locked --package delayline-cli --manifest-path {manifest} --target-dir {build}"
    )
    .run()?;
    shell.copy_file(build.join("debug/delayline"), &command)?;
    Ok(command)
}

/// A version of the command.
struct Version {
    name: String,
    command: PathBuf,
}

impl Version {
    fn command(&self, server: &Server, args: &[&str]) -> Command {
        let mut command = Command::new(&self.command);
        command.args(args).env("DELAYLINE_URL", server.url()).env("DELAYLINE_QUEUE", "orders");
        command.stdin(Stdio::null());
        command
    }

    /// Runs a verb to its end; returns its output.
    fn run(&self, server: &Server, args: &[&str]) -> Result<String> {
        let output = self.command(server, args).output()?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "{}: delayline {args:?}: {errors}", self.name);
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn count(&self, server: &Server, name: &str) -> Result<u64> {
        let text = self.run(server, &["stats", "--json"])?;
        let stats: Value = serde_json::from_str(text.lines().next().unwrap_or_default())?;
        stats[name].as_u64().with_context(|| format!("no {name} in {stats}"))
    }
}

/// What one version sends, lets die or holds, the other reads, changes and works on.
fn side_by_side(one: &Version, other: &Version) -> Result<()> {
    let server = Server::builder().tcp().try_start()?;
    let large = "x".repeat(10_000);
    let sends: [&[&str]; 8] = [
        &["--id", "plain", "--payload", "1", "--delay", "1h"],
        &["--id", "cancelled", "--payload", "1", "--delay", "1h"],
        &["--id", "urgent", "--payload", "1", "--priority", "urgent", "--header", "a=b"],
        &["--id", "large", "--payload", &large, "--expires-in", "1d"],
        &["--id", "updated", "--payload", "1", "--delay", "1h"],
        &["--id", "throttled", "--payload", "1", "--throttle", "1h"],
        &["--id", "limited", "--payload", "1", "--max-failures", "3", "--max-crashes", "2"],
        &["--id", "kept", "--payload", "1", "--keep-result", "1h"],
    ];
    for message in sends {
        one.run(&server, &[&["send"], message].concat())?;
    }
    for reader in [one, other] {
        let shown = reader.run(&server, &["get", "large"])?;
        ensure!(shown.contains("xxx"), "{} shows {shown}", reader.name);
    }
    other.run(&server, &["cancel", "cancelled"])?;
    other.run(&server, &["reschedule", "plain", "--delay", "0s"])?;
    let update = ["--id", "updated", "--payload", "2", "--update", "replace"];
    other.run(&server, &[&["send"], &update[..]].concat())?;

    // A dead letter of one is redriven by the other.
    one.run(&server, &["pause"])?;
    ensure!(other.run(&server, &["stats", "--json"])?.contains("\"paused\":true"), "not paused");
    other.run(&server, &["resume"])?;
    let mut sent = sends.len() as u64;
    one.run(&server, &["work", "--until-empty", "--exec", "true"])?;
    one.run(&server, &["send", "--id", "dying", "--payload", "1", "--max-failures", "1"])?;
    sent += 1;
    one.run(&server, &["work", "--until-empty", "--exec", "false"])?;
    ensure!(other.run(&server, &["dead", "list"])?.contains("dying"), "no dead letter");
    other.run(&server, &["dead", "redrive", "dying"])?;

    // Both send and work at once.
    let workers = [one, other].map(|version| {
        let mut worker = version.command(&server, &["work", "--exec", "true"]);
        worker.stdout(Stdio::null()).stderr(Stdio::null()).spawn().map(Running)
    });
    let workers = workers.into_iter().collect::<io::Result<Vec<_>>>()?;
    let folder = server.data_dir();
    for (name, version) in [("one", one), ("other", other)] {
        let line =
            |n| format!("{{\"id\":\"{name}-{n}\",\"payload\":{n},\"delay\":\"{}ms\"}}\n", n % 7);
        let file = folder.join(format!("{name}.jsonl"));
        fs::write(&file, (0..MESSAGES).map(line).collect::<String>())?;
        version.run(&server, &["send", "--file", &file.to_string_lossy()])?;
        sent += MESSAGES as u64;
    }
    // The cancelled message.
    let begin = Instant::now();
    while one.count(&server, "acked_total")? < sent - 1 {
        ensure!(begin.elapsed() < PATIENCE, "{}", other.run(&server, &["stats"])?);
        thread::sleep(Duration::from_millis(100));
    }
    drop(workers);
    for version in [one, other] {
        version.run(&server, &["check"])?;
        for (name, expected) in
            [("acked_total", sent - 1), ("cancelled_total", 1), ("ready", 0), ("leased", 0)]
        {
            let found = version.count(&server, name)?;
            if found != expected {
                bail!("{} counts {found} {name} instead of {expected}", version.name);
            }
        }
    }
    Ok(())
}
