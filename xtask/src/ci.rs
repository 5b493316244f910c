//! `cargo xtask ci`: exactly what must pass before a change is merged.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use xshell::{Shell, cmd};

use crate::{deny, dependencies, test, tidy, workspace, zoo};

/// Runs every step; the first that fails ends it. The quick ones come first.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<()> {
    let skip_tests = match args {
        [] => false,
        [arg] if arg == "--skip-tests" => true,
        _ => anyhow::bail!("`ci` takes only --skip-tests"),
    };
    step("format", || format(shell))?;
    step("text rules", || tidy::check(&workspace::root()))?;
    step("dependency rules", || dependencies::check(shell))?;
    step("seeded defects", || zoo::check(shell))?;
    step("dependency audit", || deny::check(shell))?;
    step("lints", || lints(shell))?;
    step("lints of every feature", || feature_lints(shell))?;
    step("documentation", || docs(shell))?;
    if skip_tests {
        println!("xtask: tests: skipped as told");
    } else {
        step("tests", || test::run(shell, &[]))?;
    }
    Ok(())
}

fn step(name: &str, run: impl FnOnce() -> Result<()>) -> Result<()> {
    println!("xtask: {name}");
    let start = Instant::now();
    run().with_context(|| format!("{name}: failed"))?;
    println!("xtask: {name}: passed in {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

fn format(shell: &Shell) -> Result<()> {
    needs(shell, "rustfmt", "fmt")?;
    for manifest in workspace::MANIFESTS {
        cmd!(shell, "cargo fmt --manifest-path {manifest} --all --check")
            .run()
            .context("`cargo xtask fix` formats the code")?;
    }
    Ok(())
}

fn lints(shell: &Shell) -> Result<()> {
    needs(shell, "clippy", "clippy")?;
    cmd!(shell, "cargo clippy --workspace --all-targets --all-features --locked -- -D warnings")
        .run()?;
    let fuzz = ["--manifest-path", "fuzz/Cargo.toml", "--no-default-features", "--all-targets"];
    cmd!(shell, "cargo clippy --locked {fuzz...} -- -D warnings").run()?;
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

fn docs(shell: &Shell) -> Result<()> {
    let _flags = shell.push_env("RUSTDOCFLAGS", "-D warnings");
    cmd!(shell, "cargo doc --workspace --no-deps --all-features --locked").run()?;
    Ok(())
}

/// A minimal toolchain lacks some of cargo's commands, and its message does not say what to do.
fn needs(shell: &Shell, component: &str, command: &str) -> Result<()> {
    let there =
        cmd!(shell, "cargo {command} --version").quiet().ignore_stdout().ignore_stderr().run();
    ensure!(there.is_ok(), "{component} is missing: rustup component add {component}");
    Ok(())
}
