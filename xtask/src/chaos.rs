//! `cargo xtask prove chaos`.

use anyhow::Result;
use xshell::{Shell, cmd};

use crate::{programs, redis_server};

/// Injects faults into real servers, which must be installed.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<()> {
    let server = redis_server::ensure(shell)?;
    let _server = shell.push_env("REDIS_SERVER_BIN", &server);
    let chaos = programs::build_command(shell, "delayline-chaos", "partition")?;
    cmd!(shell, "{chaos} {args...}").run()?;
    Ok(())
}
