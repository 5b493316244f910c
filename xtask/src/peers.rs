//! `cargo xtask bench peers`.

use anyhow::Result;
use xshell::{Shell, cmd};

use crate::redis_server;

/// Measures Delayline and other queues on private servers.
///
/// In a separate workspace, because nothing else needs the other queues.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<()> {
    let server = redis_server::ensure(shell)?;
    let _server = shell.push_env("REDIS_SERVER_BIN", &server);
    let peers = ["--release", "--locked", "--quiet", "--manifest-path", "benches/peers/Cargo.toml"];
    cmd!(shell, "cargo run {peers...} -- {args...}").run()?;
    Ok(())
}
