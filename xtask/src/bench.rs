//! `cargo xtask bench`.

use anyhow::Result;
use xshell::{Shell, cmd};

use crate::redis_server;

/// Measures whole systems on private servers.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<()> {
    let server = redis_server::ensure(shell)?;
    let _server = shell.push_env("REDIS_SERVER_BIN", &server);
    let bench = ["--release", "--locked", "--quiet", "-p", "delayline-benches"];
    cmd!(shell, "cargo run {bench...} --bin delayline-bench -- {args...}").run()?;
    Ok(())
}
