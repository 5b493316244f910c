//! Which crate may depend on what. The layers are only real as long as this passes.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use xshell::{Shell, cmd};

use crate::workspace::{self, Package};

/// Checks every rule; the error names all that are broken.
pub(crate) fn check(shell: &Shell) -> Result<()> {
    let packages = workspace::packages(shell)?;
    let mut broken = descriptions(&packages);
    broken.extend(requirements(&packages));
    for (package, forbidden, reason) in RULES {
        let tree = normal_tree(shell, package)?;
        broken.extend(forbidden.iter().filter(|name| tree.contains_name(name)).map(|name| {
            format!("{package} depends on {name}: {reason} (cargo tree -p {package} -i {name})")
        }));
    }
    let unpublished: Vec<&Package> = packages.iter().filter(|package| !package.published).collect();
    for package in packages.iter().filter(|package| package.published) {
        let tree = normal_tree(shell, &package.name)?;
        let used = unpublished.iter().filter(|other| tree.contains_name(&other.name));
        broken.extend(used.map(|other| {
            format!("{} is published and depends on {}, which is not", package.name, other.name)
        }));
    }
    broken.extend(whole_tree(&Tree::read(
        shell,
        &["--workspace", "-e", "normal,build,dev", "--target", "all"],
    )?));
    if !broken.is_empty() {
        bail!("{}", broken.join("\n"));
    }
    Ok(())
}

/// Crate, the dependencies it must not have, and why. With all features on, without its tests.
const RULES: &[(&str, &[&str], &str)] = &[
    (
        "delayline-core",
        &[
            "tokio",
            "async-std",
            "smol",
            "redis",
            "fred",
            "rand",
            "rand_core",
            "fastrand",
            "getrandom",
            "fastrand",
            "uuid",
            "chrono",
            "jiff",
            "time",
        ],
        "the contract has no runtime, driver, randomness or clock",
    ),
    ("delayline-redis-protocol", &["redis", "fred"], "the protocol is the same for every driver"),
    ("delayline-redis", &["fred"], "drivers do not know each other"),
    ("delayline-fred", &["redis"], "drivers do not know each other"),
    ("delayline-memory", &["redis", "fred"], "the embedded backend needs no server"),
    ("delayline-file", &["redis", "fred"], "the embedded backend needs no server"),
    ("delayline-testkit", &["redis", "fred"], "the suite is for every backend"),
    (
        "delayline-driver-testkit",
        &["delayline-redis", "delayline-fred", "fred"],
        "the tests are for every driver",
    ),
];

/// What holds for the workspace as a whole, tests included.
fn whole_tree(tree: &Tree) -> Vec<String> {
    let mut broken = Vec::new();
    for name in ["aws-lc-rs", "aws-lc-sys"] {
        if tree.contains_name(name) {
            broken.push(format!("{name} needs a C toolchain and CMake: choose ring instead"));
        }
    }
    let majors: BTreeSet<&str> = tree.versions("redis").map(major).collect();
    if majors.len() > 1 {
        broken.push(format!("several major versions of redis: {majors:?}"));
    }
    broken
}

/// Crates have separate versions. One that asks for an older member than the one it is built with
/// here may not compile with what a registry has.
fn requirements(packages: &[Package]) -> Vec<String> {
    let mut broken = Vec::new();
    for package in packages {
        for (member, asked) in package.members.iter().filter(|(_, asked)| asked != "*") {
            let found = packages.iter().find(|other| other.name == *member);
            let version = found.map_or("no version", |found| found.version.as_str());
            if asked.trim_start_matches('^') != version {
                broken.push(format!("{} asks for {member} {asked}: it is {version}", package.name));
            }
        }
    }
    broken
}

/// Registries want both, and readers too.
fn descriptions(packages: &[Package]) -> Vec<String> {
    let missing = |value: &Option<String>| value.as_deref().is_none_or(str::is_empty);
    let mut broken = Vec::new();
    for package in packages {
        if missing(&package.description) {
            broken.push(format!("{} has no description", package.name));
        }
        if missing(&package.license) {
            broken.push(format!("{} has no license", package.name));
        }
    }
    broken
}

fn normal_tree(shell: &Shell, package: &str) -> Result<Tree> {
    Tree::read(shell, &["-p", package, "-e", "normal"])
}

/// Names and versions of packages.
struct Tree(BTreeSet<(String, String)>);

impl Tree {
    fn read(shell: &Shell, args: &[&str]) -> Result<Self> {
        let text = cmd!(shell, "cargo tree --all-features --locked --prefix none {args...}")
            .quiet()
            .read()?;
        Ok(Self::parse(&text))
    }

    /// Reads lines like `tokio v1.54.1` and `delayline v0.1.0 (PATH)`.
    fn parse(text: &str) -> Self {
        let line = |line: &str| {
            let mut words = line.split_whitespace();
            Some((words.next()?.to_owned(), words.next()?.strip_prefix('v')?.to_owned()))
        };
        Self(text.lines().filter_map(line).collect())
    }

    fn contains_name(&self, name: &str) -> bool {
        self.versions(name).next().is_some()
    }

    fn versions(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |package| package.0 == name).map(|package| package.1.as_str())
    }
}

/// The part of a version that a breaking change changes.
fn major(version: &str) -> &str {
    let mut dots = version.match_indices('.').map(|(at, _)| at);
    let end = if version.starts_with("0.") { dots.nth(1) } else { dots.next() };
    &version[..end.unwrap_or(version.len())]
}

#[cfg(test)]
mod tests {
    use super::{Tree, descriptions, major, requirements, whole_tree};
    use crate::workspace::Package;

    #[test]
    fn a_member_is_asked_for_by_its_version() {
        let of = |name: &str, version: &str, members: &[(&str, &str)]| Package {
            name: name.to_owned(),
            version: version.to_owned(),
            members: members.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect(),
            ..Package::default()
        };
        let good = of("c", "0.1.0", &[("a", "^0.2.1"), ("b", "*")]);
        let bad = of("d", "0.1.0", &[("a", "^0.2.0")]);
        let broken = requirements(&[of("a", "0.2.1", &[]), of("b", "0.3.0", &[]), good, bad]);
        assert_eq!(broken, ["d asks for a ^0.2.0: it is 0.2.1"]);
    }

    #[test]
    fn trees_are_read_by_name_and_version() {
        let tree = Tree::parse("a v0.1.0 (SOMEWHERE)\nredis v1.8.1\n\nredis-macros v2.0.0 (*)\n");
        assert!(tree.contains_name("a") && tree.contains_name("redis"));
        assert!(!tree.contains_name("macros"));
        assert_eq!(tree.versions("redis").collect::<Vec<_>>(), ["1.8.1"]);
    }

    #[test]
    fn two_majors_are_an_error_and_two_minors_are_not() {
        assert_eq!(whole_tree(&Tree::parse("redis v1.8.1\nredis v1.9.0")), Vec::<String>::new());
        assert_eq!(whole_tree(&Tree::parse("redis v1.8.1\nredis v2.0.0")).len(), 1);
        assert_eq!(whole_tree(&Tree::parse("aws-lc-rs v1.0.0")).len(), 1);
    }

    #[test]
    fn below_one_the_minor_is_the_major() {
        assert_eq!(["1.8.1", "0.32.7", "2"].map(major), ["1", "0.32", "2"]);
    }

    #[test]
    fn every_crate_describes_itself() {
        let package = Package { name: "a".to_owned(), ..Package::default() };
        assert_eq!(descriptions(&[package]), ["a has no description", "a has no license"]);
    }
}
