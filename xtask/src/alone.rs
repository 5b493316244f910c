//! `cargo xtask release alone`: does every published crate compile alone?

use anyhow::{Result, ensure};
use xshell::{Shell, cmd};

use crate::workspace;

/// Compiles each published crate alone, with its default features. When the whole workspace is
/// built at once, a feature that one crate forgets to request is enabled because another crate
/// requests it.
///
/// No step of `ci`: each crate takes other features of the same dependencies, which are compiled
/// anew for it.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<()> {
    ensure!(args.is_empty(), "`alone` takes no arguments");
    let mut failed = Vec::new();
    for package in workspace::packages(shell)?.into_iter().filter(|package| package.published) {
        let name = package.name;
        if cmd!(shell, "cargo check --locked --package {name}").run().is_err() {
            failed.push(name);
        }
    }
    ensure!(failed.is_empty(), "these do not compile by themselves: {}", failed.join(", "));
    Ok(())
}
