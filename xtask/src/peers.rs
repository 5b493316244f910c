//! `cargo xtask bench peers` and `cargo xtask bench embedded`.

use anyhow::Result;
use xshell::{Shell, cmd};

use crate::redis_server;

/// Measures Delayline beside other queues on private servers (`benches/peers`), or in a directory
/// beside SQLite and Redis (`benches/embedded`).
///
/// In separate workspaces, because nothing else needs what they compile.
pub(crate) fn run(shell: &Shell, workspace: &str, args: &[String]) -> Result<()> {
    let server = redis_server::ensure(shell)?;
    let _server = shell.push_env("REDIS_SERVER_BIN", &server);
    let manifest = format!("benches/{workspace}/Cargo.toml");
    // Not quietly: their first build takes minutes.
    let release = ["--release", "--locked", "--manifest-path", &manifest];
    cmd!(shell, "cargo run {release...} -- {args...}").run()?;
    Ok(())
}
