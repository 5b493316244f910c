//! `cargo xtask prove chaos`.

use anyhow::Result;
use xshell::{Shell, cmd};

use crate::{programs, redis_server, servers};

/// Injects faults into real servers, which must be installed, or into those of `--server NAME`.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<()> {
    let (server, args) = servers::of_args(shell, args)?;
    let server = server.map_or_else(|| redis_server::ensure(shell), Ok)?;
    let _server = shell.push_env("REDIS_SERVER_BIN", &server);
    let chaos = programs::build_command(shell, "delayline-chaos", "partition")?;
    cmd!(shell, "{chaos} {args...}").run()?;
    Ok(())
}
