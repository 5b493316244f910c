//! The oldest compiler that `Cargo.toml` promises.

use anyhow::Result;
use xshell::{Shell, cmd};

use crate::workspace;

/// Returns the command that runs cargo with it, and gets it if it is missing.
///
/// A machine that cannot get it says so, and uses its own: dependencies declare theirs, and clippy
/// knows since when the standard library has had what, so most mistakes are found without it.
pub(crate) fn cargo(shell: &Shell) -> Result<Vec<String>> {
    let version = workspace::rust_version(shell)?;
    let there = cmd!(shell, "rustup run {version} rustc --version").quiet().ignore_stdout();
    if there.ignore_stderr().run().is_err() {
        let install = ["--profile", "minimal", "--no-self-update"];
        if let Err(error) = cmd!(shell, "rustup toolchain install {version} {install...}").run() {
            println!("xtask: Rust {version}: NOT CHECKED: it cannot be had here: {error}");
            return Ok(vec!["cargo".to_owned()]);
        }
    }
    Ok(["rustup", "run", &version, "cargo"].map(str::to_owned).to_vec())
}
