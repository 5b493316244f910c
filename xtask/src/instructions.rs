//! `cargo xtask prove instructions`.

use anyhow::{Result, bail, ensure};
use xshell::{Shell, cmd};

use crate::redis_server;

/// Compares the server's instructions for each operation with those on the page.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<()> {
    ensure!(args.is_empty(), "`instructions` takes no arguments");
    prepare(shell)?;
    compare(shell)?.map_or(Ok(()), |why| bail!(why))
}

/// Gets the program that counts.
pub(crate) fn prepare(shell: &Shell) -> Result<()> {
    let is_there = redis_server::on_path("valgrind");
    if is_there { Ok(()) } else { redis_server::install(shell, "valgrind") }
}

/// The same. Returns the reason if nothing can be compared here.
pub(crate) fn compare(shell: &Shell) -> Result<Option<String>> {
    let server = redis_server::ensure(shell)?;
    let _server = shell.push_env("REDIS_SERVER_BIN", &server);
    // Only the server is counted, so the client needs no optimised build.
    let bench = ["--locked", "--quiet", "-p", "delayline-benches", "--bin", "delayline-bench"];
    let compare = cmd!(shell, "cargo run {bench...} -- instructions --compare {PAGE}");
    let output = compare.ignore_status().output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}");
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(text.lines().find(|line| line.starts_with("not compared: ")).map(str::to_owned))
}

const PAGE: &str = "docs/benchmarks/instructions";
