//! `cargo xtask minimal-versions`: do the oldest dependencies that the manifests allow do?

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use xshell::{Shell, cmd};

use crate::workspace;

/// Compiles what is published with the oldest version of each direct dependency, in a clone of the
/// last commit, whose lock file is changed. Their own dependencies stay as they are, because others
/// are responsible for those bounds.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<()> {
    ensure!(args.is_empty(), "`minimal-versions` takes no arguments");
    let home = workspace::target_directory(shell)?.join("minimal-versions");
    let tree = home.join("tree");
    shell.remove_path(&tree)?;
    shell.create_dir(&home)?;
    cmd!(shell, "git clone --quiet --shared . {tree}").run()?;
    let _tree = shell.push_dir(&tree);
    let metadata =
        cmd!(shell, "cargo metadata --format-version 1 --locked --all-features").quiet().read()?;
    let dependencies = dependencies(&serde_json::from_str(&metadata)?)?;
    let mut refused = Vec::new();
    for Dependency { name, locked, lowest } in &dependencies {
        println!("xtask: {name} {lowest} instead of {locked}");
        if cmd!(shell, "cargo update --quiet {name}@{locked} --precise {lowest}").run().is_err() {
            refused.push(format!("{name} {lowest}"));
        }
    }
    // Cargo has said which: the manifest promises a version that nobody can get.
    ensure!(refused.is_empty(), "others need newer ones than {}", refused.join(", "));
    let mut chosen = Vec::new();
    for package in workspace::packages(shell)?.into_iter().filter(|package| package.published) {
        chosen.extend(["--package".to_owned(), package.name]);
    }
    let build = home.join("build");
    cmd!(shell, "cargo check --locked --all-features {chosen...} --target-dir {build}").run()?;
    Ok(())
}

/// A direct dependency of a published crate whose lowest version is not the one in the lock file.
#[derive(Debug, PartialEq, Eq)]
struct Dependency {
    name: String,
    locked: String,
    lowest: String,
}

fn dependencies(metadata: &Value) -> Result<Vec<Dependency>> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let packages: BTreeMap<_, _> =
        list(&metadata["packages"]).into_iter().map(|it| (text(&it["id"]), it)).collect();
    let mut found = BTreeMap::new();
    for node in list(&metadata["resolve"]["nodes"]) {
        let package = packages.get(&text(&node["id"])).context("a node without a package")?;
        let is_ours = package["source"].is_null();
        // An empty list is `publish = false`.
        if !is_ours || package["publish"].as_array().is_some_and(Vec::is_empty) {
            continue;
        }
        for wanted in list(&package["dependencies"]) {
            // Tests are not what users build.
            if wanted["kind"] == "dev" || !wanted["path"].is_null() {
                continue;
            }
            let (name, requirement) = (text(&wanted["name"]), text(&wanted["req"]));
            let lowest = lowest(&requirement)
                .with_context(|| format!("{name} {requirement}: this is no lower bound"))?;
            let locked: Vec<_> = list(&node["deps"])
                .iter()
                .filter_map(|dep| packages.get(&text(&dep["pkg"])))
                .filter(|package| package["name"] == wanted["name"])
                .map(|package| text(&package["version"]))
                .filter(|version| is_compatible(version, &lowest))
                .collect();
            // Without one it is for another kind of machine.
            let [locked] = locked.as_slice() else {
                if locked.is_empty() {
                    continue;
                }
                bail!("{name} {requirement} is there in several versions");
            };
            if *locked != lowest {
                let locked = locked.clone();
                found.insert((name.clone(), locked.clone()), Dependency { name, locked, lowest });
            }
        }
    }
    Ok(found.into_values().collect())
}

/// The lowest version for `^1.2` or the like.
fn lowest(requirement: &str) -> Option<String> {
    let numbers = requirement.strip_prefix('^')?;
    let numbers: Option<Vec<u64>> = numbers.split('.').map(|part| part.parse().ok()).collect();
    let numbers = numbers.filter(|numbers| numbers.len() <= 3)?;
    let part = |place: usize| numbers.get(place).copied().unwrap_or(0);
    Some(format!("{}.{}.{}", part(0), part(1), part(2)))
}

/// Whether two versions are the same up to the first number that is not 0.
fn is_compatible(version: &str, other: &str) -> bool {
    let major = |version: &str| -> Vec<String> {
        let mut leading = true;
        let parts = version.split('.').take_while(|part| {
            let taken = leading;
            leading &= *part == "0";
            taken
        });
        parts.map(str::to_owned).collect()
    };
    major(version) == major(other)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Dependency, dependencies, is_compatible, lowest};

    #[test]
    fn lower_bounds_have_three_numbers() {
        assert_eq!(lowest("^1.2.3").as_deref(), Some("1.2.3"));
        assert_eq!(lowest("^0.16").as_deref(), Some("0.16.0"));
        assert_eq!(lowest("^1").as_deref(), Some("1.0.0"));
        for other in ["=1.2.3", ">=1, <3", "*", "^1.0.0-alpha"] {
            assert_eq!(lowest(other), None, "{other}");
        }
        assert!(is_compatible("0.5.10", "0.5.0") && is_compatible("1.9.0", "1.2.0"));
        assert!(!is_compatible("0.6.5", "0.5.0") && !is_compatible("2.0.0", "1.0.0"));
    }

    #[test]
    fn only_what_users_build_and_is_not_at_its_bound_is_changed() {
        let wanted = |name: &str, requirement: &str, kind: Option<&str>| {
            let [name, req, kind] = [json!(name), json!(requirement), json!(kind)];
            json!({ "name": name, "req": req, "kind": kind })
        };
        let package = |name: &str, version: &str| {
            let id = format!("{name}@{version}");
            json!({ "id": id, "name": name, "version": version, "source": "registry" })
        };
        let sibling = json!({ "name": "sibling", "req": "^0.1.0", "kind": null, "path": "/s" });
        let ours = |name: &str, publish: Option<[&str; 0]>| {
            let dependencies = [
                wanted("a", "^1.2", None),
                wanted("b", "^0.5", Some("build")),
                wanted("b", "^0.6", None),
                wanted("exact", "^1.0.1", None),
                wanted("tests", "^1", Some("dev")),
                wanted("elsewhere", "^1", None),
                sibling.clone(),
            ];
            json!({
                "id": name,
                "name": name,
                "source": null,
                "publish": publish,
                "dependencies": dependencies,
            })
        };
        let ids = ["a@1.9.0", "b@0.5.10", "b@0.6.5", "exact@1.0.1", "tests@1.1.0"];
        let deps: Vec<_> = ids.iter().map(|id| json!({ "pkg": id })).collect();
        let mut packages = vec![ours("ours", None), ours("private", Some([]))];
        packages.extend(
            ids.iter()
                .map(|id| id.split_once('@').unwrap())
                .map(|(name, version)| package(name, version)),
        );
        let nodes =
            [json!({ "id": "ours", "deps": deps }), json!({ "id": "private", "deps": deps })];
        let found = dependencies(&json!({ "packages": packages, "resolve": { "nodes": nodes } }));
        let expected = [("a", "1.9.0", "1.2.0"), ("b", "0.5.10", "0.5.0"), ("b", "0.6.5", "0.6.0")];
        let expected = expected.map(|(name, locked, lowest)| Dependency {
            name: name.to_owned(),
            locked: locked.to_owned(),
            lowest: lowest.to_owned(),
        });
        assert_eq!(found.unwrap(), expected);
    }
}
