//! `cargo xtask lua`.

use std::fs;

use anyhow::{Context, Result};
use xshell::Shell;

use crate::{fix, workspace};

/// Prints the script of an operation as servers get it, or the names of all.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<()> {
    fix::write_generated(shell)?;
    let folder = workspace::root().join("crates/delayline-redis-protocol/snapshots");
    let Some(name) = args.first() else {
        let mut names = Vec::new();
        for file in fs::read_dir(folder)? {
            names.push(file?.file_name().to_string_lossy().replace(".lua", ""));
        }
        names.sort();
        println!("{}", names.join("\n"));
        return Ok(());
    };
    let path = folder.join(name).with_extension("lua");
    let text = fs::read_to_string(path).with_context(|| format!("there is no script {name}"))?;
    print!("{text}");
    Ok(())
}
