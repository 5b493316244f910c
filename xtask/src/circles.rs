//! No circles between the files of a crate, so that each file can be read after the files it uses.
//!
//! File A uses file B if A names something that B defines, in a `use`, a path or a macro's
//! arguments. Tests do not count. A module that only declares its children and re-exports their
//! names uses none of them: a file that takes such a name from the parent uses the child.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use proc_macro2::TokenStream;

use self::source::Module;

mod source;

/// Checks every package of the workspace at `root`; the error lists all circles.
pub(super) fn check(root: &Path) -> Result<()> {
    let mut packages = vec![root.join("xtask"), root.join("benches")];
    for entry in fs::read_dir(root.join("crates"))? {
        packages.push(entry?.path());
    }
    packages.sort();
    let mut findings = Vec::new();
    for package in packages {
        let mut roots = vec![package.join("src")];
        while let Some(folder) = roots.pop() {
            let shown = folder.strip_prefix(root)?.display().to_string();
            let sources = read(&folder, &mut roots)?;
            let circles = circles(&sources).with_context(|| shown.clone())?;
            findings.extend(circles.iter().map(|circle| format!("{shown}: {circle}")));
        }
    }
    if !findings.is_empty() {
        bail!("{}", findings.join("\n"));
    }
    Ok(())
}

/// The text of each source of a crate, by its path from the root, with slashes.
type Sources = BTreeMap<String, String>;

/// Reads all below `root`. A folder with a `main.rs` is another program, and goes to `others`.
fn read(root: &Path, others: &mut Vec<PathBuf>) -> Result<Sources> {
    let mut sources = Sources::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            if path.join("main.rs").exists() {
                others.push(path);
            } else if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "rs") {
                let name = path.strip_prefix(root)?.to_string_lossy().replace('\\', "/");
                sources.insert(name, fs::read_to_string(&path)?);
            }
        }
    }
    Ok(sources)
}

/// The circles of one crate, each with the names that tie it.
fn circles(sources: &Sources) -> Result<Vec<String>> {
    let mut modules = BTreeMap::new();
    for (file, text) in sources {
        let library = sources.contains_key("lib.rs");
        let Some(path) = module_of(file, library) else { continue };
        let tokens: TokenStream = text.parse().map_err(|error| anyhow!("{file}: {error}"))?;
        source::read(file, path, tokens, &mut modules);
    }
    let uses = uses(&modules);
    let reachable: BTreeMap<&str, BTreeSet<&str>> =
        uses.keys().map(|file| (*file, reachable(file, &uses))).collect();
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    for (file, there) in &reachable {
        let round = |other: &&str| reachable.get(*other).is_some_and(|back| back.contains(file));
        let circle: Vec<&str> = there.iter().copied().filter(round).collect();
        if circle.contains(file) && seen.insert(circle.clone()) {
            found.push(describe(&circle, &uses));
        }
    }
    Ok(found)
}

/// The module of a file; `None` if it is the program of a library, or only compiled for tests.
fn module_of(file: &str, library: bool) -> Option<Vec<String>> {
    let path = file.strip_suffix(".rs")?;
    let path = path.strip_suffix("/mod").unwrap_or(path);
    let parts: Vec<_> = path.split('/').map(str::to_owned).collect();
    match path {
        "lib" => Some(Vec::new()),
        "main" => (!library).then(Vec::new),
        _ if parts.iter().any(|part| part == "tests") => None,
        _ => Some(parts),
    }
}

/// For each file, the files that it uses, with the names.
type Uses<'a> = BTreeMap<&'a str, BTreeMap<&'a str, BTreeSet<String>>>;

fn uses(modules: &BTreeMap<Vec<String>, Module>) -> Uses<'_> {
    let mut uses = Uses::new();
    for (path, module) in modules {
        for name in module.imported.iter().chain(&module.named) {
            if let Some(file) = definer(modules, path, name, 0).filter(|it| *it != module.file) {
                let names = uses.entry(&module.file).or_default().entry(file).or_default();
                names.insert(name.join("::"));
            }
        }
    }
    uses
}

/// More aliases than a name goes through.
const MAX_ALIASES: usize = 16;

/// The file that defines what `name` is in the module `at`, if this crate does.
fn definer<'a>(
    modules: &'a BTreeMap<Vec<String>, Module>,
    at: &[String],
    name: &[String],
    aliases: usize,
) -> Option<&'a str> {
    let mut path = at.to_owned();
    for (number, part) in name.iter().enumerate() {
        let module = modules.get(&path)?;
        let rest = &name[number + 1..];
        let mut child = path.clone();
        child.push(part.clone());
        match part.as_str() {
            "crate" => path.clear(),
            "self" => {}
            "super" => drop(path.pop()?),
            _ if modules.contains_key(&child) && !(rest.is_empty() && module.defines(part)) => {
                path = child;
            }
            _ if module.defines(part) => return Some(&module.file),
            _ if aliases >= MAX_ALIASES => return None,
            _ => {
                let alias = module.aliases.get(part).into_iter().cloned();
                let globs =
                    module.globs.iter().map(|it| [&it[..], std::slice::from_ref(part)].concat());
                return alias.chain(globs).find_map(|it| {
                    definer(modules, &path, &[&it[..], rest].concat(), aliases + 1)
                });
            }
        }
    }
    None
}

/// The files that one uses, directly or through others.
fn reachable<'a>(file: &'a str, uses: &Uses<'a>) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut next = vec![file];
    while let Some(file) = next.pop() {
        let used = uses.get(file).into_iter().flat_map(BTreeMap::keys);
        next.extend(used.filter(|it| found.insert(**it)));
    }
    found
}

fn describe(circle: &[&str], uses: &Uses<'_>) -> String {
    let mut text = format!("a circle of {} files", circle.len());
    for file in circle {
        for (other, names) in uses.get(file).into_iter().flatten() {
            if circle.contains(other) {
                let names: Vec<_> = names.iter().map(String::as_str).collect();
                text += &format!("\n    {file} -> {other}: {}", names.join(", "));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Sources, check, circles};
    use crate::workspace;

    #[test]
    fn no_file_of_the_workspace_is_in_a_circle() {
        check(&workspace::root()).unwrap();
    }

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Sources =
            files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        circles(&sources).unwrap()
    }

    #[test]
    fn files_that_name_each_other_are_a_circle() {
        let root = ("lib.rs", "mod a;\nmod b;\n");
        let b = ("b.rs", "use super::a;\npub(crate) struct B;\nfn f() { a::f(); }\n");
        let circle = found(&[root, ("a.rs", "use crate::b::B;\npub(crate) fn f() {}\n"), b]);
        assert_eq!(
            circle,
            ["a circle of 2 files\n    a.rs -> b.rs: crate::b::B\n    b.rs -> a.rs: a::f"]
        );
        assert!(found(&[root, ("a.rs", "pub(crate) fn f() {}\n"), b]).is_empty());
    }

    #[test]
    fn a_circle_of_three_is_found_once() {
        let circle = found(&[
            ("lib.rs", "mod a;\nmod b;\nmod c;\n"),
            ("a.rs", "pub(crate) fn f() { crate::b::f() }\n"),
            ("b.rs", "pub(crate) fn f() { println!(\"{}\", crate::c::f()) }\n"),
            ("c.rs", "pub(crate) fn f() { crate::a::f() }\n"),
        ]);
        assert_eq!(circle.len(), 1);
        assert!(circle[0].starts_with("a circle of 3 files"), "{circle:?}");
    }

    #[test]
    fn a_parent_that_re_exports_is_in_no_circle() {
        let child = ("a/child.rs", "use super::other::Other;\npub struct Child(Other);\n");
        let other = ("a/other.rs", "pub struct Other;\n");
        let root = ("lib.rs", "mod a;\npub use a::Child;\n");
        let parent = "mod child;\nmod other;\npub use self::child::Child;\n";
        assert!(found(&[root, ("a.rs", parent), child, other]).is_empty());
        // A re-exported name belongs to the file that defines it.
        let child = ("a/child.rs", "use crate::a::Other;\npub struct Child(Other);\n");
        let other = ("a/other.rs", "pub struct Other(Option<Box<super::Child>>);\n");
        let parent = format!("{parent}pub use self::other::Other;\n");
        assert_eq!(found(&[root, ("a.rs", &parent), child, other]).len(), 1);
    }

    #[test]
    fn a_parent_that_uses_a_child_that_uses_it_is_a_circle() {
        let root = ("lib.rs", "mod a;\n");
        let parent = "mod child;\npub(crate) fn help() {}\nfn run() { child::run() }\n";
        let child = "use super::*;\npub(super) fn run() { help() }\n";
        assert_eq!(found(&[root, ("a.rs", parent), ("a/child.rs", child)]).len(), 1);
        let child = "pub(super) fn run() { crate::a::help() }\n";
        assert_eq!(found(&[root, ("a.rs", parent), ("a/child.rs", child)]).len(), 1);
        let child = "pub(super) fn run() {}\n#[cfg(test)]\nmod tests { use super::super::help; }\n";
        assert!(found(&[root, ("a.rs", parent), ("a/child.rs", child)]).is_empty());
    }
}
