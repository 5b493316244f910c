//! `cargo xtask prove outbox`.

use std::fs;

use anyhow::{Result, ensure};
use xshell::{Shell, cmd};

use crate::redis_server;

/// Kills processes around the transactions of the outbox example, and counts its messages.
///
/// In a separate workspace, because nothing else needs a driver for SQL databases.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<()> {
    ensure!(args.is_empty(), "`outbox` takes no arguments");
    let server = redis_server::ensure(shell)?;
    let _server = shell.push_env("REDIS_SERVER_BIN", &server);
    // Debian has a folder for each version; that of the clients alone has no such program.
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut debian = versions.map(|version| version.path().join("bin/initdb"));
    let is_there = redis_server::on_path("initdb") || debian.any(|initdb| initdb.is_file());
    if !is_there && shell.var_os("POSTGRES_BIN").is_none() {
        redis_server::install(shell, "postgresql")?;
    }
    let outbox = ["--locked", "--quiet", "--manifest-path", "examples/outbox/Cargo.toml"];
    cmd!(shell, "cargo test {outbox...} -- --nocapture").run()?;
    Ok(())
}
