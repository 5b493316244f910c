//! Ids, from the command line and from files.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader};
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use delayline::MessageId;
use indicatif::ProgressBar;
use serde_json::{Map, Value};

use super::complaints::Complaints;
use super::lines::{Line, next_line, skip_mark};
use super::reader::{MAX_LINE_BYTES, open};
use crate::failure::Failure;

/// The ids of the command line, each once. One that is none is an error.
pub(crate) fn ids(words: Vec<OsString>) -> Result<Vec<MessageId>, Failure> {
    let mut seen = HashSet::new();
    let mut ids = Vec::new();
    for word in words {
        let id = MessageId::new(word.into_vec())
            .map_err(|violation| Failure::usage(violation.to_string()))?;
        if seen.insert(id.clone()) {
            ids.push(id);
        }
    }
    Ok(ids)
}

/// The ids of a file, one a line, each once; `-` is stdin. A line is the id itself, or a JSON
/// object that has it, like those of `list --all --json`. Blank lines are passed over; lines that
/// are no id are reported on stderr, and counted.
pub(crate) fn ids_of_file(path: &Path) -> Result<(Vec<MessageId>, u64), Failure> {
    let read = if path == Path::new("-") {
        read_ids(&mut io::stdin().lock())
    } else {
        read_ids(&mut BufReader::new(open(path)?))
    };
    read.map_err(|error| {
        let what = format!("{} could not be read; nothing was done", path.display());
        Failure::other(&what, &error)
    })
}

fn read_ids(input: &mut impl BufRead) -> io::Result<(Vec<MessageId>, u64)> {
    skip_mark(input);
    let mut seen = HashSet::new();
    let (mut ids, mut bad, mut number) = (Vec::new(), 0, 0_u64);
    let mut complaints = Complaints::beside(ProgressBar::hidden());
    while let Some(line) = next_line(input, MAX_LINE_BYTES)? {
        number += 1;
        let id = match line {
            Line::TooLong => Err(format!("it is longer than {MAX_LINE_BYTES} bytes")),
            Line::Whole(mut line) => {
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
                if line.is_empty() {
                    continue;
                }
                id_of(line)
            }
        };
        match id {
            Ok(id) if seen.insert(id.clone()) => ids.push(id),
            Ok(_) => {}
            Err(why) => {
                bad += 1;
                complaints.add(number, &why);
            }
        }
    }
    complaints.finish();
    Ok((ids, bad))
}

fn id_of(line: Vec<u8>) -> Result<MessageId, String> {
    let object = match line.first() {
        Some(b'{') => serde_json::from_slice(&line).ok(),
        _ => None::<Map<String, Value>>,
    };
    let id = match object {
        None => line,
        Some(object) => {
            let text = |name: &str| object.get(name).and_then(Value::as_str);
            match (text("id"), text("id_base64")) {
                (Some(id), _) => id.as_bytes().to_vec(),
                (None, Some(id)) => STANDARD.decode(id).map_err(|_| "id_base64 is not base64")?,
                (None, None) => return Err("the object has neither id nor id_base64".to_owned()),
            }
        }
    };
    MessageId::new(id).map_err(|violation| violation.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ids_stand_one_a_line_and_count_once() {
        let long = "x".repeat(128);
        let text = format!("\u{feff}a\r\n\nb\na\n {long}\n{long}\r\n{long}y\n\u{1b}\n\r\nc");
        let (ids, bad) = read_ids(&mut text.as_bytes()).unwrap();
        let shown: Vec<_> = ids.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["a", "b", long.as_str(), "\\u{1b}", "c"]);
        assert_eq!(bad, 2);
    }

    #[test]
    fn ids_that_no_line_can_hold_stand_in_objects() {
        let text = format!(
            "{}\n{}\n{{a}}\n{}\n{}\n",
            json!({"id": "a\nb", "last_error": "x".repeat(1_000)}),
            json!({"id_base64": "/w=="}),
            json!({"messages": [{"id": "c"}], "next": null}),
            json!({"id_base64": "?"}),
        );
        let (ids, bad) = read_ids(&mut text.as_bytes()).unwrap();
        let bytes: Vec<_> = ids.iter().map(MessageId::as_bytes).collect();
        assert_eq!(bytes, [&b"a\nb"[..], b"\xff", b"{a}"]);
        assert_eq!(bad, 2);
    }
}
