//! `cargo xtask prove cost`: what the repository costs its readers, and a change its author.
//!
//! A change is measured by a feature of the same kind: each file that names the feature had to be
//! touched to add it. Lines that name it within a few lines of each other are one place.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use xshell::{Shell, cmd};

/// Prints both for each revision in `args`, or for the last commit.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<()> {
    let head = ["HEAD".to_owned()];
    for revision in if args.is_empty() { &head[..] } else { args } {
        println!("{revision}: files and lines");
        for (kind, (files, lines)) in sizes(shell, revision)? {
            println!("  {files:5} {lines:7} {kind}");
        }
        println!("{revision}: files, places and lines that name");
        for (what, pattern) in FEATURES {
            let found = named(shell, revision, pattern)?;
            println!("  {:5} {:6} {:6} {what}", found.files, found.places, found.lines);
        }
    }
    Ok(())
}

/// Features that stand for others of their kind, with all spellings of their names.
const FEATURES: [(&str, &str); 5] = [
    ("an operation that reads: forecast", r"\bforecasts?\b"),
    ("the same in lists of operations and replies", LISTS_OF_READS),
    ("an operation that changes messages: reschedule", r"\breschedule[ds]?\b"),
    ("the same in lists of operations and replies", LISTS_OF_CHANGES),
    ("a field of a message: max_crashes", r"\bmax_crashes\b"),
];

const LISTS_OF_READS: &str = r#"\b(op|reply|self)::forecast\b|"forecast(\.lua)?""#;
const LISTS_OF_CHANGES: &str = r#"\b(op|reply|self)::reschedule\b|"reschedule(\.lua)?""#;

/// Neither counted as written nor as places: generated files, and licences.
const GENERATED: [&str; 12] = [
    "Cargo.lock",
    "package-lock.json",
    ".json",
    ".svg",
    ".png",
    "scripts.txt",
    "LICENSE-MIT",
    "LICENSE-APACHE",
    "docs/benchmarks/groups/README.md",
    "docs/benchmarks/instructions/README.md",
    "docs/benchmarks/shards/README.md",
    ".css",
];

fn is_written(path: &str) -> bool {
    // The seeds of fuzzers are bytes.
    !path.starts_with("fuzz/seeds/") && !GENERATED.iter().any(|end| path.ends_with(end))
}

/// Files and lines by the kind of the file, and of all.
fn sizes(shell: &Shell, revision: &str) -> Result<BTreeMap<String, (usize, usize)>> {
    // The empty pattern matches every line; `-I` leaves binary files out.
    let counts = cmd!(shell, "git grep -I -c -e {EMPTY} {revision}").quiet().read()?;
    let mut sizes = BTreeMap::<String, (usize, usize)>::new();
    for line in counts.lines() {
        let (path, count) = line.rsplit_once(':').context("a count without a path")?;
        let path = path.split_once(':').map_or(path, |it| it.1);
        if is_written(path) {
            let name = path.rsplit('/').next().unwrap_or(path);
            let kind = name.rsplit_once('.').map_or("other", |it| it.1);
            let kind = if COUNTED_APART.contains(&kind) { kind } else { "other" };
            for kind in [kind, "all"] {
                let size = sizes.entry(kind.to_owned()).or_default();
                *size = (size.0 + 1, size.1 + count.parse::<usize>()?);
            }
        }
    }
    Ok(sizes)
}

const EMPTY: &str = "";
const COUNTED_APART: [&str; 4] = ["rs", "lua", "md", "patch"];

/// Where a feature is named.
#[derive(Debug, Default, PartialEq, Eq)]
struct Named {
    files: usize,
    places: usize,
    lines: usize,
}

fn named(shell: &Shell, revision: &str, pattern: &str) -> Result<Named> {
    let found = cmd!(shell, "git grep -n -I -i -E {pattern} {revision}").quiet();
    Ok(count(&found.ignore_status().read()?))
}

/// Counts the lines `REVISION:PATH:NUMBER:TEXT` of `git grep`.
fn count(found: &str) -> Named {
    let mut named = Named::default();
    let mut last = ("", 0);
    for line in found.lines() {
        let mut parts = line.splitn(4, ':').skip(1);
        let (Some(path), Some(number)) = (parts.next(), parts.next()) else { continue };
        let Ok(number) = number.parse::<usize>() else { continue };
        if is_written(path) {
            named.files += usize::from(last.0 != path);
            named.places += usize::from(last.0 != path || number - last.1 > ONE_PLACE);
            named.lines += 1;
            last = (path, number);
        }
    }
    named
}

/// The distance up to which two lines are one place, as in a patch.
const ONE_PLACE: usize = 6;

#[cfg(test)]
mod tests {
    use super::{Named, count};

    #[test]
    fn lines_near_each_other_are_one_place() {
        let found = "HEAD:a.rs:1:x\nHEAD:a.rs:7:x: y\nHEAD:a.rs:14:x\nHEAD:b.md:14:x\n\
            HEAD:Cargo.lock:1:x\n";
        assert_eq!(count(found), Named { files: 2, places: 3, lines: 4 });
    }
}
