//! Error texts without the parts that differ between messages.

use delayline_core::is_printable;

/// Returns an error text with ids and numbers replaced by `#`, so that errors with the same cause
/// are equal: `no customer 8841 (request 6f1c...)` becomes `no customer # (request #)`.
///
/// Each of these becomes one `#`: UUIDs; words of at least eight letters and digits that are
/// hexadecimal or change at least twice between letters and digits; and runs of digits in other
/// words. Numbers joined by `-`, `.`, `:` or `,` are one number. White space and unprintable
/// characters become one space between words, so the result is one line. All other characters stay.
/// The result is at most as long as the error, and folding it again changes nothing.
///
/// [`DeadLetterFilter::error_like`](super::DeadLetterFilter::error_like) filters dead letters by
/// it.
#[must_use]
pub fn folded_error(error: &str) -> String {
    let mut folded = String::with_capacity(error.len());
    let mut rest = error;
    while let Some(first) = rest.chars().next() {
        if !first.is_ascii_alphanumeric() {
            if !first.is_whitespace() && is_printable(first) {
                folded.push(first);
            } else if !folded.is_empty() && !folded.ends_with(' ') {
                folded.push(' ');
            }
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let end = rest.find(|it: char| !it.is_ascii_alphanumeric()).unwrap_or(rest.len());
        if is_uuid(rest) {
            add_number(&mut folded);
            rest = &rest[UUID_BYTES..];
        } else {
            add_word(&mut folded, &rest[..end]);
            rest = &rest[end..];
        }
    }
    folded.truncate(folded.trim_end().len());
    folded
}

fn add_word(folded: &mut String, word: &str) {
    if is_id(word) {
        return add_number(folded);
    }
    for character in word.chars() {
        if character.is_ascii_digit() { add_number(folded) } else { folded.push(character) }
    }
}

/// Adds the sign of a number, or extends the number that precedes it.
fn add_number(folded: &mut String) {
    let joint = folded.chars().next_back().filter(|it| JOINTS.contains(it));
    let before = joint.map_or(folded.as_str(), |it| &folded[..folded.len() - it.len_utf8()]);
    if before.ends_with('#') {
        folded.truncate(before.len());
    } else {
        folded.push('#');
    }
}

fn is_id(word: &str) -> bool {
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    if word.len() < SHORTEST_ID || digits == 0 {
        return false;
    }
    let bytes = word.as_bytes();
    let changes = bytes.windows(2).filter(|it| it[0].is_ascii_digit() != it[1].is_ascii_digit());
    word.bytes().all(|it| it.is_ascii_hexdigit()) || changes.count() >= 2
}

/// Whether a text begins with a UUID that no letter or digit follows.
fn is_uuid(text: &str) -> bool {
    let bytes = text.as_bytes();
    let fits = |(place, byte): (usize, &u8)| match place {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    bytes.len() >= UUID_BYTES
        && bytes[..UUID_BYTES].iter().enumerate().all(fits)
        && !bytes.get(UUID_BYTES).is_some_and(u8::is_ascii_alphanumeric)
}

const UUID_BYTES: usize = 36;
const SHORTEST_ID: usize = 8;
const JOINTS: [char; 4] = ['-', '.', ':', ','];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_one_cause_are_equal() {
        for (error, folded) in [
            ("no such customer: 8841", "no such customer: #"),
            ("no such customer: 9", "no such customer: #"),
            ("order-1234 is paid", "order-# is paid"),
            ("6F1C0B2e-aaaa-bbbb-cccc-dddddddddddd is gone", "# is gone"),
            ("trace 4bf92f3577b34da6a3ce929d0e0e4736", "trace #"),
            ("key A1b2C3d4 of 10.0.0.7:6379", "key # of #"),
            ("took 1.50 s, limit 1,000", "took # s, limit #"),
            ("at 2026-03-02T03:04:05.678Z", "at #T#Z"),
            ("utf8mb4, sha256, deadbeef", "utf#mb#, sha#, deadbeef"),
            ("attempt12 of connection2", "attempt# of connection#"),
            ("the bank timed out", "the bank timed out"),
            ("\u{fc}ber 7 \u{202e}<b>1</b>", "\u{fc}ber # <b>#</b>"),
            (" line 1\r\n\tline 2\u{1b}[2J\0 ", "line # line # [#J"),
            ("", ""),
        ] {
            assert_eq!(folded_error(error), folded, "{error}");
        }
    }

    #[test]
    fn folding_twice_changes_nothing_and_nothing_grows() {
        let pieces = [
            "#", "-", "7", "a1", "6f1c0b2e", ".", "x", " ", "\u{e9}", ":", "#-#", "9,", "\n",
            "\u{9b}",
        ];
        for first in pieces {
            for second in pieces {
                for third in pieces {
                    let error = [first, second, third, first].concat();
                    let folded = folded_error(&error);
                    assert!(folded.len() <= error.len(), "{error}: {folded}");
                    assert_eq!(folded_error(&folded), folded, "{error}");
                }
            }
        }
    }
}
