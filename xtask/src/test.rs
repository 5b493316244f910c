//! `cargo xtask test`.

use std::panic::resume_unwind;
use std::path::PathBuf;
use std::thread;

use anyhow::{Context as _, Result};
use xshell::{Shell, cmd};

use crate::{chaos, inventory, programs, redis_server, servers, sim};

/// Runs the tests, on this machine's server or on the one named by `--server`. In `args`, arguments
/// before `--` choose the tests, and the others are passed to them.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<()> {
    let (named, args) = server_of(shell, args)?;
    let own_server = named.is_none();
    let server = named.map_or_else(|| redis_server::ensure(shell), Ok)?;
    // For every test process, whatever `PATH` it has.
    let _server = shell.push_env("REDIS_SERVER_BIN", &server);
    let version = cmd!(shell, "{server} --version").quiet().read()?;
    println!("xtask: {} is {version}", server.display());

    let split = args.iter().position(|arg| arg == "--").unwrap_or(args.len());
    let (cargo, tests) = args.split_at(split);
    if cargo.is_empty() {
        let programs = programs::build(shell)?;
        inventory::check(shell, &programs)?;
        let args = tests.strip_prefix(&["--".to_owned()]).unwrap_or(tests);
        programs::run(shell, &programs, args)?;
        // Not among "all targets".
        cmd!(shell, "cargo test --workspace --doc --all-features --locked {tests...}").run()?;
        // Chaos leaves a core idle for half of the time.
        let its_shell = shell.clone();
        thread::scope(|scope| -> Result<()> {
            let chaos = scope.spawn(move || chaos::run(&its_shell, &[]));
            if own_server {
                servers::test_newest(shell, &programs)?;
            }
            sim::run(shell, &[])?;
            chaos.join().unwrap_or_else(|panic| resume_unwind(panic))
        })?;
    } else {
        // Without its features a test program may have no test, and pass.
        let chosen = cargo.iter().any(|arg| arg.contains("-features"));
        let features = if chosen { None } else { Some("--all-features") };
        cmd!(shell, "cargo test --locked {features...} {cargo...} {tests...}").run()?;
    }
    Ok(())
}

/// The server that `--server NAME` asks for, and the other arguments.
fn server_of<'a>(shell: &Shell, args: &'a [String]) -> Result<(Option<PathBuf>, &'a [String])> {
    match args.split_first() {
        Some((first, rest)) if first == "--server" => {
            let (name, rest) = rest.split_first().context("--server needs a name")?;
            Ok((Some(servers::get(shell, name)?), rest))
        }
        _ => Ok((None, args)),
    }
}
