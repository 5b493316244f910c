//! `cargo xtask test`.

use anyhow::Result;
use xshell::{Shell, cmd};

use crate::{chaos, redis_server, sim};

/// Runs the tests; what comes before `--` in `args` chooses which, what follows goes to them.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<()> {
    let server = redis_server::ensure(shell)?;
    // For every test process, whatever `PATH` it has.
    let _server = shell.push_env("REDIS_SERVER_BIN", &server);
    let version = cmd!(shell, "{server} --version").quiet().read()?;
    println!("xtask: {} is {version}", server.display());

    let split = args.iter().position(|arg| arg == "--").unwrap_or(args.len());
    let (cargo, tests) = args.split_at(split);
    if cargo.is_empty() {
        cmd!(shell, "cargo test --workspace --all-targets --locked {tests...}").run()?;
        // Not among "all targets".
        cmd!(shell, "cargo test --workspace --doc --locked {tests...}").run()?;
        // The fuzzers' seeds, replayed; their workspace is its own because fuzzing needs nightly.
        let fuzz = ["--manifest-path", "fuzz/Cargo.toml", "--no-default-features"];
        cmd!(shell, "cargo test --locked {fuzz...} {tests...}").run()?;
        sim::run(shell, &[])?;
        chaos::run(shell, &[])?;
    } else {
        cmd!(shell, "cargo test --locked {cargo...} {tests...}").run()?;
    }
    Ok(())
}
