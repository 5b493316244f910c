//! Output: text that others wrote, made harmless; tables and lines of JSON.

use std::fmt::Write as _;

use comfy_table::{ContentArrangement, Table};
use serde_json::Value;

use crate::failure::Failure;

/// Writes to stdout. A reader who has gone away has seen enough.
pub(crate) fn write(text: &str) -> Result<(), Failure> {
    use std::io::{ErrorKind, Write as _};
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::other("the output could not be written", &error))
        }
        _ => Ok(()),
    }
}

/// Columns as wide as their widest cell. Without rows it is empty.
pub(crate) fn table(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_preset(comfy_table::presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(head.iter().map(|name| name.to_uppercase()));
    table.add_rows(rows);
    if table.is_empty() {
        return String::new();
    }
    table.trim_fmt().lines().fold(String::new(), |text, line| text + line.trim_start() + "\n")
}

/// A JSON value on a line of its own.
pub(crate) fn json_line(value: &Value) -> String {
    harmless_json(&value.to_string()) + "\n"
}

/// Like [`harmless`], and on one line.
pub(crate) fn one_line(text: &str) -> String {
    harmless(text).replace('\n', "\\n")
}

/// A text without anything that could steer a terminal or turn the direction of writing: such
/// characters become escapes like `\u{1b}`.
pub(crate) fn harmless(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if steers(character) && character != '\n' {
            // Writing to a string cannot fail.
            let _ = write!(out, "{}", character.escape_unicode());
        } else {
            out.push(character);
        }
    }
    out
}

/// JSON in which also those characters are escaped that JSON allows and terminals obey. They can
/// only stand within strings.
pub(crate) fn harmless_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for character in json.chars() {
        if steers(character) {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(character);
        }
    }
    out
}

fn steers(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminals_are_not_steered() {
        assert_eq!(harmless("a\u{1b}[2J\u{202e}\u{e9}\n"), "a\\u{1b}[2J\\u{202e}\u{e9}\n");
        assert_eq!(harmless_json("\"\u{9b}2J\u{e9}\""), "\"\\u009b2J\u{e9}\"");
    }
}
