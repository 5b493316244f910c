//! Files made from the sources and committed beside them, so that a review shows what changes: the
//! list of scripts in `scripts.txt`, and the tables of `docs/wire.md`.
//!
//! `cargo xtask fix` writes them, by `DELAYLINE_WRITE=1`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test program")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use delayline_redis_protocol::layout::codes::CODES;
use delayline_redis_protocol::layout::{Field, Kind, STRUCTURES, Structure};
use delayline_redis_protocol::{KEY_NAMES, all_scripts};

fn crate_root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Writes the file, or compares it.
fn settle(path: &Path, text: &str) {
    if env::var_os("DELAYLINE_WRITE").is_some() {
        fs::write(path, text).unwrap();
    }
    let found = fs::read_to_string(path).unwrap_or_default();
    let different = || text.lines().zip(found.lines()).position(|(new, old)| new != old);
    assert!(
        found == text,
        "{} differs from line {} on: `cargo xtask fix` writes it",
        path.display(),
        different().unwrap_or_else(|| found.lines().count().min(text.lines().count())) + 1,
    );
}

#[test]
fn the_list_of_scripts_is_that_of_the_sources() {
    let mut text = String::from("# script bytes lines sha1: `cargo xtask fix` writes this file\n");
    for script in all_scripts() {
        let name = script.name.trim_end_matches(".lua");
        let (bytes, lines) = (script.source.len(), script.source.lines().count());
        writeln!(text, "{name} {bytes} {lines} {}", script.sha1).unwrap();
    }
    settle(&crate_root().join("scripts.txt"), &text);
}

#[test]
fn the_wire_page_has_the_tables_of_the_layout() {
    const BEGIN: &str = "<!-- from layout.rs -->\n";
    const END: &str = "<!-- to here -->\n";
    let path = crate_root().join("../../docs/wire.md");
    let page = fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    settle(&path, &format!("{before}{BEGIN}{}{END}{after}", tables()));
}

/// The page and the source describe each key, in the order in which scripts get them.
#[test]
fn the_tables_of_keys_have_all_keys() {
    let root = crate_root();
    let page = fs::read_to_string(root.join("../../docs/wire.md")).unwrap();
    assert!(page.contains(&format!("has up to {} keys", KEY_NAMES.len())), "the number of keys");
    let source = fs::read_to_string(root.join("src/keys.rs")).unwrap();
    for (text, head) in [(page, "| key | type |"), (source, "/// | name | type |")] {
        let (_, table) = text.split_once(head).unwrap();
        let rows = table.lines().skip(2).map(|line| line.trim_start_matches("/// "));
        let first = rows.map_while(|row| row.strip_prefix("| `")?.split(" |").next());
        let names: Vec<_> = first.flat_map(|cell| cell.split('`').step_by(2)).collect();
        assert_eq!(names, KEY_NAMES, "{head}");
    }
}

fn tables() -> String {
    let mut text = String::new();
    for structure in STRUCTURES {
        text.push_str(&table(structure));
    }
    text.push_str("\n### Numbers\n\n| meaning | numbers |\n|---|---|\n");
    for list in CODES {
        let codes: Vec<_> =
            list.codes.iter().map(|code| format!("{} {}", code.value, words(code.name))).collect();
        writeln!(text, "| {} | {} |", list.about, codes.join(", ")).unwrap();
    }
    text.push('\n');
    text
}

fn table(structure: &Structure) -> String {
    let title = words(structure.name);
    let mut text = format!("\n### {title}: {}\n\n{}\n\n", structure.place, structure.about.trim());
    text.push_str("| offset | bytes | field | meaning |\n|---|---|---|---|\n");
    for Field { name, kind, offset, condition, meaning, .. } in structure.fields {
        let offset = offset.map_or_else(String::new, |offset| offset.to_string());
        let bytes = match kind {
            Kind::Rest => String::new(),
            kind => kind.bytes().to_string(),
        };
        let condition = match *condition {
            "" => String::new(),
            condition => format!("if {}: ", words(condition)),
        };
        writeln!(text, "| {offset} | {bytes} | {} | {condition}{meaning} |", words(name)).unwrap();
    }
    text
}

fn words(name: &str) -> String {
    name.to_lowercase().replace('_', " ")
}
