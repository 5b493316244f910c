//! Which tests there are, as the test programs themselves list them.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, ensure};
use xshell::{Shell, cmd};

use crate::programs::{Program, bare};
use crate::{workspace, zoo};

/// Checks that none of the test programs is empty: one whose feature is off compiles to nothing,
/// and passes.
pub(crate) fn none_is_empty(shell: &Shell, programs: &[Program]) -> Result<()> {
    let mut findings = Vec::new();
    for program in programs.iter().filter(|program| program.must_have_tests) {
        if tests(&listing(shell, program)?).is_empty() {
            let name = program.name();
            findings.push(format!("{name} lists no test: is one of its features off?"));
        }
    }
    told(&findings)
}

/// Checks that every test which a page or a patch of the zoo names is in one of `programs`.
pub(crate) fn has_all_named(shell: &Shell, programs: &[Program]) -> Result<()> {
    let (mut names, mut findings) = (BTreeSet::new(), Vec::new());
    for program in programs {
        names.extend(tests(&listing(shell, program)?).into_iter().map(str::to_owned));
    }
    let root = workspace::root();
    let page = fs::read_to_string(root.join(SCENARIOS)).context(SCENARIOS)?;
    let by_page = scenarios(&page).map(|name| (name.to_owned(), SCENARIOS.to_owned()));
    for (name, place) in by_page.chain(zoo::named_tests(&root)?) {
        if !names.contains(&name) {
            findings.push(format!("{place}: there is no test {name}"));
        }
    }
    println!("xtask: {} tests, besides those in documentation", names.len());
    told(&findings)
}

fn told(findings: &[String]) -> Result<()> {
    ensure!(findings.is_empty(), "{}", findings.join("\n"));
    Ok(())
}

/// What a test program lists.
fn listing(shell: &Shell, program: &Program) -> Result<String> {
    let executable = &program.executable;
    Ok(cmd!(shell, "{executable} --list").quiet().ignore_stderr().read()?)
}

/// The tests in the output of `--list`.
fn tests(listing: &str) -> Vec<&str> {
    listing.lines().filter_map(|line| line.strip_suffix(": test")).map(bare).collect()
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
    use super::{scenarios, tests};

    #[test]
    fn a_listing_is_read_without_modules_guarantees_and_benchmarks() {
        let listing = "a::one: test\ntwo: test\nb::c::three (G1, G2): test\nspeed: benchmark\n";
        assert_eq!(tests(listing), ["one", "two", "three"]);
        assert!(tests("0 tests, 0 benchmarks\n").is_empty());
    }

    #[test]
    fn scenarios_stand_in_the_last_columns() {
        let page = "| situation `x` | holds | tests |\n|---|---|---|\n| a | b | `here`, `gone` |\n";
        assert_eq!(scenarios(page).collect::<Vec<_>>(), ["here", "gone"]);
    }
}
