//! Which tests there are, as the test programs themselves list them.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use xshell::{Shell, cmd};

use crate::{workspace, zoo};

/// What a full test run builds.
pub(crate) const EVERYTHING: [&str; 4] =
    ["--workspace", "--all-targets", "--all-features", "--locked"];

/// Builds all test programs, and checks that none of them is empty and that every test that a page
/// or a patch of the zoo names is in one of them.
///
/// A test program whose feature is off compiles to nothing, and passes.
pub(crate) fn check(shell: &Shell) -> Result<()> {
    let (mut names, mut findings) = (BTreeSet::new(), Vec::new());
    for program in programs(shell)? {
        let executable = &program.executable;
        let listing = cmd!(shell, "{executable} --list").quiet().ignore_stderr().read()?;
        let tests = tests(&listing);
        if tests.is_empty() && program.must_have_tests {
            findings.push(format!("{} lists no test: is one of its features off?", program.name));
        }
        names.extend(tests.into_iter().map(str::to_owned));
    }
    let root = workspace::root();
    let page = fs::read_to_string(root.join(SCENARIOS)).context(SCENARIOS)?;
    let by_page = scenarios(&page).map(|name| (name.to_owned(), SCENARIOS.to_owned()));
    for (name, place) in by_page.chain(zoo::named_tests(&root)?) {
        if !names.contains(&name) {
            findings.push(format!("{place}: there is no test {name}"));
        }
    }
    if !findings.is_empty() {
        bail!("{}", findings.join("\n"));
    }
    println!("xtask: {} tests, besides those in documentation", names.len());
    Ok(())
}

/// A test program that cargo has built.
#[derive(Debug, PartialEq, Eq)]
struct Program {
    /// The source file, which says more than the name of the target.
    name: String,
    executable: PathBuf,
    /// It is one of `tests/*.rs`. Libraries and commands may do without tests of their own.
    must_have_tests: bool,
}

fn programs(shell: &Shell) -> Result<Vec<Program>> {
    let messages =
        cmd!(shell, "cargo test {EVERYTHING...} --no-run --message-format json-render-diagnostics")
            .read()?;
    let programs = messages.lines().map(|line| Ok(program(&serde_json::from_str(line)?)));
    Ok(programs.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
}

/// The test program that one of cargo's messages is about, if it is about one. Benchmarks are
/// none: they take `--list` for something else.
fn program(message: &Value) -> Option<Program> {
    let kind = message["target"]["kind"][0].as_str()?;
    let is_test = message["profile"]["test"].as_bool()? && kind != "bench" && kind != "example";
    let executable = message["executable"].as_str().filter(|_| is_test)?;
    Some(Program {
        name: message["target"]["src_path"].as_str()?.to_owned(),
        executable: executable.into(),
        must_have_tests: kind == "test",
    })
}

/// The tests in the output of `--list`.
fn tests(listing: &str) -> Vec<&str> {
    listing.lines().filter_map(|line| line.strip_suffix(": test")).map(bare).collect()
}

/// The name of a test, without its modules and the guarantees that it is about.
pub(crate) fn bare(test: &str) -> &str {
    let test = test.split_once(" (").map_or(test, |it| it.0);
    test.rsplit("::").next().unwrap_or(test)
}

/// The page that says which test brings which situation about.
const SCENARIOS: &str = "docs/scenarios.md";

/// The tests in the last columns of the page's tables.
fn scenarios(page: &str) -> impl Iterator<Item = &str> {
    let cells = page.lines().filter_map(|line| line.strip_suffix(" |")?.rsplit(" | ").next());
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Program, program, scenarios, tests};

    #[test]
    fn a_listing_is_read_without_modules_guarantees_and_benchmarks() {
        let listing = "a::one: test\ntwo: test\nb::c::three (G1, G2): test\nspeed: benchmark\n";
        assert_eq!(tests(listing), ["one", "two", "three"]);
        assert!(tests("0 tests, 0 benchmarks\n").is_empty());
    }

    #[test]
    fn test_programs_are_told_from_all_else_that_cargo_builds() {
        let artifact = |kind: &str, test: bool| {
            json!({
                "reason": "compiler-artifact",
                "target": { "kind": [kind], "src_path": "tests/a.rs" },
                "profile": { "test": test },
                "executable": "a-1",
            })
        };
        let a = |must_have_tests| {
            Some(Program {
                name: "tests/a.rs".to_owned(),
                executable: "a-1".into(),
                must_have_tests,
            })
        };
        assert_eq!(program(&artifact("test", true)), a(true));
        assert_eq!(program(&artifact("lib", true)), a(false));
        assert_eq!(program(&artifact("bin", false)), None);
        assert_eq!(program(&artifact("bench", true)), None);
        assert_eq!(program(&json!({ "reason": "build-finished", "success": true })), None);
    }

    #[test]
    fn scenarios_stand_in_the_last_columns() {
        let page = "| situation `x` | holds | tests |\n|---|---|---|\n| a | b | `here`, `gone` |\n";
        assert_eq!(scenarios(page).collect::<Vec<_>>(), ["here", "gone"]);
    }
}
