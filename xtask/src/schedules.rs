//! `cargo xtask prove schedules`.

use anyhow::Result;
use xshell::{Shell, cmd};

use crate::redis_server;

/// Kills and freezes schedulers on a real server, and counts their ticks.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<()> {
    let server = redis_server::ensure(shell)?;
    let _server = shell.push_env("REDIS_SERVER_BIN", &server);
    let fleet = ["--locked", "--quiet", "-p", "delayline-chaos", "--bin", "delayline-schedules"];
    cmd!(shell, "cargo run {fleet...} -- {args...}").run()?;
    Ok(())
}
