//! Text that others wrote, on its way to a terminal.

pub(crate) mod json;
mod table;

use std::fmt::Write as _;
use std::io;
use std::ops::ControlFlow;

pub(crate) use self::table::{Table, columns};
use crate::failure::Failure;

/// Writes to stdout. A reader who has gone away has seen enough.
pub(crate) fn write(text: &str) -> Result<(), Failure> {
    write_on(text).map(drop)
}

/// Writes to stdout, and says whether somebody is reading still.
pub(crate) fn write_on(text: &str) -> Result<ControlFlow<()>, Failure> {
    write_bytes(text.as_bytes())
}

/// Like [`write_on`], for bytes as they are.
pub(crate) fn write_bytes(bytes: &[u8]) -> Result<ControlFlow<()>, Failure> {
    use io::Write as _;
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(ControlFlow::Continue(())),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ControlFlow::Break(())),
        Err(error) => Err(Failure::other("the output could not be written", &error)),
    }
}

/// A JSON value on a line of its own.
pub(crate) fn json_line(value: &serde_json::Value) -> String {
    harmless_json(&value.to_string()) + "\n"
}

/// [`harmless`] text in one line: line breaks are escaped as well, so that no text can look like a
/// line of ours.
pub(crate) fn harmless_line(text: &str) -> String {
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
    !delayline::is_printable(character)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminals_are_not_steered() {
        assert_eq!(harmless("a\u{1b}[2J\u{202e}\u{e9}\n"), "a\\u{1b}[2J\\u{202e}\u{e9}\n");
        assert_eq!(harmless_line("a\u{1b}\r\nstate"), "a\\u{1b}\\u{d}\\nstate");
        assert_eq!(harmless_json("\"\u{9b}2J\u{e9}\""), "\"\\u009b2J\u{e9}\"");
    }
}
