//! `cargo xtask release package`: can every published crate be published?

use std::fs;

use anyhow::{Context as _, Result, bail, ensure};
use xshell::{Shell, cmd};

use crate::msrv;
use crate::workspace::{self, Package};

/// Packages every published crate as a registry gets it, and compiles the packages with the oldest
/// compiler that they promise. It finds a file that is not in its package, and a dependency that
/// is not published.
///
/// All packages together, because `cargo package` would compile all dependencies anew for
/// each of them.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<()> {
    ensure!(args.is_empty(), "`package` takes no arguments");
    let mut packages = workspace::packages(shell)?;
    packages.retain(|package| package.published);
    check_files(&packages)?;

    let folder = workspace::target_directory(shell)?.join("package");
    shell.remove_path(&folder)?;
    let chosen = packages.iter().flat_map(|package| ["--package", &package.name]);
    let unverified = ["--no-verify", "--allow-dirty", "--locked"];
    cmd!(shell, "cargo package {chosen...} {unverified...}").run()?;
    let mut members = Vec::new();
    for Package { name, version, .. } in &packages {
        let member = format!("{name}-{version}");
        let package = folder.join(format!("{member}.crate"));
        cmd!(shell, "tar --extract --gzip --file {package} --directory {folder}").quiet().run()?;
        members.push((name, member));
    }
    // A workspace of the packages alone, which take each other for what a registry would have.
    let list: Vec<_> = members.iter().map(|(_, member)| format!("{member:?}")).collect();
    let patches =
        members.iter().map(|(name, member)| format!("{name} = {{ path = {member:?} }}\n"));
    let manifest = format!(
        "[workspace]\nresolver = \"3\"\nmembers = [{}]\n\n[patch.crates-io]\n{}",
        list.join(", "),
        patches.collect::<String>()
    );
    fs::write(folder.join("Cargo.toml"), manifest)?;
    shell.copy_file("Cargo.lock", folder.join("Cargo.lock"))?;
    let cargo = msrv::cargo(shell)?;
    let (program, args) = cargo.split_first().context("a command has a program")?;
    let whole = ["--workspace", "--all-features"];
    let manifest = folder.join("Cargo.toml");
    Ok(cmd!(shell, "{program} {args...} check --manifest-path {manifest} {whole...}").run()?)
}

/// Each package has what its page at a registry shows, and its licences.
fn check_files(packages: &[Package]) -> Result<()> {
    let mut missing = Vec::new();
    for package in packages {
        let absent = FILES.iter().filter(|name| !package.directory.join(name).is_file());
        missing.extend(absent.map(|name| format!("{} has no {name}", package.name)));
    }
    if !missing.is_empty() {
        bail!("{}", missing.join("\n"));
    }
    Ok(())
}

/// The licences are links to the files of the workspace.
const FILES: [&str; 3] = ["README.md", "LICENSE-APACHE", "LICENSE-MIT"];
