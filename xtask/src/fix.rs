//! `cargo xtask fix`.

use anyhow::{Result, ensure};
use xshell::{Shell, cmd};

use crate::workspace;

/// Formats the code, applies the lints' own corrections, and writes what is made from the sources.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<()> {
    ensure!(args.is_empty(), "`fix` takes no arguments");
    cmd!(shell, "cargo clippy --fix --workspace --all-targets --allow-dirty --allow-staged")
        .run()?;
    // Last: corrections are not always formatted.
    for manifest in workspace::MANIFESTS {
        cmd!(shell, "cargo fmt --manifest-path {manifest} --all").run()?;
    }
    write_generated(shell)
}

/// Writes the scripts as servers get them and the tables of the wire page. `cargo xtask test` compares
/// them.
pub(crate) fn write_generated(shell: &Shell) -> Result<()> {
    let _write = shell.push_env("DELAYLINE_WRITE", "1");
    cmd!(shell, "cargo test --quiet -p delayline-redis-protocol --all-features --test generated")
        .run()?;
    Ok(())
}
