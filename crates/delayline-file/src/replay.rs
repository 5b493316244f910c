//! From files to queues: at recovery, and for checkpoints.

use std::io;

use crate::OpenError;
use crate::contents::{Contents, Unfit};
use crate::disk::Readable;
use crate::names::{self, Named};
use crate::record::Record;
use crate::segment::{Frame, HEADER, Header, MODEL, read_all, was_synced_beyond};
use crate::snapshot;

/// The files of a directory.
#[derive(Debug, Default)]
pub(crate) struct Files {
    /// The number of the newest snapshot; 0 if there is none.
    pub(crate) snapshot: u64,
    /// The segments that are not in it.
    pub(crate) segments: Vec<u64>,
    /// Whether the segment behind the snapshot was begun, if the snapshot does not say so.
    pub(crate) begun: bool,
    /// Whether all files that the snapshot replaces still exist: then the snapshot's name may not
    /// be durable, and is not needed.
    pub(crate) replaced: bool,
    /// What may be removed.
    pub(crate) obsolete: Vec<String>,
}

impl Files {
    pub(crate) fn find(disk: &dyn Readable) -> io::Result<Self> {
        let names = disk.list()?;
        let named = || names.iter().filter_map(|name| Some((name, names::parse(name)?)));
        let mut files = Self::default();
        for (_, named) in named() {
            if let Named::Snapshot(number) = named {
                files.snapshot = files.snapshot.max(number);
            }
        }
        for (name, named) in named() {
            match named {
                Named::Segment(number) if number >= files.snapshot => files.segments.push(number),
                Named::Snapshot(number) if number == files.snapshot => {}
                // One of a later number comes with a snapshot that did not become durable.
                Named::Begun(number) if number >= files.snapshot.max(1) => {
                    files.begun |= number == files.snapshot.max(1);
                }
                Named::Segment(_) | Named::Snapshot(_) | Named::Begun(_) | Named::Temporary => {
                    files.obsolete.push(name.clone());
                }
            }
        }
        files.segments.sort_unstable();
        let older = named().filter_map(|(_, named)| match named {
            Named::Snapshot(number) if number < files.snapshot => Some(number),
            _ => None,
        });
        let older = older.max().unwrap_or(0).max(1);
        let is_there = |number| names.contains(&names::segment(number));
        files.replaced = older < files.snapshot && (older..files.snapshot).all(is_there);
        Ok(files)
    }
}

/// The files found in a directory.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) contents: Contents,
    pub(crate) files: Files,
    pub(crate) last: Option<Last>,
    /// A segment whose header was never written.
    pub(crate) torn: Option<u64>,
    /// Bytes of the frames that are not in the snapshot.
    pub(crate) logged: u64,
    /// The size of the snapshot in bytes.
    pub(crate) snapshot_size: u64,
    /// Whether the directory was closed, or new, before the segments.
    pub(crate) closed: bool,
}

/// The last segment with a header.
#[derive(Debug)]
pub(crate) struct Last {
    pub(crate) number: u64,
    /// Where its frames end.
    pub(crate) end: u64,
    /// Bytes that may be in the system's cache only, and their offset: the last batch, or a header
    /// without frames.
    pub(crate) unproven: (u64, Vec<u8>),
}

/// Reads everything. Changes nothing.
pub(crate) fn recover(disk: &dyn Readable) -> Result<Recovered, OpenError> {
    let io = |name: String| move |source| OpenError::Io { path: name.into(), what: "read", source };
    let files = Files::find(disk).map_err(io("the directory".to_owned()))?;
    let missing = |number, reason| OpenError::Missing { file: names::segment(number), reason };
    let (mut contents, closed, snapshot_size) = match files.snapshot {
        // A new directory is like a closed one.
        0 => (Contents { next: 1, ..Contents::default() }, true, 0),
        number => {
            let (head, contents, size) = snapshot::read(disk, number)?;
            (contents, head.closed, size)
        }
    };
    let first = files.snapshot.max(1);
    let (mut last, mut torn, mut logged) = (None, None, 0);
    let must_exist = files.begun || !closed;
    if must_exist && files.segments.first() != Some(&first) {
        return Err(missing(
            first,
            "the queues were not closed, so their latest changes are in it",
        ));
    }
    let mut next = read_segment(disk, &files.segments, 0)?;
    for (index, &number) in files.segments.iter().enumerate() {
        let expected = first + u64::try_from(index).unwrap_or(u64::MAX);
        if number != expected {
            return Err(missing(expected, "a later segment exists"));
        }
        let Some((name, bytes, header)) = next.take() else { break };
        next = read_segment(disk, &files.segments, index + 1)?;
        let Some(header) = header else {
            if next.is_some() || must_exist && index == 0 {
                let reason = "the header, which had been synced, is unreadable".to_owned();
                return Err(OpenError::Damaged { file: name, offset: 0, reason });
            }
            torn = Some(number);
            break;
        };
        let end = next.as_ref().and_then(|(_, _, header)| header.map(|header| header.first));
        let (synced, end) = replay(&mut contents, &name, &bytes, header, end)?;
        let unproven = bytes.get(synced..end).unwrap_or_default().to_vec();
        let [synced, end] = [synced, end].map(|at| u64::try_from(at).unwrap_or(u64::MAX));
        last = Some(Last { number, end, unproven: (synced, unproven) });
        logged += end - HEADER;
    }
    Ok(Recovered { contents, files, last, torn, logged, snapshot_size, closed })
}

type Segment = (String, Vec<u8>, Option<Header>);

fn read_segment(
    disk: &dyn Readable,
    segments: &[u64],
    index: usize,
) -> Result<Option<Segment>, OpenError> {
    let Some(&number) = segments.get(index) else { return Ok(None) };
    let name = names::segment(number);
    let bytes = read_all(disk, &name).map_err(|source| OpenError::Io {
        path: name.clone().into(),
        what: "read",
        source,
    })?;
    let header = Header::decode(&name, number, &bytes)?;
    Ok(Some((name, bytes, header)))
}

/// Reads the snapshot `number` and the segments that follow it, up to the segment `end`, all of
/// which are sealed.
pub(crate) fn sealed(disk: &dyn Readable, number: u64, end: u64) -> Result<Contents, OpenError> {
    let mut contents = match number {
        0 => Contents { next: 1, ..Contents::default() },
        number => snapshot::read(disk, number)?.1,
    };
    let segments: Vec<u64> = (number.max(1)..=end).collect();
    let mut next = read_segment(disk, &segments, 0)?;
    for index in 1..segments.len() {
        let current = next.take();
        next = read_segment(disk, &segments, index)?;
        if let (Some((name, bytes, Some(header))), Some((_, _, Some(following)))) = (current, &next)
        {
            replay(&mut contents, &name, &bytes, header, Some(following.first))?;
        } else {
            let reason = "the header of a segment is unreadable".to_owned();
            return Err(OpenError::Damaged {
                file: names::segment(segments[index - 1]),
                offset: 0,
                reason,
            });
        }
    }
    Ok(contents)
}

/// Replays a segment up to the frame before `end`, or to its last intact frame if there is no end.
/// Returns the offset up to which the file is known to be synced, and the offset behind the last
/// frame.
fn replay(
    contents: &mut Contents,
    file: &str,
    bytes: &[u8],
    header: Header,
    end: Option<u64>,
) -> Result<(usize, usize), OpenError> {
    let damaged = |offset: usize, reason: &str| OpenError::Damaged {
        file: file.to_owned(),
        offset: u64::try_from(offset).unwrap_or(u64::MAX),
        reason: reason.to_owned(),
    };
    if header.first != contents.next {
        let reason = format!("it begins with frame {}, not with {}", header.first, contents.next);
        return Err(damaged(0, &reason));
    }
    let mut offset = usize::try_from(HEADER).unwrap_or(usize::MAX);
    let (mut synced, mut len) = (0, header.len);
    while end.is_none_or(|end| contents.next < end) {
        let frame = Frame::read(bytes, offset, header.salt);
        let Some(frame) = frame.filter(|frame| frame.sequence == contents.next) else {
            if let Some(end) = end {
                let reason = format!("frame {} is unreadable, and {end} follows", contents.next);
                return Err(damaged(offset, &reason));
            }
            if was_synced_beyond(bytes, offset, header.salt) {
                return Err(damaged(offset, "a frame that had been synced is unreadable"));
            }
            if u64::try_from(bytes.len()).unwrap_or(u64::MAX) < len {
                let reason = format!("the file was cut off: it had {len} bytes");
                return Err(damaged(bytes.len(), &reason));
            }
            break;
        };
        let record = Record::decode(frame.body).map_err(Unfit::Record);
        record.and_then(|record| contents.redo(record)).map_err(|unfit| match unfit {
            Unfit::Revision(reason) | Unfit::Record(reason) if header.model != MODEL => {
                OpenError::Version {
                    file: file.to_owned(),
                    what: "model",
                    found: header.model,
                    supported: MODEL,
                    reason,
                }
            }
            Unfit::Revision(reason) | Unfit::Record(reason) => damaged(offset, &reason),
        })?;
        contents.next += 1;
        // Where the frame's batch began: all before it was synced by then.
        synced = usize::try_from(frame.synced.offset).unwrap_or(0).min(offset);
        offset = frame.end;
        len = frame.synced.len;
    }
    Ok((synced, offset))
}
