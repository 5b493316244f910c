//! `cargo xtask chaos`.

use anyhow::{Result, ensure};
use xshell::{Shell, cmd};

use crate::programs::Programs;
use crate::redis_server;

/// Torments real servers, which it needs to have.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<()> {
    let server = redis_server::ensure(shell)?;
    let _server = shell.push_env("REDIS_SERVER_BIN", &server);
    cmd!(shell, "cargo run --locked --quiet -p delayline-chaos -- {args...}").run()?;
    Ok(())
}

/// The same with a program that is built, and the server that the environment names.
pub(crate) fn run_built(programs: &Programs) -> Result<()> {
    let status = programs.command("crates/delayline-chaos/src/main.rs")?.command().status()?;
    ensure!(status.success(), "chaos: {status}");
    Ok(())
}
