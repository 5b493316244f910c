//! `cargo xtask test`.

use std::panic::resume_unwind;
use std::path::PathBuf;
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use xshell::{Shell, cmd};

use crate::programs::Program;
use crate::{chaos, inventory, programs, redis_server, servers, sim};

/// Runs the tests, on this machine's server or on the one named by `--server`. With `--all`, what
/// takes long runs, too. In `args`, arguments before `--` choose the tests, and the others are
/// passed to them.
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
    let tests = tests.strip_prefix(&["--".to_owned()]).unwrap_or(tests);
    match cargo {
        [] => quick(shell, tests),
        [all] if all == "--all" => {
            quick(shell, tests)?;
            long(shell, own_server, tests)
        }
        _ => {
            // Without its features a test program may have no test, and pass.
            let chosen = cargo.iter().any(|arg| arg.contains("-features"));
            let features = if chosen { None } else { Some("--all-features") };
            cmd!(shell, "cargo test --locked {features...} {cargo...} -- {tests...}").run()?;
            Ok(())
        }
    }
}

/// The tests of every day: all but what [`long`] has.
fn quick(shell: &Shell, args: &[String]) -> Result<()> {
    let start = Instant::now();
    println!("xtask: building the test programs");
    let mut programs = programs::build(shell)?;
    let built = start.elapsed();
    programs.retain(|program| !is_long(program));
    // The slowest first, so that the last ones do not run alone.
    programs.sort_by_key(|program| {
        SLOWEST.iter().position(|name| program.name() == *name).unwrap_or(SLOWEST.len())
    });
    println!("xtask: built in {:.0} s; {} programs to run", built.as_secs_f64(), programs.len());
    let passed = programs::run(shell, &programs, args)?;

    println!("xtask: the examples in the documentation");
    let examples = documented(shell, args)?;
    println!(
        "xtask: {passed} tests of {} programs and {examples} examples in the documentation passed in \
         {:.0} s; `cargo xtask test --all` also runs {LONG_PARTS}",
        programs.len(),
        start.elapsed().as_secs_f64()
    );
    println!("tests: {} passed, 0 failed", passed + examples);
    Ok(())
}

/// Runs the examples in the documentation, and returns how many passed.
fn documented(shell: &Shell, args: &[String]) -> Result<usize> {
    let doc = ["--workspace", "--doc", "--all-features", "--locked"];
    let output = cmd!(shell, "cargo test {doc...} -- {args...}").ignore_status().output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!("{text}{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(programs::passed(&text))
}

/// What takes longer: examples and benchmarks as programs, faults in whole systems, more servers.
pub(crate) fn long(shell: &Shell, own_server: bool, args: &[String]) -> Result<()> {
    let start = Instant::now();
    programs::build_examples(shell)?;
    let programs = programs::build(shell)?;
    inventory::check(shell, &programs)?;
    let chosen: Vec<_> = programs.iter().filter(|program| is_long(program)).cloned().collect();
    let passed = programs::run(shell, &chosen, args)?;
    for [package, program] in BY_NAME {
        let only = ["--all-features", "--locked", "-p", package, "--test", program];
        cmd!(shell, "cargo test {only...} -- {args...}").run()?;
    }
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
    let took = start.elapsed().as_secs_f64();
    println!("xtask: {passed} longer tests, chaos, simulation and servers passed in {took:.0} s");
    Ok(())
}

/// Whether only [`long`] runs a program.
fn is_long(program: &Program) -> bool {
    LONG.contains(&program.name().as_str())
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

/// The programs that take long and find what others do not often find.
const LONG: [&str; 4] = [
    "benches/tests/run.rs",
    "benches/tests/soak.rs",
    "crates/delayline-chaos/tests/partition.rs",
    "examples/tests/run.rs",
];

/// Test programs that `cargo test` leaves out, by package.
const BY_NAME: [[&str; 2]; 2] =
    [["delayline-fred", "conformance_cluster"], ["delayline-redis", "conformance_sentinel"]];

/// What a run without `--all` has left out.
const LONG_PARTS: &str = "examples and benchmarks as programs, partitions, chaos, simulation, the \
                          suite over more ways and on the newest servers";

/// Programs by the time that they take.
const SLOWEST: [&str; 3] = [
    "crates/delayline-redis/tests/conformance.rs",
    "crates/delayline-fred/tests/conformance.rs",
    "crates/delayline-redis-protocol/tests/scripts/main.rs",
];
