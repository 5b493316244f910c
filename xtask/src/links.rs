//! Links of the pages: between files, as GitHub shows them, and between modules in rustdoc.
//!
//! The pages of `crates/delayline/docs` are both. Each ends with the files that its links lead to;
//! rustdoc reads `links.md` first, whose modules then count, and says nothing about other links.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use xshell::{Shell, cmd};

use crate::workspace;

/// Checks that relative links in Markdown files lead to files of the repository.
pub(crate) fn check_pages(shell: &Shell) -> Result<()> {
    let root = workspace::root();
    let mut dead = Vec::new();
    for page in cmd!(shell, "git ls-files *.md").quiet().read()?.lines() {
        let path = root.join(page);
        // A page that is about to be deleted is still listed.
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let folder = path.parent().context("a page is in a folder")?;
        let targets = targets(&text, "](", ')').chain(targets(&text, "]: ", '\n'));
        for target in targets.filter(|target| is_relative(target) && !page.ends_with("/links.md")) {
            let file = target.split('#').next().unwrap_or_default();
            if !file.is_empty() && !folder.join(file).exists() {
                dead.push(format!("{page}: {target}"));
            }
        }
    }
    ensure!(dead.is_empty(), "these links lead nowhere:\n{}", dead.join("\n"));
    Ok(())
}

/// Checks that the links of the guides in rustdoc lead to a page, and to a place in it.
pub(crate) fn check_rustdoc(shell: &Shell) -> Result<()> {
    let facade = workspace::target_directory(shell)?.join("doc/delayline");
    let mut dead = Vec::new();
    for page in pages(&facade)? {
        let text = fs::read_to_string(&page)?;
        for target in targets(&text, "href=\"", '"').filter(|target| is_relative(target)) {
            let (file, part) = target.split_once('#').unwrap_or((target, ""));
            let path = if file.is_empty() { page.clone() } else { page.with_file_name(file) };
            let place = format!("id=\"{part}\"");
            // Parts of a source file are ranges of lines.
            let is_place = part.is_empty() || target.contains("/src/");
            let found = path.exists()
                && (is_place || fs::read_to_string(&path).is_ok_and(|text| text.contains(&place)));
            if !found {
                dead.push(format!("{}: {target}", page.strip_prefix(&facade)?.display()));
            }
        }
    }
    ensure!(
        dead.is_empty(),
        "these links lead nowhere in rustdoc (is their label in docs/links.md?):\n{}",
        dead.join("\n")
    );
    Ok(())
}

/// The pages that are made from Markdown files.
fn pages(facade: &Path) -> Result<Vec<PathBuf>> {
    let mut pages = vec![facade.join("guarantees/index.html")];
    let guides = facade.join("guides");
    for entry in fs::read_dir(&guides).with_context(|| format!("{}", guides.display()))? {
        let path = entry?.path();
        pages.push(if path.is_dir() { path.join("index.html") } else { path });
    }
    pages.retain(|page| page.extension().is_some_and(|it| it == "html"));
    Ok(pages)
}

/// What stands between each `before` and the next `after`.
fn targets<'a>(text: &'a str, before: &'a str, after: char) -> impl Iterator<Item = &'a str> {
    text.split(before).skip(1).filter_map(move |rest| rest.split(after).next())
}

fn is_relative(target: &str) -> bool {
    // The last are parts of rustdoc's own scripts.
    let is_text = target.contains(char::is_whitespace) || target.contains("${");
    !target.contains(':') && !is_text && !target.starts_with('/')
}

#[cfg(test)]
mod tests {
    use super::{is_relative, targets};

    #[test]
    fn the_targets_of_a_page_are_found() {
        let page = "See [a](a.md#b), [G1] and [c](https://c).\n\n[G1]: ../g.md#g1\n[d]: d.md\n";
        let inline = targets(page, "](", ')').filter(|target| is_relative(target));
        assert_eq!(inline.collect::<Vec<_>>(), ["a.md#b"]);
        let labels = targets(page, "]: ", '\n').filter(|target| is_relative(target));
        assert_eq!(labels.collect::<Vec<_>>(), ["../g.md#g1", "d.md"]);
    }
}
