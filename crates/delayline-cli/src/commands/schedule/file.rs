//! Files of schedules.

use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

use delayline_json::OwnedSchedules;

use crate::failure::Failure;

/// Reads a file; `-` is stdin.
pub(super) fn read(path: &Path) -> Result<OwnedSchedules, Failure> {
    let mut text = Vec::new();
    let read = if path == Path::new("-") {
        io::stdin().lock().take(LARGEST).read_to_end(&mut text)
    } else {
        fs::File::open(path).and_then(|file| file.take(LARGEST).read_to_end(&mut text))
    };
    let bytes = read
        .map_err(|error| Failure::usage(format!("{} cannot be read: {error}", path.display())))?;
    if bytes as u64 == LARGEST {
        return Err(Failure::input(format!("{} has more than 64 MiB", path.display())));
    }
    let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&text);
    OwnedSchedules::from_json(text).map_err(|reason| {
        let why = format!("{} is malformed: {reason}", path.display());
        Failure::input(why).hint("nothing was changed")
    })
}

/// Maximum number of bytes of a file.
const LARGEST: u64 = 64 << 20;
