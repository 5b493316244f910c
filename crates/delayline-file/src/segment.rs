//! The format of the log: segments of frames.
//!
//! All numbers are little-endian. A segment begins with a header of 48 bytes: [`MAGIC`], the
//! versions of the format and the model, the segment's number, the sequence number of its first
//! frame, a random salt, the length of the file, and the hash of all that. Frames follow:
//! [`FRAME_MAGIC`], the length of the body, the sequence number, the offset up to which the segment
//! was known to be synced when the frame was written, the length that its file was known to have
//! then, a hash of all that and the body, and the body. Zeros follow, which are room for more.
//!
//! The salt is part of each hash, so that neither bytes of another segment nor a payload can be
//! taken for a frame.

use std::io;

use xxhash_rust::xxh3::Xxh3;

use crate::OpenError;

/// The version of the format of segments and snapshots.
pub(crate) const FORMAT: u32 = 1;

/// The version of the model: raise it when the same operations lead to other states, or states are
/// stored in another form.
pub(crate) const MODEL: u32 = 2;

/// The length of a segment's header, in bytes.
pub(crate) const HEADER: u64 = 56;

/// The length of a frame without its body, in bytes.
pub(crate) const FRAME: u64 = 40;

/// Returns the length of a frame with this body.
pub(crate) fn frame_len(body: &[u8]) -> u64 {
    FRAME.saturating_add(u64::try_from(body.len()).unwrap_or(u64::MAX))
}

/// What of it the hash covers.
const HASHED: usize = 32;

const MAGIC: &[u8; 8] = b"DLAYLOG\n";
const FRAME_MAGIC: [u8; 4] = *b"\xd1DLf";

/// What a segment's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) number: u64,
    pub(crate) model: u32,
    /// The sequence number of the first frame.
    pub(crate) first: u64,
    pub(crate) salt: u64,
    /// The length of the file with which it was made durable.
    pub(crate) len: u64,
}

impl Header {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(FORMAT.to_le_bytes());
        bytes.extend(self.model.to_le_bytes());
        bytes.extend(self.number.to_le_bytes());
        bytes.extend(self.first.to_le_bytes());
        bytes.extend(self.salt.to_le_bytes());
        bytes.extend(self.len.to_le_bytes());
        bytes.extend(hash(0, &[&bytes]).to_le_bytes());
        bytes
    }

    /// Reads the header of the segment `number`. `Ok(None)` if there is none: nothing but a torn
    /// header and zeros.
    pub(crate) fn decode(file: &str, number: u64, bytes: &[u8]) -> Result<Option<Self>, OpenError> {
        let damaged = |reason: &str| {
            Err(OpenError::Damaged { file: file.to_owned(), offset: 0, reason: reason.to_owned() })
        };
        let header_len = usize::try_from(HEADER).unwrap_or(usize::MAX);
        let Some((head, rest)) = bytes.split_at_checked(header_len) else {
            return Ok(None);
        };
        let mut fields = Fields(head);
        let magic = fields.array::<8>();
        let (format, model) = (fields.u32(), fields.u32());
        let header = Self {
            model,
            number: fields.u64(),
            first: fields.u64(),
            salt: fields.u64(),
            len: fields.u64(),
        };
        if fields.u64() != hash(0, &[&head[..header_len - 8]]) {
            return if rest.iter().all(|byte| *byte == 0) {
                Ok(None)
            } else {
                damaged("the header is unreadable, and frames follow")
            };
        }
        if magic != *MAGIC {
            return damaged("this is not a segment of a log");
        }
        if format != FORMAT {
            return Err(OpenError::Version {
                file: file.to_owned(),
                what: "format",
                found: format,
                supported: FORMAT,
                reason: "it cannot be read".to_owned(),
            });
        }
        if header.number != number {
            return damaged("this is another segment");
        }
        Ok(Some(header))
    }
}

/// What a frame says about the segment at the time at which it was written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Synced {
    /// Up to here it was known to be synced.
    pub(crate) offset: u64,
    /// The length that its file was known to have.
    pub(crate) len: u64,
}

/// Appends a frame to a batch.
pub(crate) fn encode_frame(
    out: &mut Vec<u8>,
    salt: u64,
    sequence: u64,
    synced: Synced,
    body: &[u8],
) {
    let mut head = [0; HASHED];
    head[..4].copy_from_slice(&FRAME_MAGIC);
    // Operations are far shorter than 4 GiB.
    head[4..8].copy_from_slice(&u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes());
    head[8..16].copy_from_slice(&sequence.to_le_bytes());
    head[16..24].copy_from_slice(&synced.offset.to_le_bytes());
    head[24..].copy_from_slice(&synced.len.to_le_bytes());
    out.extend(head);
    out.extend(hash(salt, &[&head, body]).to_le_bytes());
    out.extend(body);
}

/// A frame of a segment.
#[derive(Debug)]
pub(crate) struct Frame<'a> {
    /// Where the next one begins.
    pub(crate) end: usize,
    pub(crate) sequence: u64,
    pub(crate) synced: Synced,
    pub(crate) body: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Reads the frame at an offset. `None` if there is no intact frame.
    pub(crate) fn read(bytes: &'a [u8], offset: usize, salt: u64) -> Option<Self> {
        let frame_len = usize::try_from(FRAME).ok()?;
        let (head, rest) = bytes.get(offset..)?.split_at_checked(frame_len)?;
        let mut fields = Fields(head);
        if fields.array() != FRAME_MAGIC {
            return None;
        }
        let len = usize::try_from(fields.u32()).ok()?;
        let sequence = fields.u64();
        let synced = Synced { offset: fields.u64(), len: fields.u64() };
        let stored = fields.u64();
        let body = rest.get(..len)?;
        let end = offset + frame_len + len;
        (hash(salt, &[&head[..HASHED], body]) == stored).then_some(Self {
            end,
            sequence,
            synced,
            body,
        })
    }
}

/// Returns whether a segment was synced beyond `offset`, as a later frame says: then what is
/// unreadable there is damaged, and no torn write.
pub(crate) fn was_synced_beyond(bytes: &[u8], offset: usize, salt: u64) -> bool {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let at = u64::try_from(offset).unwrap_or(u64::MAX);
    (offset + 1..end)
        .filter(|place| claims_sync_beyond(bytes, *place, at))
        .any(|place| Frame::read(bytes, place, salt).is_some())
}

/// Returns whether bytes look like a frame that says so. Hashing whatever has the magic number of a
/// frame would take hours if a payload repeats it.
fn claims_sync_beyond(bytes: &[u8], place: usize, offset: u64) -> bool {
    let Some(head) = bytes.get(place..place + HASHED) else { return false };
    let mut fields = Fields(head);
    let is_frame = fields.array() == FRAME_MAGIC;
    let (_len, _sequence) = (fields.u32(), fields.u64());
    let synced = fields.u64();
    is_frame && synced > offset && usize::try_from(synced).is_ok_and(|synced| synced <= place)
}

fn hash(seed: u64, parts: &[&[u8]]) -> u64 {
    let mut hasher = Xxh3::with_seed(seed);
    parts.iter().for_each(|part| hasher.update(part));
    hasher.digest()
}

/// Reads numbers from bytes. Missing bytes are 0, so check the length before.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl Fields<'_> {
    pub(crate) fn array<const N: usize>(&mut self) -> [u8; N] {
        match self.0.split_first_chunk() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => [0; N],
        }
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }
}

/// Reads a whole file.
pub(crate) fn read_all(disk: &dyn crate::disk::Readable, name: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    disk.read(name)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}
