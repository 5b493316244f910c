//! Payloads and header values as people read them, up to a limit.

use std::fmt::Write as _;

use delayline_json::harmless;
use serde_json::value::RawValue;

/// How to show bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Json,
    Text,
    Hex,
}

impl Form {
    pub(crate) const ALL: [Self; 3] = [Self::Json, Self::Text, Self::Hex];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Text => "text",
            Self::Hex => "hex",
        }
    }

    /// The requested form, or the form that fits best.
    pub(crate) fn choose(asked: Option<&str>, bytes: &[u8]) -> Self {
        if let Some(form) = Self::ALL.into_iter().find(|form| asked == Some(form.name())) {
            return form;
        }
        match std::str::from_utf8(bytes) {
            Ok(text) if json(text).is_some() => Self::Json,
            Ok(_) => Self::Text,
            Err(_) => Self::Hex,
        }
    }
}

/// The bytes as text that is of a bounded length, and how many of them it shows.
pub(crate) fn shown(bytes: &[u8], form: Form) -> (String, usize) {
    let text = |most: usize| {
        let part = &bytes[..bytes.len().min(most)];
        (harmless(&String::from_utf8_lossy(part)), part.len())
    };
    match form {
        Form::Text => text(MOST_TEXT),
        Form::Json => match std::str::from_utf8(bytes).ok().and_then(json) {
            Some(json) => (harmless(&json), bytes.len()),
            None => text(MOST_TEXT),
        },
        Form::Hex => {
            let part = &bytes[..bytes.len().min(MOST_HEX)];
            (hex(part), part.len())
        }
    }
}

/// Indented JSON, if the text is JSON and not long. Numbers and strings stay as they are written.
fn json(text: &str) -> Option<String> {
    if text.len() > MOST_JSON || serde_json::from_str::<&RawValue>(text).is_err() {
        return None;
    }
    let mut out = String::with_capacity(2 * text.len());
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    let mut source = text.chars().peekable();
    while let Some(character) = source.next() {
        if in_string {
            out.push(character);
            in_string = escaped || character != '"';
            escaped = !escaped && character == '\\';
            continue;
        }
        match character {
            it if it.is_ascii_whitespace() => {}
            '"' => {
                in_string = true;
                out.push('"');
            }
            '{' | '[' => {
                out.push(character);
                while source.next_if(char::is_ascii_whitespace).is_some() {}
                if let Some(end) = source.next_if(|it| "}]".contains(*it)) {
                    out.push(end);
                } else {
                    depth += 1;
                    new_line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                new_line(&mut out, depth);
                out.push(character);
            }
            ',' => {
                out.push(',');
                new_line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            other => out.push(other),
        }
    }
    Some(out)
}

/// Deep nesting is not indented further, so that the result stays short.
fn new_line(out: &mut String, depth: usize) {
    out.push('\n');
    (0..depth.min(16)).for_each(|_| out.push_str("  "));
}

/// Rows of 16 bytes: the offset, the bytes, and the printable characters.
fn hex(bytes: &[u8]) -> String {
    let mut out = String::new();
    for (row, part) in bytes.chunks(16).enumerate() {
        let _ = write!(out, "{:08x} ", row * 16);
        for place in 0..16 {
            let gap = if place == 8 { " " } else { "" };
            let _ = match part.get(place) {
                Some(byte) => write!(out, "{gap} {byte:02x}"),
                None => write!(out, "{gap}   "),
            };
        }
        let printable = |&it: &u8| if (b' '..=b'~').contains(&it) { char::from(it) } else { '.' };
        let _ = writeln!(out, "  {}", part.iter().map(printable).collect::<String>());
    }
    out
}

/// The beginning of a text in one line, without what could steer a terminal.
pub(crate) fn short(text: &str, most: usize) -> String {
    let part: String = text.trim().chars().take(most).collect();
    let dots = if part.len() < text.trim().len() { "..." } else { "" };
    delayline_json::harmless_line(&part) + dots
}

const MOST_TEXT: usize = 16 * 1024;
const MOST_JSON: usize = 16 * 1024;
const MOST_HEX: usize = 4 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_indented_and_its_numbers_and_strings_stay_as_they_are() {
        let text =
            r#" { "a b" :[1.50, 12345678901234567890123, {}, [ ] ], "c":"x, {\"y\": [1] }" }"#;
        let expected = "{\n  \"a b\": [\n    1.50,\n    12345678901234567890123,\n    {},\n    []\n  \
                        ],\n  \"c\": \"x, {\\\"y\\\": [1] }\"\n}";
        assert_eq!(json(text).as_deref(), Some(expected));
        assert_eq!(json("{"), None);
    }

    #[test]
    fn the_form_that_fits_is_chosen() {
        for (bytes, asked, form) in [
            (&b"{\"a\": 1}"[..], None, Form::Json),
            (b"7", None, Form::Json),
            (b"hello", None, Form::Text),
            (b"", None, Form::Text),
            (b"\xff", None, Form::Hex),
            (b"{}", Some("hex"), Form::Hex),
            (b"\xff", Some("text"), Form::Text),
            (b"hello", Some("<script>"), Form::Text),
        ] {
            assert_eq!(Form::choose(asked, bytes), form, "{bytes:?} {asked:?}");
        }
    }

    #[test]
    fn what_is_shown_is_bounded_and_steers_nothing() {
        let deep = format!("{}{}", "[".repeat(8_000), "]".repeat(8_000));
        for bytes in [vec![b'['; 1 << 20], vec![0xff; 1 << 20], deep.into_bytes()] {
            for form in Form::ALL {
                let (text, count) = shown(&bytes, form);
                assert!(text.len() < 700_000 && count <= MOST_TEXT, "{form:?}: {}", text.len());
            }
        }
        let (text, count) = shown(b"\x1b[2J\xff\nb", Form::Text);
        assert_eq!((text.as_str(), count), ("\\u{1b}[2J\u{fffd}\nb", 7));
        let (text, _) = shown(b"0123456789abcdef\x1b<", Form::Hex);
        let last = format!("00000010  1b 3c{}.<\n", " ".repeat(45));
        assert!(text.ends_with(&last), "{text}");
        assert!(text.starts_with("00000000  30 31"), "{text}");
        assert_eq!(short(" a\u{1b}\nbcd ", 4), "a\\u{1b}\\nb...");
    }
}
