//! Rules about text that no compiler checks.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::prose;

/// Checks every file below `root`; the error lists all findings.
pub(crate) fn check(root: &Path) -> Result<()> {
    let mut findings = Vec::new();
    walk(root, root, &mut |path, text| {
        findings.extend(check_file(path, text));
        findings.extend(prose::check(path, text));
    })?;
    let page = fs::read_to_string(root.join(GUARANTEES)).context(GUARANTEES)?;
    findings.extend(repeated(&page).map(|it| format!("{GUARANTEES}: two guarantees are {it}")));
    if !findings.is_empty() {
        findings.sort();
        bail!("{}", findings.join("\n"));
    }
    Ok(())
}

/// The page of guarantees, whose numbers tests and documentation cite.
const GUARANTEES: &str = "crates/delayline/docs/guarantees.md";

/// The numbers that begin more than one row of the page's tables.
fn repeated(page: &str) -> impl Iterator<Item = &str> {
    let mut seen = BTreeSet::new();
    let numbers = page.lines().filter_map(|line| line.strip_prefix("| **")?.split("**").next());
    numbers.filter(move |number| !seen.insert(*number))
}

/// More than one screenful of ideas: split it.
const MAX_LINES: usize = 600;

/// The width of comments, which `rustfmt` leaves alone.
const MAX_COLUMNS: usize = 100;

// Put together here, so that this file keeps its own rules.

/// Unfinished work, in code.
const UNFINISHED: &[&str] = &[
    concat!("todo", "!"),
    concat!("unimplemented", "!"),
    concat!("dbg", "!"),
    concat!("#[", "ignore"),
];

/// Unfinished work, in words.
const MARKERS: &[&str] = &[concat!("FIX", "ME"), concat!("XX", "X")];

/// Home directories of machines.
const MACHINE_PATHS: &[&str] = &[
    concat!("/ho", "me/"),
    concat!("/Us", "ers/"),
    concat!("/ro", "ot/"),
    concat!("C:\\", "Users"),
];

/// What scripts must not use, and why.
const LUA_WORDS: &[(&str, &str)] = &[
    ("cjson", "payloads are bytes, and numbers lose digits above 2^53"),
    ("math.random", "randomness comes in as an argument"),
    ("redis.pcall", "an error must end the script"),
];

fn check_file(path: &str, text: &str) -> Vec<String> {
    let rust = path.ends_with(".rs");
    let lua = path.ends_with(".lua");
    let mut findings = Vec::new();
    let mut is_code = false;
    for (line, number) in text.lines().zip(1..) {
        let mut found = |what: &str| findings.push(format!("{path}:{number}: {what}"));
        let sign = if rust { "//" } else { "--" };
        if let Some(comment) = comment(line, sign).filter(|_| rust || lua) {
            is_code ^= comment.starts_with("```");
            if line.len() > MAX_COLUMNS && !is_code && can_be_wrapped(comment) {
                found(&format!("a comment of more than {MAX_COLUMNS} columns: wrap it"));
            }
        } else {
            is_code = false;
        }
        if rust {
            UNFINISHED.iter().filter(|word| line.contains(*word)).for_each(|word| found(word));
        }
        if (rust || lua) && !line.is_ascii() {
            found("a character that is not ASCII: write it as an escape");
        }
        MARKERS.iter().filter(|word| has_word(line, word)).for_each(|word| found(word));
        for path in MACHINE_PATHS.iter().filter(|path| line.contains(*path)) {
            found(&format!("a path of a particular machine: {path}"));
        }
        if lua {
            check_lua(line, &mut found);
        }
    }
    let lines = text.lines().count();
    if (rust || lua) && lines > MAX_LINES {
        findings.push(format!("{path}: {lines} lines, more than {MAX_LINES}"));
    }
    findings
}

fn check_lua(line: &str, found: &mut impl FnMut(&str)) {
    let code = line.split("--").next().unwrap_or(line);
    for (word, reason) in LUA_WORDS.iter().filter(|(word, _)| code.contains(word)) {
        found(&format!("{word}: {reason}"));
    }
    for (at, _) in code.match_indices("KEYS[") {
        let index = &code[at + "KEYS[".len()..];
        let end = index.find(']').unwrap_or(index.len());
        if index[..end].is_empty() || !index[..end].bytes().all(|byte| byte.is_ascii_digit()) {
            found("KEYS with a computed index: some servers check keys by the literal");
        }
    }
}

/// The text of a line that is a comment.
fn comment<'a>(line: &'a str, sign: &str) -> Option<&'a str> {
    let text = line.trim_start().strip_prefix(sign)?;
    Some(text.trim_start_matches(['/', '!']).trim())
}

/// Rows of tables and long links cannot be wrapped.
fn can_be_wrapped(comment: &str) -> bool {
    !comment.starts_with('|') && comment.split(' ').all(|word| word.len() < MAX_COLUMNS / 2)
}

/// `word` with no letter, digit or underscore next to it.
fn has_word(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word)
        .any(|(at, _)| !line[..at].ends_with(part) && !line[at + word.len()..].starts_with(part))
}

/// Calls `visit` with the path (from `root`, with slashes) and text of every file that we wrote.
fn walk(root: &Path, folder: &Path, visit: &mut impl FnMut(&str, &str)) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_symlink() || SKIPPED.contains(&name) {
            continue;
        }
        if path.is_dir() {
            walk(root, &path, visit)?;
        } else if let Ok(text) = fs::read_to_string(&path) {
            let from_root = path.strip_prefix(root)?.to_string_lossy().replace('\\', "/");
            visit(&from_root, &text);
        }
        // Files that are not text (a fuzzer's findings, say) have no rules.
    }
    Ok(())
}

/// What others wrote: programs, git, the fuzzer.
const SKIPPED: &[&str] = &["target", ".git", "artifacts", "corpus", "coverage", "Cargo.lock"];

#[cfg(test)]
mod tests {
    use super::{
        MACHINE_PATHS, MARKERS, MAX_COLUMNS, MAX_LINES, UNFINISHED, check, check_file, repeated,
    };
    use crate::workspace;

    #[test]
    fn this_repository_keeps_the_rules() {
        check(&workspace::root()).unwrap();
    }

    #[test]
    fn what_breaks_a_rule_is_found() {
        let words = "word ".repeat(MAX_COLUMNS / 5);
        let wide = |sign: &str| format!("{sign} {words}");
        let link = format!("// [a](https://{})", "a".repeat(MAX_COLUMNS));
        let code = format!("/// ```\n/// {words}\n/// ```\n");
        let long = "\n".repeat(MAX_LINES + 1);
        let mut cases = vec![
            // Sources are ASCII, and bounded in length.
            ("a.lua", "-- \u{e9}\n".to_owned(), 1),
            ("a.md", "\u{e9}\n".to_owned(), 0),
            ("a.rs", long.clone(), 1),
            ("a.rs", long[1..].to_owned(), 0),
            ("a.md", long, 0),
            // Comments are wrapped, if they can be.
            ("a.rs", wide("//"), 1),
            ("a.rs", wide("    ///"), 1),
            ("a.lua", wide("--"), 1),
            ("a.rs", format!("// {}", &words[..50]), 0),
            ("a.rs", wide("/// |") + " |", 0),
            ("a.rs", link, 0),
            ("a.rs", format!("let a = {words};"), 0),
            ("a.rs", format!("{code}{}", wide("///")), 1),
            ("a.rs", code, 0),
            // Scripts keep to what every server has.
            ("a.lua", "redis.call('GET', KEYS[1])".to_owned(), 0),
            ("a.lua", "local k = KEYS[12] -- never cjson".to_owned(), 0),
        ];
        let bad = ["cjson.encode(x)", "math.random()", "redis.pcall('GET')", "KEYS[i]", "KEYS[ 1]"];
        cases.extend(bad.map(|line| ("a.lua", line.to_owned(), 1)));
        cases.extend(MACHINE_PATHS.iter().map(|path| ("a.toml", format!("path = '{path}me'"), 1)));
        for word in MARKERS {
            cases.push(("a.md", format!("{word}: later"), 1));
            cases.push(("a.md", format!("a{word}B {word}_{word}"), 0));
        }
        for (path, text, count) in cases {
            assert_eq!(check_file(path, &text).len(), count, "{path}: {text}");
        }
        for word in UNFINISHED {
            let findings = check_file("a.rs", &format!("fn a() {{\n    {word}(1);\n}}\n"));
            assert_eq!(findings, [format!("a.rs:2: {word}")]);
        }
        let page = "| **G1** | one |\n| **G2** | two |\nG1\n| **G1** | three |\n";
        assert_eq!(repeated(page).collect::<Vec<_>>(), ["G1"]);
    }
}
