//! `cargo xtask prove servers`: all the servers that Delayline is tested on.

mod get;
mod list;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use xshell::Shell;

use self::list::{NEWEST, RELEASES, Release};
use crate::programs::{self, Program};

/// Gets the servers that `args` name, or all; after `test` it runs the conformance suite on them.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<()> {
    match args.split_first() {
        Some((first, names)) if first == "test" => test(shell, names),
        _ => list_paths(shell, &named(args)?),
    }
}

/// The server that `--server NAME` asks for, and the other arguments.
pub(crate) fn of_args<'a>(
    shell: &Shell,
    args: &'a [String],
) -> Result<(Option<PathBuf>, &'a [String])> {
    match args.split_first() {
        Some((first, rest)) if first == "--server" => {
            let (name, rest) = rest.split_first().context("--server needs a name")?;
            Ok((Some(get(shell, name)?), rest))
        }
        _ => Ok((None, args)),
    }
}

/// The program of the server `name`.
pub(crate) fn get(shell: &Shell, name: &str) -> Result<PathBuf> {
    get::get(shell, find(name)?)
}

/// Gets the servers of [`test_newest`].
pub(crate) fn get_newest(shell: &Shell) -> Result<()> {
    NEWEST.iter().try_for_each(|name| get(shell, name).map(drop))
}

/// Runs the conformance suite, which is one of `programs`, on the newest servers.
pub(crate) fn test_newest(shell: &Shell, programs: &[Program]) -> Result<()> {
    let suite = programs::find(programs, SUITE)?;
    for name in NEWEST {
        let passed = conformance(suite, &get(shell, name)?).context(name)?;
        println!("xtask: the conformance suite on {name}: {passed}");
    }
    Ok(())
}

fn find(name: &str) -> Result<&'static Release> {
    let found = RELEASES.iter().find(|release| release.name == name);
    found.with_context(|| {
        let names: Vec<_> = RELEASES.iter().map(|release| release.name).collect();
        format!("there is no server {name:?}; there are {}", names.join(", "))
    })
}

fn named(names: &[String]) -> Result<Vec<&'static Release>> {
    if names.is_empty() {
        return Ok(RELEASES.iter().collect());
    }
    names.iter().map(|name| find(name)).collect()
}

fn list_paths(shell: &Shell, releases: &[&Release]) -> Result<()> {
    let mut missing = Vec::new();
    for release in releases {
        match get::get(shell, release) {
            Ok(path) => println!("{:14} {}", release.name, path.display()),
            Err(error) => {
                println!("xtask: {error:#}");
                missing.push(release.name);
            }
        }
    }
    if missing.is_empty() { Ok(()) } else { bail!("cannot be had: {}", missing.join(", ")) }
}

/// Writes the table only if it holds all servers.
fn test(shell: &Shell, names: &[String]) -> Result<()> {
    let releases = named(names)?;
    let programs = programs::build(shell)?;
    let suite = programs::find(&programs, SUITE)?;
    let mut rows = String::new();
    let mut failed = Vec::new();
    for release in &releases {
        println!("xtask: the conformance suite on {}", release.name);
        let result = get::get(shell, release).and_then(|server| conformance(suite, &server));
        let told = match &result {
            Ok(passed) => passed.clone(),
            Err(error) => format!("**failed**: {}", error.root_cause()),
        };
        println!("xtask: {}: {told}", release.name);
        if let Err(error) = result {
            println!("xtask: {error:#}");
            failed.push(release.name);
        }
        let (product, version) = (release.product, release.version);
        rows += &format!("| {product} {version} | {} | {told} |\n", release.origin());
    }
    if names.is_empty() {
        let page = shell.current_dir().join("docs/servers.md");
        fs::write(&page, format!("{PAGE}{rows}"))?;
        println!("xtask: wrote {}", page.display());
    }
    if failed.is_empty() { Ok(()) } else { bail!("these failed: {}", failed.join(", ")) }
}

/// The conformance suite with one driver and RESP2.
const SUITE: &str = "crates/delayline-redis/tests/conformance.rs";

/// Runs the suite on a server. Returns the number of cases that passed.
fn conformance(suite: &Program, server: &Path) -> Result<String> {
    let output = suite.command().env("REDIS_SERVER_BIN", server).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let summary = text.lines().find_map(|line| line.strip_prefix("test result: "));
    match summary.and_then(|summary| summary.strip_prefix("ok. ")) {
        Some(passed) if output.status.success() => {
            let count = passed.split(" passed").next().unwrap_or_default();
            Ok(format!("{count} of {count} cases"))
        }
        _ => {
            print!("{text}{}", String::from_utf8_lossy(&output.stderr));
            bail!("{}", summary.unwrap_or("the suite did not end"))
        }
    }
}

const PAGE: &str = "\
# Servers

The conformance suite (redis-rs, RESP2, unix socket) on every server that Delayline claims to work with. `cargo xtask
prove servers test` gets the servers, runs the suite and writes this page; `cargo xtask test --server NAME --all` runs
all tests on one of them, but does not count its instructions. CI runs everything on Redis 7.0.15, and the conformance
suite on the newest Redis and the newest Valkey of this list.

On Redis 6, a script cannot check its user's permissions before it writes: see
[guarantees](../crates/delayline/docs/guarantees.md#what-is-not-promised).

| server | from | conformance suite |
|---|---|---|
";
