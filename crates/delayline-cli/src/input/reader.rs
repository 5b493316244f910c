//! Reads a file in a separate thread, a few messages ahead.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::thread;

use delayline::backend::NewMessage;
use delayline_json::Fields;
use indicatif::ProgressBar;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::lines::{Line, next_line, skip_mark};
use crate::failure::Failure;

/// One line of the file.
pub(crate) struct Item {
    /// Its number, from 1.
    pub(crate) number: u64,
    /// The message, or why it is invalid.
    pub(crate) message: Result<NewMessage, String>,
}

/// Reads a file of JSON lines for the queue `own`; `-` is stdin. Blank lines are passed over. A
/// read that fails ends the stream with an error. The bar counts the bytes that were read.
pub(crate) fn read(
    path: &Path,
    own: &str,
    make_ids: bool,
    bar: &ProgressBar,
) -> Result<mpsc::Receiver<io::Result<Vec<Item>>>, Failure> {
    let stdin = path == Path::new("-");
    let file = if stdin { None } else { Some(open(path)?) };
    let (sender, receiver) = mpsc::channel(1);
    let (bar, own) = (bar.clone(), own.to_owned());
    thread::spawn(move || match file {
        Some(file) => read_all(bar.wrap_read(file), &own, make_ids, &sender),
        None => read_all(bar.wrap_read(io::stdin()), &own, make_ids, &sender),
    });
    Ok(receiver)
}

/// Returns a new, unique id.
pub(crate) fn new_id() -> String {
    Uuid::now_v7().to_string()
}

/// The messages of a whole file; each needs its id.
pub(crate) fn messages(own: &str, mut file: &[u8]) -> Vec<Result<NewMessage, String>> {
    let lines = std::iter::from_fn(|| next_line(&mut file, MAX_LINE_BYTES).ok().flatten());
    lines.filter_map(|line| message(&line, own, false)).collect()
}

/// Opens a file, and refuses a directory.
pub(super) fn open(path: &Path) -> Result<File, Failure> {
    File::open(path)
        // Opening a directory succeeds, and reading it fails.
        .and_then(|file| {
            if file.metadata()?.is_dir() {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            Ok(file)
        })
        .map_err(|error| Failure::usage(format!("{} cannot be read: {error}", path.display())))
}

/// Hands items over in chunks: when a chunk is full, and when the next line may be long in coming.
fn read_all(
    input: impl Read,
    own: &str,
    make_ids: bool,
    sender: &mpsc::Sender<io::Result<Vec<Item>>>,
) {
    let mut input = BufReader::with_capacity(READ_BYTES, input);
    skip_mark(&mut input);
    let (mut chunk, mut bytes, mut number) = (Vec::new(), 0_usize, 0);
    loop {
        let line = next_line(&mut input, MAX_LINE_BYTES);
        let over = !matches!(line, Ok(Some(_)));
        number += 1;
        if let Ok(Some(line)) = &line
            && let Some(message) = message(line, own, make_ids)
        {
            bytes += message.as_ref().map_or(0, NewMessage::content_bytes);
            chunk.push(Item { number, message });
        }
        let full = chunk.len() >= CHUNK_ITEMS || bytes >= CHUNK_BYTES;
        let hand_over = !chunk.is_empty() && (full || over || input.buffer().is_empty());
        // If the receiver is gone, the program is ending.
        if hand_over && sender.blocking_send(Ok(std::mem::take(&mut chunk))).is_err() {
            return;
        }
        if hand_over {
            bytes = 0;
        }
        if let Err(error) = line {
            let _ = sender.blocking_send(Err(error));
        }
        if over {
            return;
        }
    }
}

/// The message of a line; `None` for a blank one.
fn message(line: &Line, own: &str, make_ids: bool) -> Option<Result<NewMessage, String>> {
    let make_id = || {
        if make_ids {
            return Ok(new_id());
        }
        Err("it has no id; --make-ids makes one, but then sending the file again sends a duplicate"
            .to_owned())
    };
    match line {
        Line::TooLong => Some(Err(format!("it is longer than {MAX_LINE_BYTES} bytes"))),
        Line::Whole(line) if line.trim_ascii().is_empty() => None,
        Line::Whole(line) => {
            Some(Fields::from_json(line).and_then(|fields| fields.message(own, make_id)))
        }
    }
}

/// A payload of 1 MiB in which every byte is written as `\u00XX`, and room for the rest.
pub(super) const MAX_LINE_BYTES: usize = 8 * 1024 * 1024;
const READ_BYTES: usize = 256 * 1024;
const CHUNK_ITEMS: usize = 1_000;
const CHUNK_BYTES: usize = 8 * 1024 * 1024;
