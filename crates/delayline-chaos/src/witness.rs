//! The server's own account of its operations: the append-only file.
//!
//! Every script that changes a queue writes its control record, with the queue's revision. So the
//! file has the operations in the order of their execution, also the ones whose replies were lost.

use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use delayline_redis_protocol::layout::control;

/// The append-only file of a server that keeps its data in a directory.
pub(crate) struct AppendOnlyFile {
    path: PathBuf,
}

impl AppendOnlyFile {
    /// The one file that the server appends to; it must not have been rewritten.
    pub(crate) fn in_directory(data: &Path) -> Result<Self> {
        let folder = data.join("appendonlydir");
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&folder).context("the server keeps no append-only file")? {
            let path = entry?.path();
            if path.to_string_lossy().ends_with(".incr.aof") {
                found.push(path);
            }
        }
        match <[PathBuf; 1]>::try_from(found) {
            Ok([path]) => Ok(Self { path }),
            Err(found) => bail!("{} append-only files instead of one", found.len()),
        }
    }

    pub(crate) fn len(&self) -> Result<usize> {
        Ok(usize::try_from(std::fs::metadata(&self.path)?.len())?)
    }

    /// Loses the end of the file, and the rest of the last transaction, as `redis-check-aof --fix`
    /// does. Redis 7 itself leaves an opened MULTI behind, and executes what follows it at the
    /// start after the next (<https://github.com/valkey-io/valkey/pull/4342>).
    pub(crate) fn lose_tail(&self, bytes: usize) -> Result<()> {
        let mut text = self.read()?;
        text.truncate(text.len().saturating_sub(bytes));
        let file = std::fs::File::options().write(true).open(&self.path)?;
        Ok(file.set_len(u64::try_from(whole(&text))?)?)
    }

    pub(crate) fn read(&self) -> Result<Vec<u8>> {
        Ok(std::fs::read(&self.path)?)
    }
}

/// The counters of a control record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Control {
    pub(crate) revision: u64,
    pub(crate) enqueued: u64,
    pub(crate) acked: u64,
    pub(crate) cancelled: u64,
    pub(crate) purged: u64,
    pub(crate) relayed: u64,
    pub(crate) expired: u64,
    pub(crate) replaced: u64,
    pub(crate) paused: bool,
    /// In which minute the latest change was made, from 1970 on.
    pub(crate) minute: u64,
}

impl Control {
    fn read(record: &[u8]) -> Option<Self> {
        Some(Self {
            revision: control::REVISION.read(record)?,
            enqueued: control::SEQUENCE.read(record)?,
            acked: control::ACKED.read(record)?,
            cancelled: control::CANCELLED.read(record)?,
            purged: control::PURGED.read(record)?,
            relayed: control::RELAYED.read(record)?,
            expired: control::EXPIRED.read(record)?,
            replaced: control::REPLACED.read(record)?,
            paused: control::PAUSED.read(record)? != 0,
            minute: control::MINUTE.read(record)?,
        })
    }
}

/// What one script wrote to one queue.
#[derive(Debug)]
pub(crate) struct Transaction {
    pub(crate) control: Control,
    /// Where it stands in the file.
    pub(crate) place: Range<usize>,
}

/// The scripts that wrote the control record `control_key`, in order.
pub(crate) fn transactions(file: &[u8], control_key: &[u8]) -> Result<Vec<Transaction>> {
    let (mut found, mut position) = (Vec::new(), 0);
    // Where the open MULTI began, and the control record seen since.
    let mut open: Option<usize> = None;
    let mut control = None;
    while position < file.len() {
        let start = position;
        let command = words(file, &mut position)
            .with_context(|| format!("the append-only file is unreadable at byte {start}"))?;
        let name = command.first().map_or(&b""[..], |name| &file[name.clone()]);
        if name.eq_ignore_ascii_case(b"MULTI") {
            open = Some(start);
            continue;
        }
        if name.eq_ignore_ascii_case(b"SET") && file[command[1].clone()] == *control_key {
            let record = &file[command[2].clone()];
            control = Some(Control::read(record).context("a control record is too short")?);
        }
        if open.is_none() || name.eq_ignore_ascii_case(b"EXEC") {
            let place = open.take().unwrap_or(start)..position;
            found.extend(control.take().map(|control| Transaction { control, place }));
        }
    }
    ensure!(open.is_none(), "the append-only file ends within a transaction");
    Ok(found)
}

/// How many bytes of a file are whole commands and whole transactions.
fn whole(file: &[u8]) -> usize {
    let (mut position, mut end, mut open) = (0, 0, false);
    while let Some(command) = words(file, &mut position) {
        let name = command.first().map_or(&b""[..], |name| &file[name.clone()]);
        open = name.eq_ignore_ascii_case(b"MULTI") || open && !name.eq_ignore_ascii_case(b"EXEC");
        if !open {
            end = position;
        }
    }
    end
}

/// The places of the words of the command at `position`, which moves behind it.
pub(crate) fn words(file: &[u8], position: &mut usize) -> Option<Vec<Range<usize>>> {
    let count = length(file, position, b'*')?;
    (0..count)
        .map(|_| {
            let length = length(file, position, b'$')?;
            let word = *position..position.checked_add(length)?;
            *position = word.end + 2;
            (file.get(word.end..*position)? == b"\r\n").then_some(word)
        })
        .collect()
}

fn length(file: &[u8], position: &mut usize, kind: u8) -> Option<usize> {
    let line = file.get(*position..)?;
    let end = line.windows(2).position(|pair| pair == b"\r\n")?;
    let digits = line.get(..end)?.strip_prefix(&[kind])?;
    *position += end + 2;
    std::str::from_utf8(digits).ok()?.parse().ok()
}
