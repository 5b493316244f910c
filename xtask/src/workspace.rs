//! What cargo knows about the workspace.

use std::collections::BTreeSet;
use std::env;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use xshell::{Shell, cmd};

/// A member of the workspace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Package {
    /// Its name.
    pub(crate) name: String,
    /// Its version.
    pub(crate) version: String,
    /// Its description.
    pub(crate) description: Option<String>,
    /// Where its page at a registry points to.
    pub(crate) repository: Option<String>,
    /// The members that it depends on, each with the version that it asks for, if any.
    pub(crate) members: Vec<(String, String)>,
    /// Its licence expression.
    pub(crate) license: Option<String>,
    /// Its features, without `default`.
    pub(crate) features: Vec<String>,
    /// The oldest compiler that builds it.
    pub(crate) rust_version: Option<String>,
    /// Whether it goes to a registry.
    pub(crate) published: bool,
    /// Where its `Cargo.toml` is.
    pub(crate) directory: PathBuf,
}

/// The workspace, and the ones that stand apart because daily builds do not need their
/// dependencies.
pub(crate) const MANIFESTS: [&str; 3] =
    ["Cargo.toml", "apart/Cargo.toml", "fuzz/libfuzzer/Cargo.toml"];

/// What `cargo run` says, under a name of our own.
const MANIFEST_DIR: &str = "XTASK_MANIFEST_DIR";

/// Starts this program again without what `cargo run` says of its package. Build scripts of
/// dependencies run again when that changes. So every cargo that is started from here would build
/// much anew, and so would the next cargo after it.
pub(crate) fn leave_cargo() -> Result<()> {
    let Some(directory) = env::var_os("CARGO_MANIFEST_DIR") else { return Ok(()) };
    let mut again = Command::new(env::current_exe()?);
    again.args(env::args_os().skip(1)).env(MANIFEST_DIR, directory);
    for (name, _) in env::vars_os() {
        let about = |prefix| name.to_str().is_some_and(|name| name.starts_with(prefix));
        if about("CARGO_MANIFEST_") || about("CARGO_PKG_") {
            again.env_remove(name);
        }
    }
    // Only returns if it fails.
    Err(again.exec().into())
}

/// The root of the workspace.
///
/// As `cargo run` says it. The path at compile time may be another checkout's, if both share a
/// target directory.
pub(crate) fn root() -> PathBuf {
    let own = env::var_os(MANIFEST_DIR)
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    own.parent().unwrap_or(&own).to_owned()
}

fn metadata(shell: &Shell) -> Result<Value> {
    let text =
        cmd!(shell, "cargo metadata --no-deps --format-version 1 --locked").quiet().read()?;
    Ok(serde_json::from_str(&text)?)
}

/// The oldest compiler for all members of the workspace.
pub(crate) fn rust_version(shell: &Shell) -> Result<String> {
    let packages = packages(shell)?;
    let versions: BTreeSet<_> = packages.into_iter().map(|package| package.rust_version).collect();
    let mut versions = versions.into_iter();
    match (versions.next().flatten(), versions.next()) {
        (Some(version), None) => Ok(version),
        _ => bail!("the members of the workspace do not promise one `rust-version`"),
    }
}

/// Where cargo puts its artifacts: `CARGO_TARGET_DIR` or a configuration may say another place.
pub(crate) fn target_directory(shell: &Shell) -> Result<PathBuf> {
    let metadata = metadata(shell)?;
    let path = metadata["target_directory"].as_str();
    path.map(PathBuf::from).context("cargo metadata has no target directory")
}

/// The members of the workspace.
pub(crate) fn packages(shell: &Shell) -> Result<Vec<Package>> {
    let metadata = metadata(shell)?;
    let packages = metadata["packages"].as_array().context("cargo metadata has no packages")?;
    packages.iter().map(package).collect()
}

/// Dependencies with a path; without a version they ask for `*`.
fn members(dependencies: &Value) -> Vec<(String, String)> {
    let dependencies = dependencies.as_array().into_iter().flatten();
    let members = dependencies.filter(|it| it["path"].is_string());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    members.map(|it| (text(&it["name"]), text(&it["req"]))).collect()
}

fn package(json: &Value) -> Result<Package> {
    let text = |field: &str| json[field].as_str().map(str::to_owned);
    let features = json["features"].as_object().context("a package without features")?;
    Ok(Package {
        name: text("name").context("a package without name")?,
        version: text("version").context("a package without version")?,
        description: text("description"),
        repository: text("repository"),
        members: members(&json["dependencies"]),
        license: text("license"),
        rust_version: text("rust_version"),
        features: features.keys().filter(|name| *name != "default").cloned().collect(),
        // Null is "anywhere", an empty list is `publish = false`.
        published: json["publish"].as_array().is_none_or(|registries| !registries.is_empty()),
        directory: Path::new(json["manifest_path"].as_str().context("a package without a path")?)
            .with_file_name(""),
    })
}
