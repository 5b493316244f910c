//! `cargo xtask fix`.

use anyhow::{Result, ensure};
use xshell::{Shell, cmd};

use crate::workspace;

/// Formats the code and applies the lints' own corrections.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<()> {
    ensure!(args.is_empty(), "`fix` takes no arguments");
    cmd!(shell, "cargo clippy --fix --workspace --all-targets --allow-dirty --allow-staged")
        .run()?;
    // Last: corrections are not always formatted.
    for manifest in workspace::MANIFESTS {
        cmd!(shell, "cargo fmt --manifest-path {manifest} --all").run()?;
    }
    Ok(())
}
