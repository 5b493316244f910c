//! Snapshots: all queues, as they were before a segment.
//!
//! A snapshot begins with [`MAGIC`] and the version of the format. Blocks follow: the length, a
//! hash with the block's position and the snapshot's number as its seed, and the bytes. The last
//! block is empty. The bytes are values in MessagePack: a [`Head`], and for each queue its number,
//! its name and its [`State`].

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use delayline_core::{QueueName, State, Timestamp};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::OpenError;
use crate::contents::{Contents, Stored};
use crate::disk::{DiskFile, Readable, Volume};
use crate::names;
use crate::segment::{FORMAT, Fields, MODEL};

const MAGIC: &[u8; 8] = b"DLAYSNAP";
const PREAMBLE: usize = 12;
const BLOCK: usize = 64 * 1024;
/// Blocks that are written between two syncs.
const BLOCKS_PER_SYNC: u64 = 64;

/// What stands before the queues.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Head {
    model: u32,
    number: u64,
    /// Whether the directory was closed: then there is no later segment.
    pub(crate) closed: bool,
    clock: u64,
    next: u64,
    queues: u32,
}

/// Writes a snapshot of everything before the segment `number`, and makes it durable under its
/// name. Returns its size in bytes.
pub(crate) fn write<'a>(
    disk: &Volume,
    number: u64,
    closed: bool,
    clock: Timestamp,
    next: u64,
    queues: impl ExactSizeIterator<Item = (u32, &'a QueueName, &'a State)>,
) -> io::Result<u64> {
    let temporary = names::temporary(number);
    let mut file = disk.create(&temporary)?;
    let count = u32::try_from(queues.len()).unwrap_or(u32::MAX);
    let head = Head { model: MODEL, number, closed, clock: clock.as_ms(), next, queues: count };
    let mut writer = BlockWriter::new(&mut *file, number)?;
    let mut values = rmp_serde::Serializer::new(&mut writer).with_struct_map();
    let written = head.serialize(&mut values).and_then(|()| {
        queues.into_iter().try_for_each(|(queue, name, state)| {
            (queue, name.as_str(), state).serialize(&mut values)
        })
    });
    if let Err(error) = written {
        return Err(writer.failure.take().unwrap_or_else(|| io::Error::other(error)));
    }
    let size = writer.finish()?;
    file.sync()?;
    drop(file);
    disk.rename(&temporary, &names::snapshot(number))?;
    disk.sync_directory()?;
    Ok(size)
}

/// Reads the snapshot `number`. Returns its size in bytes as well.
pub(crate) fn read(disk: &dyn Readable, number: u64) -> Result<(Head, Contents, u64), OpenError> {
    let file = names::snapshot(number);
    let source = disk.read(&file).map_err(|source| OpenError::Io {
        path: file.clone().into(),
        what: "read",
        source,
    })?;
    let mut reader = BlockReader::new(source, number);
    let read = read_from(&file, &mut reader);
    let (head, contents) = read.map_err(|error| match error {
        Failure::Open(error) => error,
        Failure::Value(reason) => OpenError::Damaged { file, offset: reader.offset, reason },
    })?;
    Ok((head, contents, reader.offset + 12))
}

enum Failure {
    Open(OpenError),
    Value(String),
}

fn read_from<R: Read>(
    file: &str,
    reader: &mut BlockReader<R>,
) -> Result<(Head, Contents), Failure> {
    let value = |error: &dyn ToString| Failure::Value(error.to_string());
    let number = reader.number;
    let format = reader.preamble().map_err(|error| value(&error))?;
    let version = |what, found, supported, reason: String| {
        Failure::Open(OpenError::Version { file: file.to_owned(), what, found, supported, reason })
    };
    if format != FORMAT {
        return Err(version("format", format, FORMAT, "it cannot be read".to_owned()));
    }
    let mut values = rmp_serde::Deserializer::new(&mut *reader);
    let head = Head::deserialize(&mut values).map_err(|error| value(&error))?;
    if head.number != number {
        return Err(Failure::Value("this is another snapshot".to_owned()));
    }
    // A value that does not fit is no damage if another version wrote it: the hashes were right.
    let other_model = |error: &dyn ToString| match head.model {
        MODEL => value(error),
        found => version("model", found, MODEL, error.to_string()),
    };
    let mut queues = BTreeMap::new();
    for _ in 0..head.queues {
        let (queue, name, state) = <(u32, String, State)>::deserialize(&mut values)
            .map_err(|error| other_model(&error))?;
        let name = QueueName::from_stored(&name).map_err(|error| value(&error))?;
        if queues.insert(queue, Stored::new(name, state)).is_some() {
            return Err(Failure::Value("a queue appears twice".to_owned()));
        }
    }
    reader.end().map_err(|error| value(&error))?;
    let clock = Timestamp::from_ms(head.clock).map_err(|error| value(&error))?;
    Ok((head, Contents { queues, clock, next: head.next, ..Contents::default() }))
}

/// Writes blocks.
struct BlockWriter<'a> {
    file: &'a mut dyn DiskFile,
    number: u64,
    index: u64,
    offset: u64,
    buffer: Vec<u8>,
    /// Why the file could not be written.
    failure: Option<io::Error>,
}

impl<'a> BlockWriter<'a> {
    fn new(file: &'a mut dyn DiskFile, number: u64) -> io::Result<Self> {
        let mut preamble = MAGIC.to_vec();
        preamble.extend(FORMAT.to_le_bytes());
        file.write_at(0, &preamble)?;
        let offset = u64::try_from(PREAMBLE).unwrap_or(u64::MAX);
        Ok(Self {
            file,
            number,
            index: 0,
            offset,
            buffer: Vec::with_capacity(BLOCK),
            failure: None,
        })
    }

    fn write_block(&mut self) -> io::Result<()> {
        let len = u32::try_from(self.buffer.len()).map_err(io::Error::other)?;
        let mut block = len.to_le_bytes().to_vec();
        block.extend(hash(self.number, self.index, &self.buffer).to_le_bytes());
        block.append(&mut self.buffer);
        self.file.write_at(self.offset, &block)?;
        self.offset += u64::try_from(block.len()).unwrap_or(u64::MAX);
        self.index += 1;
        // A sync of the log may have to wait until the disk has all written blocks.
        if self.index.is_multiple_of(BLOCKS_PER_SYNC) {
            self.file.sync()?;
        }
        Ok(())
    }

    /// Returns the size of the file.
    fn finish(mut self) -> io::Result<u64> {
        self.flush()?;
        self.write_block()?;
        Ok(self.offset)
    }
}

impl Write for BlockWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(BLOCK - self.buffer.len());
        self.buffer.extend(&bytes[..taken]);
        if self.buffer.len() == BLOCK
            && let Err(error) = self.write_block()
        {
            let kind = error.kind();
            self.failure = Some(error);
            return Err(kind.into());
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() { Ok(()) } else { self.write_block() }
    }
}

/// Reads blocks.
struct BlockReader<R> {
    source: R,
    number: u64,
    index: u64,
    /// Where the current block begins.
    offset: u64,
    block: Vec<u8>,
    used: usize,
    ended: bool,
}

impl<R: Read> BlockReader<R> {
    const fn new(source: R, number: u64) -> Self {
        Self { source, number, index: 0, offset: 0, block: Vec::new(), used: 0, ended: false }
    }

    /// Returns the version of the format.
    fn preamble(&mut self) -> io::Result<u32> {
        let mut preamble = [0; PREAMBLE];
        self.source.read_exact(&mut preamble)?;
        let mut fields = Fields(&preamble);
        if fields.array() != *MAGIC {
            return Err(io::Error::other("this is not a snapshot"));
        }
        self.offset = u64::try_from(PREAMBLE).unwrap_or(u64::MAX);
        Ok(fields.u32())
    }

    fn next_block(&mut self) -> io::Result<()> {
        if self.ended {
            return Ok(());
        }
        self.offset += match self.index {
            0 => 0,
            _ => u64::try_from(self.block.len() + 12).unwrap_or(u64::MAX),
        };
        let mut head = [0; 12];
        self.source.read_exact(&mut head)?;
        let mut fields = Fields(&head);
        let len = usize::try_from(fields.u32()).unwrap_or(usize::MAX);
        if len > BLOCK {
            return Err(io::Error::other("a block is too long"));
        }
        self.block.resize(len, 0);
        self.source.read_exact(&mut self.block)?;
        if hash(self.number, self.index, &self.block) != fields.u64() {
            return Err(io::Error::other("the hash of a block is wrong"));
        }
        self.index += 1;
        (self.used, self.ended) = (0, self.block.is_empty());
        Ok(())
    }

    /// Checks that nothing is left.
    fn end(&mut self) -> io::Result<()> {
        if self.read(&mut [0])? == 0 {
            Ok(())
        } else {
            Err(io::Error::other("data follow the end"))
        }
    }
}

impl<R: Read> Read for BlockReader<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.used == self.block.len() {
            self.next_block()?;
        }
        let left = self.block.get(self.used..).unwrap_or_default();
        let taken = left.len().min(out.len());
        out[..taken].copy_from_slice(&left[..taken]);
        self.used += taken;
        Ok(taken)
    }
}

/// Writes any bytes as the blocks of a snapshot.
pub(crate) fn write_raw(file: &mut dyn DiskFile, number: u64, bytes: &[u8]) -> io::Result<()> {
    let mut writer = BlockWriter::new(file, number)?;
    writer.write_all(bytes)?;
    writer.finish()?;
    Ok(())
}

fn hash(number: u64, index: u64, bytes: &[u8]) -> u64 {
    xxh3_64_with_seed(bytes, number.rotate_left(32) ^ index)
}
