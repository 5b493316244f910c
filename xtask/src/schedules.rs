//! `cargo xtask prove schedules`.

use anyhow::Result;
use xshell::{Shell, cmd};

use crate::{programs, redis_server};

/// Kills and freezes schedulers on a real server, and counts their ticks.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<()> {
    let server = redis_server::ensure(shell)?;
    let _server = shell.push_env("REDIS_SERVER_BIN", &server);
    let fleet = programs::build_command(shell, "delayline-schedules", "partition")?;
    cmd!(shell, "{fleet} {args...}").run()?;
    Ok(())
}
