//! `cargo xtask release publish`: the crates that the registry lacks.

use anyhow::{Result, bail};
use xshell::{Shell, cmd};

use crate::workspace;

/// Publishes each crate whose version the registry does not have, after those it depends on. Safe
/// to repeat: crates have separate versions, and a publish may end halfway.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<()> {
    let dry = match args {
        [] => None,
        [flag] if flag == "--dry-run" => Some("--dry-run"),
        _ => bail!("`publish` takes no arguments but `--dry-run`"),
    };
    let mut chosen = Vec::new();
    for package in workspace::packages(shell)?.into_iter().filter(|package| package.published) {
        let name = package.name;
        let spec = format!("{name}@{}", package.version);
        // Naming the registry keeps cargo from answering with the member of this name.
        let look = cmd!(shell, "cargo info --quiet --registry crates-io {spec}");
        if look.quiet().ignore_stdout().ignore_stderr().run().is_err() {
            chosen.extend(["--package".to_owned(), name]);
        }
    }
    if chosen.is_empty() {
        println!("xtask: the registry has all versions");
        return Ok(());
    }
    // Cargo sorts them by their dependencies, and waits until the registry shows each.
    Ok(cmd!(shell, "cargo publish --locked {dry...} {chosen...}").run()?)
}
