//! `cargo xtask test`.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::panic::resume_unwind;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use anyhow::{Result, ensure};
use xshell::{Shell, cmd};

use crate::programs::Program;
use crate::{instructions, inventory, programs, prove, redis_server, servers};

/// Runs the tests, on this machine's server or on the one named by `--server`; with `--all` also
/// the long ones. In `args`, arguments before `--` choose the tests, and the others are passed to
/// them. Returns what the tests have left out.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<BTreeSet<String>> {
    let (named, args) = servers::of_args(shell, args)?;
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
        [] => quick(shell, tests).map(|(_, left_out)| left_out),
        [all] if all == "--all" => {
            // A machine that lacks something is to hear of it before the tests.
            if own_server {
                servers::get_newest(shell)?;
                instructions::prepare(shell)?;
            }
            let (programs, left_out) = quick(shell, tests)?;
            long(shell, &programs, left_out, own_server, tests)
        }
        _ => chosen(shell, cargo, tests).map(|()| BTreeSet::new()),
    }
}

/// Runs the tests that arguments of cargo select, and shows their output.
fn chosen(shell: &Shell, cargo: &[String], tests: &[String]) -> Result<()> {
    // Without its features a test program may have no test, and pass.
    let has_features = cargo.iter().any(|arg| arg.contains("-features"));
    let features = if has_features { None } else { Some("--all-features") };
    let command = cmd!(shell, "cargo test --locked {features...} {cargo...} -- {tests...}");
    let mut child = Command::from(command).stdout(Stdio::piped()).spawn()?;
    let mut summaries = String::new();
    for line in child.stdout.take().map(BufReader::new).into_iter().flat_map(BufRead::lines) {
        let line = line?;
        println!("{line}");
        if line.starts_with("test result: ") || line.starts_with("running ") {
            summaries += &format!("{line}\n");
        }
    }
    let status = child.wait()?;
    ensure!(status.success(), "cargo test: {status}");
    ensure!(
        summaries.is_empty() || programs::is_whole(&summaries),
        "a test program has ended without a result of all its tests"
    );
    // There is none if the tests are only built or listed.
    ensure!(summaries.is_empty() || programs::passed(&summaries) > 0, NO_TEST);
    Ok(())
}

/// Builds the test programs but those of [`long`], and runs them. Returns them, and what their
/// tests have left out.
fn quick(shell: &Shell, args: &[String]) -> Result<(Vec<Program>, BTreeSet<String>)> {
    let start = Instant::now();
    println!("xtask: building the test programs");
    let mut programs = programs::build(shell)?;
    println!("xtask: built in {:.0} s", start.elapsed().as_secs_f64());
    inventory::none_is_empty(shell, &programs)?;
    // The slowest first, so that the last ones do not run alone.
    programs.sort_by_key(|program| {
        SLOWEST.iter().position(|name| program.name() == *name).unwrap_or(SLOWEST.len())
    });
    let (passed, left_out) = programs::run(shell, &programs, args)?;

    println!("xtask: the examples in the documentation");
    let examples = documented(shell, args)?;
    ensure!(passed + examples > 0, NO_TEST);
    println!(
        "xtask: {passed} tests of {} programs and {examples} examples in the documentation passed in \
         {:.0} s; `cargo xtask test --all` also runs {LONG_PARTS}",
        programs.len(),
        start.elapsed().as_secs_f64()
    );
    println!("tests: {} passed, 0 failed{}", passed + examples, but_not(&left_out));
    Ok((programs, left_out))
}

/// Runs the examples in the documentation, and returns how many passed.
fn documented(shell: &Shell, args: &[String]) -> Result<usize> {
    let doc = ["test", "--workspace", "--doc", "--all-features", "--locked", "--"];
    // Its progress is shown; what the examples print is shown if one fails.
    let mut cargo = Command::new("cargo");
    cargo.current_dir(shell.current_dir()).args(doc).args(args).stderr(Stdio::inherit());
    cargo.envs(programs::server(shell));
    let output = cargo.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{text}");
    Ok(programs::passed(&text))
}

/// Runs the long tests: examples and benchmarks as programs, faults in whole systems, more servers.
fn long(
    shell: &Shell,
    programs: &[Program],
    mut left_out: BTreeSet<String>,
    own_server: bool,
    args: &[String],
) -> Result<BTreeSet<String>> {
    let start = Instant::now();
    programs::build_examples(shell)?;
    let longer = programs::build_named(shell, &LONG)?;
    inventory::none_is_empty(shell, &longer)?;
    inventory::has_all_named(shell, &[programs, &longer].concat())?;
    let (passed, more) = programs::run(shell, &longer, args)?;
    left_out.extend(more);
    // Chaos leaves a core idle for half of the time.
    let its_shell = shell.clone();
    thread::scope(|scope| -> Result<()> {
        let chaos = scope.spawn(move || prove::chaos(&its_shell, &[]));
        if own_server {
            servers::test_newest(shell, programs)?;
        }
        prove::sim(shell, &[])?;
        let named = Some(OF_A_NAMED_SERVER.to_owned());
        left_out.extend(if own_server { instructions::compare(shell)? } else { named });
        chaos.join().unwrap_or_else(|panic| resume_unwind(panic))
    })?;
    let took = start.elapsed().as_secs_f64();
    println!(
        "xtask: {passed} longer tests and all other parts passed in {took:.0} s{}",
        but_not(&left_out)
    );
    Ok(left_out)
}

/// The end of the line that reports a success.
pub(crate) fn but_not(left_out: &BTreeSet<String>) -> String {
    let all: Vec<_> = left_out.iter().map(String::as_str).collect();
    if all.is_empty() { String::new() } else { format!("; left out: {}", all.join("; ")) }
}

/// The programs that take long and find what others do not often find. Two packages have a `run`.
const LONG: [&str; 5] = ["conformance_of_ways", "moving_shards", "partition", "run", "soak"];

/// What a run on a named server leaves out: callgrind does not follow the script that starts it.
const OF_A_NAMED_SERVER: &str = "the newest servers, and the instructions of a named server";

const NO_TEST: &str = "no test was run: none has such a name";

/// What a run without `--all` has left out.
const LONG_PARTS: &str = "examples and benchmarks as programs, moving shards, partitions, chaos, \
                          simulation, instructions, and the conformance suite on clusters and on the \
                          newest servers";

/// Programs by the time that they take.
const SLOWEST: [&str; 6] = [
    "crates/delayline-redis/tests/conformance.rs",
    "crates/delayline-fred/tests/conformance.rs",
    "crates/delayline-redis-protocol/tests/scripts/main.rs",
    "crates/delayline-fred/tests/integration.rs",
    "crates/delayline-redis/tests/integration.rs",
    "crates/delayline-cli/tests/integration/main.rs",
];
