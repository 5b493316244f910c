//! `cargo xtask prove soak`.

use anyhow::Result;
use xshell::{Shell, cmd};

use crate::redis_server;

/// Runs programs on real servers for a long time, and judges what happens.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<()> {
    let server = redis_server::ensure(shell)?;
    let _server = shell.push_env("REDIS_SERVER_BIN", &server);
    let soak = ["--release", "--locked", "--quiet", "-p", "delayline-benches"];
    cmd!(shell, "cargo run {soak...} --bin delayline-soak -- {args...}").run()?;
    Ok(())
}
