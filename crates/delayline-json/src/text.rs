//! Text that others wrote.

use std::fmt::Write as _;

/// [`harmless`] text in one line: line breaks are escaped as well, so that no text can look like a
/// line of ours.
#[must_use]
pub fn harmless_line(text: &str) -> String {
    harmless(text).replace('\n', "\\n")
}

/// A text without anything that could steer a terminal or turn the direction of writing: such
/// characters become escapes like `\u{1b}`.
#[must_use]
pub fn harmless(text: &str) -> String {
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
#[must_use]
pub fn harmless_json(json: String) -> String {
    // Most answers are like this, and long.
    if json.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return json;
    }
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

/// The beginning of a text, so that an error which repeats it stays short.
pub(crate) fn short(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// The beginning of a text in quotes, with escapes.
pub(crate) fn quoted(text: &str) -> String {
    format!("{:?}", short(text, MOST_QUOTED))
}

/// Characters of a text that an error repeats.
const MOST_QUOTED: usize = 40;

fn steers(character: char) -> bool {
    !delayline::backend::is_printable(character)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminals_are_not_steered() {
        assert_eq!(harmless("a\u{1b}[2J\u{202e}\u{e9}\n"), "a\\u{1b}[2J\\u{202e}\u{e9}\n");
        assert_eq!(harmless_line("a\u{1b}\r\nstate"), "a\\u{1b}\\u{d}\\nstate");
        assert_eq!(harmless_json("\"\u{9b}2J\u{e9}\"".to_owned()), "\"\\u009b2J\u{e9}\"");
        assert_eq!(harmless_json("\"\u{7f}\"".to_owned()), "\"\\u007f\"");
    }
}
