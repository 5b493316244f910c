//! `cargo xtask prove opentelemetry`.

use anyhow::{Result, ensure};
use xshell::{Shell, cmd};

/// Lets the OpenTelemetry example export to a collector, and checks what arrives.
///
/// In a separate workspace, because nothing else needs an exporter.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<()> {
    ensure!(args.is_empty(), "`opentelemetry` takes no arguments");
    let example = ["--locked", "--quiet", "--manifest-path", "examples/opentelemetry/Cargo.toml"];
    cmd!(shell, "cargo test {example...}").run()?;
    Ok(())
}
