//! The oldest compiler that `Cargo.toml` promises.

use anyhow::{Context as _, Result};
use xshell::{Shell, cmd};

use crate::workspace;

/// Compiles with it what users build. Tests may need the stable toolchain.
pub(crate) fn check(shell: &Shell) -> Result<()> {
    let version = workspace::rust_version(shell)?;
    let there = cmd!(shell, "rustup run {version} rustc --version").quiet().ignore_stdout();
    if there.ignore_stderr().run().is_err() {
        cmd!(shell, "rustup toolchain install {version} --profile minimal --no-self-update")
            .run()
            .with_context(|| format!("rustup must get Rust {version}, the oldest supported one"))?;
    }
    // A directory of its own: what one compiler has built is of no use to the other.
    let all = ["--workspace", "--lib", "--bins", "--all-features", "--locked"];
    let apart = ["--target-dir", "target/msrv"];
    Ok(cmd!(shell, "rustup run {version} cargo check {all...} {apart...}").run()?)
}
