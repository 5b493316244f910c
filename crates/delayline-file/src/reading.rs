//! What the crate reads, for the fuzzers. Not an interface.

use std::io::{self, Cursor, Read};

use delayline_core::limits::MAX_PAGE;
use delayline_core::{Check, Op, State, Timestamp};

use crate::OpenError;
use crate::disk::{DiskFile, Readable};
use crate::replay::recover;
use crate::segment::{HEADER, Header, MODEL, Synced, encode_frame};
use crate::{names, snapshot};

/// Reads a directory with these bytes as its log, and looks at its queues.
///
/// # Errors
///
/// Why it cannot be opened.
pub fn log(bytes: &[u8]) -> Result<(), OpenError> {
    read(names::segment(1), bytes.to_vec())
}

/// The same with a log of these records, each in an intact frame.
///
/// # Errors
///
/// Why it cannot be opened.
pub fn records<'a>(bodies: impl IntoIterator<Item = &'a [u8]>) -> Result<(), OpenError> {
    let header = Header { number: 1, model: MODEL, first: 1, salt: 7, len: 0 };
    let mut segment = header.encode();
    for (sequence, body) in (1..).zip(bodies) {
        encode_frame(&mut segment, 7, sequence, Synced { offset: HEADER, len: 0 }, body);
    }
    read(names::segment(1), segment)
}

/// The same with these bytes as its snapshot.
///
/// # Errors
///
/// Why it cannot be opened.
pub fn snapshot(bytes: &[u8]) -> Result<(), OpenError> {
    read(names::snapshot(1), bytes.to_vec())
}

/// The same with a snapshot of these bytes, in intact blocks.
///
/// # Errors
///
/// Why it cannot be opened.
pub fn snapshot_of(bytes: &[u8]) -> Result<(), OpenError> {
    let mut file = InMemory::default();
    let written = snapshot::write_raw(&mut file, 1, bytes);
    written.map_err(|source| OpenError::Io {
        path: names::snapshot(1).into(),
        what: "write",
        source,
    })?;
    read(names::snapshot(1), file.0)
}

/// Reads the messages of a socket, with their lengths in front: requests, or replies. Returns how
/// many were read.
///
/// # Errors
///
/// The reason.
#[cfg(unix)]
pub async fn socket(bytes: &[u8], are_requests: bool) -> io::Result<usize> {
    use crate::wire::{self, Answer, Ask};
    let (mut from, mut count) = (bytes, 0);
    loop {
        let is_some = if are_requests {
            wire::read::<Ask>(&mut from).await?.is_some()
        } else {
            wire::read::<Answer>(&mut from).await?.is_some()
        };
        if !is_some {
            return Ok(count);
        }
        count += 1;
    }
}

/// Returns the process that a lock file names.
#[must_use]
pub fn lock(text: &str) -> Option<String> {
    crate::disk::holder_in(text)
}

fn read(name: String, bytes: Vec<u8>) -> Result<(), OpenError> {
    let recovered = recover(&OneFile { name, bytes })?;
    for mut queue in recovered.contents.queues.into_values() {
        examine(&mut queue.state, recovered.contents.clock);
    }
    Ok(())
}

/// Calls that go through all of a queue.
fn examine(state: &mut State, now: Timestamp) {
    state.apply(now, &Op::Stats);
    state.apply(now, &Op::Check(Check::new(MAX_PAGE)));
    let _ = (state.next_claimable(), state.held(now));
}

/// A directory with one file.
struct OneFile {
    name: String,
    bytes: Vec<u8>,
}

impl Readable for OneFile {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(vec![self.name.clone()])
    }

    fn read(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        let found = name == self.name;
        if found { Ok(Box::new(Cursor::new(self.bytes.clone()))) } else { unchangeable() }
    }
}

/// A file that is written from its beginning to its end.
#[derive(Default)]
struct InMemory(Vec<u8>);

impl DiskFile for InMemory {
    fn write_at(&mut self, _: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.extend(bytes);
        Ok(())
    }

    fn reserve(&mut self, _: u64) -> io::Result<()> {
        unchangeable()
    }

    fn release(&mut self, _: u64) -> io::Result<()> {
        unchangeable()
    }

    fn truncate(&mut self, _: u64) -> io::Result<()> {
        unchangeable()
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn unchangeable<T>() -> io::Result<T> {
    Err(io::ErrorKind::Unsupported.into())
}
