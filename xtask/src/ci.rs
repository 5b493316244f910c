//! `cargo xtask ci`: exactly what must pass before a change is merged.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use xshell::{Shell, cmd};

use crate::{deny, dependencies, fix, links, monitoring, package, test, tidy, workspace, zoo};

/// Runs every step, or those of a part; the first that fails ends it. The quick ones are first.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<()> {
    let start = Instant::now();
    let left_out = match args {
        [] => {
            let not_linted = lint(shell)?;
            let left_out = step("tests", || test::run(shell, &["--all".to_owned()]))?;
            step("packages, with the oldest compiler", || package::run(shell, &[]))?;
            left_out.into_iter().chain(not_linted).collect()
        }
        [part] if part == "lint" => lint(shell)?.into_iter().collect(),
        _ => bail!("`ci` takes no arguments but `lint`"),
    };
    let took = start.elapsed().as_secs_f64();
    println!("xtask: all passed in {took:.0} s{}", test::but_not(&left_out));
    Ok(())
}

/// All steps that run no tests. Returns the name of a check that was left out.
fn lint(shell: &Shell) -> Result<Option<String>> {
    step("format", || format(shell))?;
    step("text rules", || tidy::check(&workspace::root()))?;
    step("links of the pages", || links::check_pages(shell))?;
    step("alerts and Grafana", || monitoring::check(shell))?;
    step("dependency rules", || dependencies::check(shell))?;
    step("seeded defects", || zoo::check(shell))?;
    let not_checked = step("dependency audit", || deny::check(shell))?;
    step("lints", || lints(shell))?;
    step("lints of every feature", || feature_lints(shell))?;
    step("lints of peers and the outbox", || lints_apart(shell))?;
    step("documentation", || docs(shell))?;
    Ok(not_checked)
}

fn step<T>(name: &str, run: impl FnOnce() -> Result<T>) -> Result<T> {
    println!("xtask: {name}");
    let start = Instant::now();
    let result = run().with_context(|| format!("{name}: failed"))?;
    println!("xtask: {name}: passed in {:.1} s", start.elapsed().as_secs_f64());
    Ok(result)
}

fn format(shell: &Shell) -> Result<()> {
    component(shell, "rustfmt", "fmt")?;
    fix::format(shell, &["--check"]).context("`cargo xtask fix` formats the code")
}

fn lints(shell: &Shell) -> Result<()> {
    component(shell, "clippy", "clippy")?;
    cmd!(shell, "cargo clippy --workspace --all-targets --all-features --locked -- -D warnings")
        .run()?;
    Ok(())
}

/// Users choose the facade's features; the workspace build has them all on at once.
fn feature_lints(shell: &Shell) -> Result<()> {
    let packages = workspace::packages(shell)?;
    let facade = packages.iter().find(|package| package.name == "delayline");
    let features = &facade.context("the workspace has no crate `delayline`")?.features;
    // The empty name stands for no feature at all.
    for feature in std::iter::once("").chain(features.iter().map(String::as_str)) {
        let chosen = ["--no-default-features", "--features", feature];
        cmd!(shell, "cargo clippy -p delayline --locked {chosen...} -- -D warnings").run()?;
    }
    Ok(())
}

/// Lints the programs outside of the workspace, which are built rarely.
fn lints_apart(shell: &Shell) -> Result<()> {
    let apart = ["--manifest-path", "apart/Cargo.toml", "--workspace", "--all-targets"];
    Ok(cmd!(shell, "cargo clippy --locked {apart...} -- -D warnings").run()?)
}

fn docs(shell: &Shell) -> Result<()> {
    let _flags = shell.push_env("RUSTDOCFLAGS", "-D warnings");
    cmd!(shell, "cargo doc --workspace --no-deps --all-features --locked").run()?;
    links::check_rustdoc(shell)
}

/// A minimal toolchain lacks some of cargo's commands.
fn component(shell: &Shell, component: &str, command: &str) -> Result<()> {
    let version = cmd!(shell, "cargo {command} --version").quiet().ignore_stdout().ignore_stderr();
    if version.run().is_err() {
        cmd!(shell, "rustup component add {component}").run()?;
    }
    Ok(())
}
