//! `cargo xtask release api`: the public API of the core and the facade as committed listings.

use std::fs;

use anyhow::{Context, Result, bail, ensure};
use xshell::{Shell, cmd};

use crate::workspace;

/// Writes the listings, or with `--check` compares them: a review sees each change of the API.
///
/// Needs cargo-public-api, so it is part of the weekly and release jobs rather than of `ci`.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<()> {
    let check = match args {
        [] => false,
        [flag] if flag == "--check" => true,
        _ => bail!("`api` takes no arguments but `--check`"),
    };
    let version = cmd!(shell, "cargo public-api --version").quiet().ignore_stdout();
    version.run().context("`cargo install cargo-public-api --locked` installs what this needs")?;
    let mut outdated = Vec::new();
    for package in PACKAGES {
        // rustdoc's JSON is not stable yet. The stable toolchain writes it all the same, and a
        // listing that depends on one version of the compiler only changes with the API.
        let json = ["--lib", "--all-features", "--", "-Z", "unstable-options"];
        let format = ["--output-format", "json"];
        cmd!(shell, "cargo rustdoc --quiet --package {package} {json...} {format...}")
            .env("RUSTC_BOOTSTRAP", "1")
            .run()?;
        let json = workspace::target_directory(shell)?
            .join(format!("doc/{}.json", package.replace('-', "_")));
        // Without blanket, automatic and derived implementations.
        let listing = cmd!(shell, "cargo public-api --rustdoc-json {json} -sss").read()? + "\n";
        let path = format!("docs/api/{package}.txt");
        if !check {
            shell.write_file(&path, listing)?;
        } else if fs::read_to_string(shell.current_dir().join(&path)).unwrap_or_default() != listing
        {
            outdated.push(path);
        }
    }
    ensure!(
        outdated.is_empty(),
        "`cargo xtask release api` would change {}: the public API has changed",
        outdated.join(" and ")
    );
    Ok(())
}

const PACKAGES: [&str; 2] = ["delayline", "delayline-core"];
