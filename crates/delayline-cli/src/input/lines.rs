//! Lines of bounded length.

use std::io::{self, BufRead};

/// One line of input.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// Its bytes, without the line break.
    Whole(Vec<u8>),
    /// It is longer than the limit, and was skipped.
    TooLong,
}

/// Skips the byte order mark that some editors write at the start of a file.
pub(crate) fn skip_mark(input: &mut impl BufRead) {
    const MARK: &[u8] = "\u{feff}".as_bytes();
    // If this read fails, so will the next one.
    if input.fill_buf().is_ok_and(|bytes| bytes.starts_with(MARK)) {
        input.consume(MARK.len());
    }
}

/// Reads the next line; `None` at the end. Memory stays within `limit` whatever the input.
pub(crate) fn next_line(input: &mut impl BufRead, limit: usize) -> io::Result<Option<Line>> {
    let mut line = Vec::new();
    let mut too_long = false;
    let mut any = false;
    loop {
        let chunk = match input.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            chunk => chunk?,
        };
        if chunk.is_empty() {
            break;
        }
        any = true;
        let end = chunk.iter().position(|&byte| byte == b'\n');
        let part = &chunk[..end.unwrap_or(chunk.len())];
        too_long |= line.len().saturating_add(part.len()) > limit;
        if too_long {
            line = Vec::new();
        } else {
            line.extend_from_slice(part);
        }
        let used = part.len() + usize::from(end.is_some());
        input.consume(used);
        if end.is_some() {
            break;
        }
    }
    Ok(match (any, too_long) {
        (false, _) => None,
        (true, true) => Some(Line::TooLong),
        (true, false) => Some(Line::Whole(line)),
    })
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    #[test]
    fn lines_are_bounded_and_the_next_one_is_found() {
        let text = format!("ab\n\n{}\ncd", "x".repeat(100));
        for buffer in [1, 3, 1_000] {
            let mut input = BufReader::with_capacity(buffer, text.as_bytes());
            let mut lines = Vec::new();
            while let Some(line) = next_line(&mut input, 10).unwrap() {
                lines.push(line);
            }
            let whole = |text: &str| Line::Whole(text.as_bytes().to_vec());
            assert_eq!(lines, [whole("ab"), whole(""), Line::TooLong, whole("cd")]);
        }
    }
}
