//! `cargo xtask fix`.

use anyhow::{Result, ensure};
use xshell::{Shell, cmd};

use crate::workspace;

/// Formats the code, applies the lints' own corrections, and writes generated files.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<()> {
    ensure!(args.is_empty(), "`fix` takes no arguments");
    cmd!(shell, "cargo clippy --fix --workspace --all-targets --allow-dirty --allow-staged")
        .run()?;
    // Last: corrections are not always formatted.
    format(shell, &[])?;
    write_generated(shell)
}

/// Formats all code, or with `--check` in `args` fails where that would change something.
pub(crate) fn format(shell: &Shell, args: &[&str]) -> Result<()> {
    for manifest in workspace::MANIFESTS {
        // Elsewhere, `--all` would format the crates of the first workspace again.
        let what: &[&str] = match manifest {
            "Cargo.toml" => &["--all"],
            "apart/Cargo.toml" => &APART,
            _ => &[],
        };
        cmd!(shell, "cargo fmt --manifest-path {manifest} {what...} {args...}").run()?;
    }
    Ok(())
}

/// Writes the scripts as servers get them, the tables of the wire page and, if there is none of
/// this schema version, the golden data. `cargo xtask test` compares them.
pub(crate) fn write_generated(shell: &Shell) -> Result<()> {
    let _write = shell.push_env("DELAYLINE_WRITE", "1");
    let test = ["test", "--quiet", "-p", "delayline-redis-protocol", "--all-features", "--test"];
    cmd!(shell, "cargo {test...} generated").run()?;
    let golden = "the_golden_data_is_what_this_layout_writes";
    cmd!(shell, "cargo {test...} scripts {golden}").run()?;
    Ok(())
}

/// The members of the workspace `apart`.
const APART: [&str; 10] = [
    "-p",
    "delayline-browser",
    "-p",
    "delayline-embedded",
    "-p",
    "delayline-opentelemetry",
    "-p",
    "delayline-outbox",
    "-p",
    "delayline-peers",
];
