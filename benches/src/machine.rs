//! Where figures were taken.

use std::env;

use anyhow::{Context, Result};
use delayline_benches::settings;
use delayline_test_server::Server;

/// The machine, the server and the command, in a few lines.
pub(crate) fn circumstances() -> Result<String> {
    let server = Server::builder().try_start()?;
    let cores = std::thread::available_parallelism()?;
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    let program = env::args().next().context("a program has a name")?;
    let program = program.rsplit('/').next().unwrap_or_default().to_owned();
    let command: Vec<_> = std::iter::once(program).chain(env::args().skip(1)).collect();
    Ok(format!(
        "{cores} cores of {}, {}\n{}, unix socket, payloads of 100 bytes by default\n{}",
        model.unwrap_or("an unknown processor"),
        env::consts::OS,
        settings(&server),
        command.join(" ")
    ))
}
