//! `cargo xtask release site`: the pages as a site with search.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use xshell::{Shell, cmd};

use crate::{packages, workspace};

/// Copies the pages, in the folders that they have here, and builds the site of them. A link or an
/// anchor that leads nowhere is an error.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<()> {
    ensure!(args.is_empty(), "`site` takes no arguments");
    // Where docs/mkdocs.yml has them.
    let place = workspace::root().join("target/site");
    let pages = place.join("pages");
    shell.remove_path(&pages)?;
    // Files that pages link to are part of the site.
    for file in cmd!(shell, "git ls-files").quiet().read()?.lines() {
        let (from, to) = (Path::new(file), pages.join(file));
        if !is_shown(file) || shell.current_dir().join(from).is_symlink() {
            continue;
        }
        shell.create_dir(to.parent().context("a file is in a folder")?)?;
        if file.ends_with(".md") {
            shell.write_file(to, for_readers(&shell.read_file(from)?))?;
        } else {
            shell.copy_file(from, to)?;
        }
    }
    let python = packages::python(shell, &place, PACKAGES)?;
    // Advertisements of other programs.
    let _silent = shell.push_env("NO_MKDOCS_2_WARNING", "1");
    cmd!(shell, "{python} -m mkdocs build --strict --config-file docs/mkdocs.yml").run()?;
    println!("xtask: {}", place.join("html/index.html").display());
    Ok(())
}

/// Whether a file is a page, or one to which pages may link. Labels for rustdoc are no page.
fn is_shown(file: &str) -> bool {
    let ending = file.rsplit('.').next().unwrap_or_default();
    let is_page = ending == "md" && !file.ends_with("/links.md");
    is_page || ["svg", "png", "yml", "yaml", "json", "service"].contains(&ending)
}

/// A page without what only rustdoc reads: options of code blocks, and hidden lines in them.
fn for_readers(page: &str) -> String {
    let mut is_rust = false;
    let lines = page.lines().filter_map(|line| {
        if let Some(options) = line.strip_prefix("```") {
            is_rust = options.starts_with("rust");
            return Some(if is_rust { "```rust" } else { line });
        }
        let is_hidden = is_rust && (line == "#" || line.starts_with("# "));
        (!is_hidden).then_some(line)
    });
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Their next major versions will read another configuration.
const PACKAGES: &[&str] = &["mkdocs>=1.6,<2", "mkdocs-material>=9.6,<10"];

#[cfg(test)]
mod tests {
    use super::for_readers;

    #[test]
    fn what_only_rustdoc_reads_is_left_out() {
        let page =
            "# Title\n\n```rust,no_run\n# use a::B;\n#[test]\nfn c() {}\n```\n\n```sh\n# d\n```\n";
        let shown = "# Title\n\n```rust\n#[test]\nfn c() {}\n```\n\n```sh\n# d\n```\n";
        assert_eq!(for_readers(page), shown);
    }
}
