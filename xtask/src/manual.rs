//! The guides as modules of the facade: what docs.rs shows of `docs`.
//!
//! A package has no files from outside its folder, and links between files lead nowhere in rustdoc.
//! So the facade has copies of the pages, whose links name modules.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// Where the copies are.
const COPIES: &str = "crates/delayline/docs";

/// The pages that have a module, besides those in `docs/guides`.
const PAGES: [(&str, &str); 4] = [
    ("guarantees.md", "crate::guarantees"),
    ("faq.md", "crate::guides::faq"),
    ("production.md", "crate::guides::production"),
    ("from-other-queues.md", "crate::guides::from_other_queues"),
];

/// Writes the copies.
pub(crate) fn write(root: &Path) -> Result<()> {
    for (path, text) in copies(root)? {
        let folder = path.parent().context("a copy is in a folder")?;
        fs::create_dir_all(folder)?;
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

/// Compares the copies with the pages, and looks for the module of each.
pub(crate) fn check(root: &Path) -> Result<()> {
    let sources = ["lib.rs", "guides.rs"].map(|name| root.join("crates/delayline/src").join(name));
    let sources = sources.map(fs::read_to_string).into_iter().collect::<Result<String, _>>()?;
    for (page, module) in modules(root)? {
        let included = sources.contains(&format!("include_str!(\"../docs/{page}\")"));
        ensure!(included, "there is no module {module} for docs/{page}");
    }
    for (path, text) in copies(root)? {
        let current = fs::read_to_string(&path).unwrap_or_default() == text;
        ensure!(current, "{} is not up to date: `cargo xtask fix` writes it", path.display());
    }
    Ok(())
}

/// The path and the text of each copy.
fn copies(root: &Path) -> Result<Vec<(PathBuf, String)>> {
    let modules = modules(root)?;
    let copy = |(page, _): &(String, String)| {
        let path = root.join("docs").join(page);
        let text = fs::read_to_string(&path).with_context(|| format!("{}", path.display()))?;
        Ok((root.join(COPIES).join(page), rewritten(page, &text, &modules)))
    };
    modules.iter().map(copy).collect()
}

/// Each page below `docs` that has a module, and the module.
fn modules(root: &Path) -> Result<Vec<(String, String)>> {
    let pages = PAGES.map(|(page, module)| (page.to_owned(), module.to_owned()));
    let mut modules = pages.to_vec();
    for entry in fs::read_dir(root.join("docs/guides"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if let Some(stem) = name.strip_suffix(".md") {
            let module = format!("crate::guides::{}", stem.replace('-', "_"));
            modules.push((format!("guides/{name}"), module));
        }
    }
    modules.sort();
    Ok(modules)
}

/// The page with links to modules; links to other files become plain text, and pictures go.
fn rewritten(page: &str, text: &str, modules: &[(String, String)]) -> String {
    let (mut out, mut in_code) = (String::new(), false);
    // Pictures and links may reach over the end of a line.
    let mut prose = String::new();
    for line in text.split_inclusive('\n') {
        if line.trim_start().starts_with("```") {
            if !in_code {
                out += &relinked(page, &std::mem::take(&mut prose), modules);
            }
            in_code = !in_code;
            out += line;
        } else if in_code {
            out += line;
        } else {
            prose += line;
        }
    }
    out + &relinked(page, &prose, modules)
}

fn relinked(page: &str, prose: &str, modules: &[(String, String)]) -> String {
    let (mut out, mut rest) = (String::new(), prose);
    while let Some(middle) = rest.find("](") {
        let Some(length) = rest[middle..].find(')') else { break };
        let Some(start) = opening(&rest[..middle]) else {
            out += &numbered(page, &rest[..middle + 2]);
            rest = &rest[middle + 2..];
            continue;
        };
        let (text, target) = (&rest[start + 1..middle], &rest[middle + 2..middle + length]);
        let before = &rest[..start];
        out += &numbered(page, before.strip_suffix('!').unwrap_or(before));
        if !before.ends_with('!') {
            out += &match resolved(page, target, modules) {
                Some(target) => format!("[{text}]({target})"),
                None => text.to_owned(),
            };
        }
        rest = &rest[middle + length + 1..];
    }
    out + &numbered(page, rest)
}

/// The bracket that begins a link whose text ends here.
fn opening(text: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, character) in text.char_indices().rev() {
        match character {
            ']' => depth += 1,
            '[' if depth == 0 => return Some(at),
            '[' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Where a link of the page leads in rustdoc, if anywhere.
fn resolved(page: &str, target: &str, modules: &[(String, String)]) -> Option<String> {
    if target.starts_with("https:") || target.starts_with('#') {
        return Some(target.to_owned());
    }
    let (file, part) = target.split_once('#').map_or((target, None), |(f, p)| (f, Some(p)));
    let mut folders: Vec<_> = page.split('/').collect();
    folders.pop();
    for name in file.split('/') {
        match name {
            ".." => _ = folders.pop()?,
            name => folders.push(name),
        }
    }
    let path = folders.join("/");
    let (_, module) = modules.iter().find(|(page, _)| *page == path)?;
    Some(part.map_or_else(|| module.clone(), |part| format!("{module}#{part}")))
}

/// The text with its numbers of guarantees as links; in the page of guarantees, what they lead to.
fn numbered(page: &str, text: &str) -> String {
    let (mut out, mut last) = (String::new(), None);
    let mut rest = text;
    while let Some(at) = rest.find('G') {
        let digits = rest[at + 1..].bytes().take_while(u8::is_ascii_digit).count();
        let (before, number) = (&rest[..at], &rest[at..at + 1 + digits]);
        let alone = |next: Option<char>| !next.is_some_and(|it| it.is_alphanumeric() || it == '_');
        let previous = before.chars().next_back().or(last);
        let after = &rest[at + 1 + digits..];
        out += before;
        let row = out.ends_with("| **") && after.starts_with("** |");
        if digits == 0 || !alone(previous) || !alone(after.chars().next()) {
            out += number;
        } else if page == "guarantees.md" && row {
            out += &format!("<span id=\"{}\"></span>{number}", number.to_lowercase());
        } else {
            out += &format!("[{number}](crate::guarantees#{})", number.to_lowercase());
        }
        last = number.chars().next_back();
        rest = after;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copies_are_up_to_date() {
        let root = crate::workspace::root();
        if std::env::var_os("DELAYLINE_WRITE").is_some() {
            write(&root).unwrap();
        }
        check(&root).unwrap();
    }

    #[test]
    fn links_lead_to_modules_or_become_text() {
        let modules =
            [("faq.md", "crate::guides::faq"), ("guides/relay.md", "crate::guides::relay")]
                .map(|(page, module)| (page.to_owned(), module.to_owned()));
        let cases = [
            ("[a](relay.md)", "[a](crate::guides::relay)"),
            ("[a](../faq.md#b)", "[a](crate::guides::faq#b)"),
            ("[a\nb](../wire.md) c", "a\nb c"),
            ("![a](../a.png)\nb", "\nb"),
            ("[a](#b) [c](https://d)", "[a](#b) [c](https://d)"),
            ("[a](../../../b.md)", "a"),
            (
                "G8, AG8 and (G16)",
                "[G8](crate::guarantees#g8), AG8 and ([G16](crate::guarantees#g16))",
            ),
            ("```text\nG8 [a](relay.md)\n```\n", "```text\nG8 [a](relay.md)\n```\n"),
        ];
        for (text, expected) in cases {
            assert_eq!(rewritten("guides/chains.md", text, &modules), expected);
        }
        let row = rewritten("guarantees.md", "| **G8** | (G6)", &modules);
        assert_eq!(row, "| **<span id=\"g8\"></span>G8** | ([G6](crate::guarantees#g6))");
    }
}
