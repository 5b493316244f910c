//! The oldest compiler that `Cargo.toml` promises.

use anyhow::Result;
use xshell::{Shell, cmd};

use crate::workspace;

/// Compiles with it what users build. Tests may need the stable toolchain.
///
/// A machine that cannot get the compiler says so: dependencies declare theirs, and clippy knows
/// what the standard library has had since when, so most mistakes are found without it.
pub(crate) fn check(shell: &Shell) -> Result<()> {
    let version = workspace::rust_version(shell)?;
    let there = cmd!(shell, "rustup run {version} rustc --version").quiet().ignore_stdout();
    if there.ignore_stderr().run().is_err() {
        let install = ["--profile", "minimal", "--no-self-update"];
        if let Err(error) = cmd!(shell, "rustup toolchain install {version} {install...}").run() {
            println!("xtask: Rust {version}: NOT CHECKED: it cannot be had here: {error}");
            return Ok(());
        }
    }
    // A separate directory: one compiler cannot use the artifacts of the other.
    let all = ["--workspace", "--lib", "--bins", "--all-features", "--locked"];
    let apart = ["--target-dir", "target/msrv"];
    Ok(cmd!(shell, "rustup run {version} cargo check {all...} {apart...}").run()?)
}
