//! Ids, from the command line and from files.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader};
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;

use delayline::{MessageId, limits};
use indicatif::ProgressBar;

use super::complaints::Complaints;
use super::lines::{Line, next_line, skip_mark};
use super::reader::open;
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

/// The ids of a file, one a line, each once; `-` is stdin. Blank lines are passed over; lines that
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
    // Room for the carriage return of other systems.
    while let Some(line) = next_line(input, limits::MAX_ID_BYTES + 1)? {
        number += 1;
        let id = match line {
            Line::TooLong => Err(format!(
                "it is longer than the {} bytes that an id may have",
                limits::MAX_ID_BYTES
            )),
            Line::Whole(mut line) => {
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
                if line.is_empty() {
                    continue;
                }
                MessageId::new(line).map_err(|violation| violation.to_string())
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

#[cfg(test)]
mod tests {
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
}
