//! `cargo xtask web browser` and `cargo xtask web screenshots`.

use anyhow::{Context as _, Result, ensure};
use xshell::{Shell, cmd};

use crate::{packages, redis_server};

/// In a separate workspace, because nothing else needs a client for browsers.
const MANIFEST: [&str; 3] = ["--locked", "--manifest-path", "browser/Cargo.toml"];

/// Does with the dashboard what a person does, in a Chromium without a window.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<()> {
    let server = redis_server::ensure(shell)?;
    let _server = shell.push_env("REDIS_SERVER_BIN", &server);
    ensure_browser(shell)?;
    let place = shell.current_dir().join("target/browser");
    shell.create_dir(&place)?;
    packages::node(shell, &place, &["axe-core@4"])?;
    let axe = place.join("node_modules/axe-core/axe.min.js");
    let _axe = shell.push_env("AXE_CORE", axe);
    cmd!(shell, "cargo clippy {MANIFEST...} --all-targets -- -D warnings").run()?;
    cmd!(shell, "cargo test {MANIFEST...} {args...}").run()?;
    Ok(())
}

/// Writes the pictures of the dashboard that the documents show.
pub(crate) fn screenshots(shell: &Shell, args: &[String]) -> Result<()> {
    ensure!(args.is_empty(), "`screenshots` takes no arguments");
    ensure_browser(shell)?;
    let folder = "docs/screenshots";
    cmd!(shell, "cargo run --quiet {MANIFEST...} -- {folder}").run()?;
    Ok(())
}

/// Chromium and its driver: the installed ones, else Debian's, installed now.
fn ensure_browser(shell: &Shell) -> Result<()> {
    for (package, program) in [("chromium", "chromium"), ("chromium-driver", "chromedriver")] {
        let there = cmd!(shell, "{program} --version").quiet().ignore_stdout().ignore_stderr();
        if std::env::var_os("CHROMEDRIVER").is_none() && there.run().is_err() {
            redis_server::install(shell, package).context(
                "Chromium and its WebDriver are needed: install `chromium` and `chromium-driver`, \
                 or name a driver by CHROMEDRIVER",
            )?;
        }
    }
    Ok(())
}
