//! Packages of other languages, for programs that are run as users run them.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use xshell::{Shell, cmd};

/// Installs packages from PyPI into a virtual environment below `place`, and returns its Python.
pub(crate) fn python(shell: &Shell, place: &Path, packages: &[&str]) -> Result<PathBuf> {
    let venv = place.join("venv");
    cmd!(shell, "python3 -m venv {venv}")
        .run()
        .context("Python 3 and its venv are needed: on Debian, python3-venv")?;
    let python = venv.join("bin/python");
    cmd!(shell, "{python} -m pip install --quiet {packages...}").run()?;
    Ok(python)
}

/// Installs packages from npm below `place`, where programs find them.
pub(crate) fn node(shell: &Shell, place: &Path, packages: &[&str]) -> Result<()> {
    for program in ["node", "npm"] {
        cmd!(shell, "{program} --version").quiet().ignore_stdout().run().context(NODE)?;
    }
    let npm = cmd!(shell, "npm install --loglevel error --prefix {place} {packages...}");
    npm.ignore_stdout().run().context("npm could not install packages")
}

const NODE: &str = "Node and npm are needed: on Debian, nodejs and npm";
