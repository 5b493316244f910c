//! `cargo xtask release notes`: is the tag right, and what does it say?

use anyhow::{Context, Result, bail, ensure};
use xshell::Shell;

use crate::workspace;

/// Checks that the workspace is ready for the tag, and prints its section of the changelog.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<()> {
    let [tag] = args else { bail!("`notes` takes a tag, such as `v0.1.0`") };
    let packages = workspace::packages(shell)?;
    let facade = packages.iter().find(|package| package.name == "delayline");
    let facade = facade.context("the workspace has no crate `delayline`")?;
    let version = &facade.version;
    ensure!(*tag == format!("v{version}"), "{tag} is not the tag of version {version}");
    let repository = facade.repository.as_deref().unwrap_or_default();
    ensure!(
        !repository.contains("OWNER"),
        "Cargo.toml: `repository` is not set, and the registry would show {repository}"
    );
    let changelog = shell.read_file("CHANGELOG.md")?;
    let notes = section(&changelog, version);
    println!("{}", notes.with_context(|| format!("CHANGELOG.md has no section of {version}"))?);
    Ok(())
}

/// The text below the heading `## VERSION ...`, up to the next heading of its kind.
fn section<'a>(changelog: &'a str, version: &str) -> Option<&'a str> {
    let sections = changelog.split("\n## ").skip(1);
    let mut texts = sections.filter_map(|section| section.split_once('\n'));
    let (_, text) = texts.find(|(heading, _)| {
        heading.trim_start_matches('[').split([' ', ']']).next() == Some(version)
    })?;
    Some(text.trim())
}

#[cfg(test)]
mod tests {
    use super::section;

    #[test]
    fn a_section_is_found_by_its_whole_version() {
        let changelog = "# Changelog\n\n## Unreleased\n\n- new\n\n## 0.1.10 - 2027-02-01\n\n### Fixed\n\n- ten\n\
                         \n## [0.1.1] - 2027-01-01\n\n- one\n";
        assert_eq!(section(changelog, "0.1.1"), Some("- one"));
        assert_eq!(section(changelog, "0.1.10"), Some("### Fixed\n\n- ten"));
        assert_eq!(section(changelog, "0.1"), None);
    }
}
