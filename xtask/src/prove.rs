//! The proofs of `cargo xtask prove` that are one program or one test.

use std::fs;

use anyhow::{Result, ensure};
use xshell::{Cmd, Shell, cmd};

use crate::{programs, redis_server, servers};

/// Plays simulations. They are arithmetic alone, so they are worth an optimised build.
pub(crate) fn sim(shell: &Shell, args: &[String]) -> Result<()> {
    Ok(cmd!(shell, "cargo run --release --locked --quiet -p delayline-sim -- {args...}").run()?)
}

/// Injects faults into real servers, which must be installed, or into those of `--server NAME`.
pub(crate) fn chaos(shell: &Shell, args: &[String]) -> Result<()> {
    let (server, args) = servers::of_args(shell, args)?;
    let server = server.map_or_else(|| redis_server::ensure(shell), Ok)?;
    let chaos = programs::build_command(shell, "delayline-chaos", "partition")?;
    Ok(cmd!(shell, "{chaos} {args...}").env(programs::SERVER, server).run()?)
}

/// Kills and freezes schedulers on a real server, and counts their ticks.
pub(crate) fn schedules(shell: &Shell, args: &[String]) -> Result<()> {
    let server = redis_server::ensure(shell)?;
    let fleet = programs::build_command(shell, "delayline-schedules", "partition")?;
    Ok(cmd!(shell, "{fleet} {args...}").env(programs::SERVER, server).run()?)
}

/// Runs programs on real servers for a long time, and judges what happens.
pub(crate) fn soak(shell: &Shell, args: &[String]) -> Result<()> {
    let server = redis_server::ensure(shell)?;
    let soak = ["--release", "--locked", "--quiet", "-p", "delayline-benches"];
    let soak = cmd!(shell, "cargo run {soak...} --bin delayline-soak -- {args...}");
    Ok(soak.env(programs::SERVER, server).run()?)
}

/// Lets the OpenTelemetry example export to a collector, and checks what arrives.
///
/// In a separate workspace, because nothing else needs an exporter.
pub(crate) fn opentelemetry(shell: &Shell, args: &[String]) -> Result<()> {
    ensure!(args.is_empty(), "`opentelemetry` takes no arguments");
    Ok(test_of_example(shell, "opentelemetry").run()?)
}

/// Kills processes around the transactions of the outbox example, and counts its messages.
///
/// In a separate workspace, because nothing else needs a driver for SQL databases.
pub(crate) fn outbox(shell: &Shell, args: &[String]) -> Result<()> {
    ensure!(args.is_empty(), "`outbox` takes no arguments");
    let server = redis_server::ensure(shell)?;
    // Debian has a folder for each version; that of the clients alone has no such program.
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut debian = versions.map(|version| version.path().join("bin/initdb"));
    let is_there = redis_server::on_path("initdb") || debian.any(|initdb| initdb.is_file());
    if !is_there && shell.var_os("POSTGRES_BIN").is_none() {
        redis_server::install(shell, "postgresql")?;
    }
    let test = test_of_example(shell, "outbox").args(["--", "--nocapture"]);
    Ok(test.env(programs::SERVER, server).run()?)
}

/// The tests of an example in a separate workspace.
fn test_of_example<'a>(shell: &'a Shell, name: &str) -> Cmd<'a> {
    cmd!(shell, "cargo test --locked --quiet --manifest-path examples/{name}/Cargo.toml")
}
