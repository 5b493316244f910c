//! `cargo xtask prove sim`.

use anyhow::Result;
use xshell::{Shell, cmd};

/// Plays simulations. They are arithmetic alone, so they are worth an optimised build.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<()> {
    cmd!(shell, "cargo run --release --locked --quiet -p delayline-sim -- {args...}").run()?;
    Ok(())
}
