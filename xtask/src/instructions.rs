//! `cargo xtask prove instructions`.

use anyhow::{Result, ensure};
use xshell::{Shell, cmd};

use crate::redis_server;

/// Compares the server's instructions for each operation with those on the page.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<()> {
    ensure!(args.is_empty(), "`instructions` takes no arguments");
    let server = redis_server::ensure(shell)?;
    if !redis_server::on_path("valgrind") {
        redis_server::install(shell, "valgrind")?;
    }
    let _server = shell.push_env("REDIS_SERVER_BIN", &server);
    // Only the server is counted, so the client needs no optimised build.
    let bench = ["--locked", "--quiet", "-p", "delayline-benches", "--bin", "delayline-bench"];
    cmd!(shell, "cargo run {bench...} -- instructions --compare {PAGE}").run()?;
    Ok(())
}

const PAGE: &str = "docs/benchmarks/instructions";
