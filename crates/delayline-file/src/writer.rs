//! The only thread that writes the log.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::Options;
use crate::checkpoint::Checkpoints;
use crate::disk::{DiskFile, Volume, is_full, is_passing};
use crate::log::{Grow, Log};
use crate::segment::{HEADER, Header, MODEL, Synced, encode_frame};
use crate::{names, record};

/// Writes batches to the current segment: as many operations as have come while the batch before
/// was synced.
pub(crate) struct Writer {
    disk: Arc<Volume>,
    log: Arc<Log>,
    checkpoints: Arc<Checkpoints>,
    options: Options,
    segment: Segment,
    /// The sequence number of the next frame.
    next: u64,
    /// When the next segment could not be created, for a reason that passes.
    refused: Option<Instant>,
    /// The frames of a batch.
    batch: Vec<u8>,
}

/// The current segment.
pub(crate) struct Segment {
    file: Box<dyn DiskFile>,
    number: u64,
    salt: u64,
    /// Up to here it is written and synced.
    written: u64,
    /// Up to here the disk has room for it: the length of the file.
    allocated: u64,
    /// The length that is synced.
    synced_len: u64,
    /// Whether a claim in it that a crash may undo is durable. From then on, a recovery knows that
    /// there may have been more of them.
    tells_of_claims: bool,
}

impl Segment {
    /// Creates a segment with room for at least `least` bytes of frames, and for `wanted` if the
    /// disk has that much. It is durable once this returns.
    pub(crate) fn create(
        disk: &Volume,
        number: u64,
        first: u64,
        wanted: u64,
        least: u64,
    ) -> Result<Self, CreateError> {
        let name = names::segment(number);
        let mut file = disk.create(&name).map_err(CreateError::Before)?;
        let mut allocated = HEADER + wanted.max(least);
        let mut reserved = file.reserve(allocated);
        if reserved.as_ref().is_err_and(is_full) && least < wanted {
            allocated = HEADER + least;
            reserved = file.reserve(allocated);
        }
        if let Err(error) = reserved {
            drop(file);
            // An empty segment does no harm.
            let _ = disk.remove(&name);
            return Err(CreateError::Before(error));
        }
        let salt = salt();
        let header = Header { number, model: MODEL, first, salt, len: allocated };
        let mut begin = || {
            // A header stands for the length that it contains and for the file's name, also to a
            // process that finds it after a failure, so both are synced first.
            file.sync()?;
            disk.sync_directory()?;
            file.write_at(0, &header.encode())?;
            file.sync()
        };
        begin().map_err(CreateError::Begun)?;
        let synced_len = allocated;
        Ok(Self {
            file,
            number,
            salt,
            written: HEADER,
            allocated,
            synced_len,
            tells_of_claims: false,
        })
    }

    /// Grows to `wanted` bytes of frames, if the disk has room for them.
    pub(crate) fn grow_to(&mut self, wanted: u64) -> io::Result<()> {
        if self.allocated < HEADER + wanted {
            match self.file.reserve(HEADER + wanted) {
                Ok(()) => self.allocated = HEADER + wanted,
                Err(error) if is_full(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns its number.
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// Returns the free space behind the written data.
    pub(crate) const fn room(&self) -> u64 {
        self.allocated.saturating_sub(self.written)
    }
}

/// When the creation of a segment failed.
#[derive(Debug)]
pub(crate) enum CreateError {
    /// It does not exist, so the previous segment can be continued.
    Before(io::Error),
    /// It may be there, so that frames in the one before would not count any more.
    Begun(io::Error),
}

impl CreateError {
    pub(crate) fn into_io(self) -> io::Error {
        match self {
            Self::Before(error) | Self::Begun(error) => error,
        }
    }
}

/// A number that no payload can guess.
fn salt() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}

impl Writer {
    pub(crate) fn new(
        disk: Arc<Volume>,
        log: Arc<Log>,
        checkpoints: Arc<Checkpoints>,
        options: Options,
        segment: Segment,
        next: u64,
    ) -> Self {
        Self { disk, log, checkpoints, options, segment, next, refused: None, batch: Vec::new() }
    }

    /// Works until the log is closed or fails. Returns the number of the last segment.
    pub(crate) fn run(mut self) -> u64 {
        // If this thread panics, no call may wait for ever.
        let guard = FailOnDrop(Arc::clone(&self.log));
        loop {
            let work = self.log.work(IDLE);
            let closing = work.closing;
            let step = self.step(work.bodies, work.grow);
            if let Err(error) = step {
                self.log.fail(&format!("{}: {error}", names::segment(self.segment.number)));
                break;
            }
            if closing {
                break;
            }
        }
        std::mem::forget(guard);
        self.segment.number
    }

    fn step(&mut self, bodies: Vec<Vec<u8>>, grow: Option<Grow>) -> io::Result<()> {
        if !bodies.is_empty() {
            self.write(&bodies)?;
        }
        let checkpoints = self.log.checkpoints();
        let mut lacks_room = match grow {
            Some(wanted) => !self.grow(wanted)?,
            None => false,
        };
        let is_full = lacks_room || self.log.is_full();
        let presses = is_full && self.checkpoints.would_help(self.segment.written);
        let waits = self.refused.is_some_and(|since| since.elapsed() < RETRY);
        if (self.segment.written >= self.options.segment || presses) && !waits {
            lacks_room |= !self.rotate()?;
        }
        self.checkpoints.start_if_due(self.segment.number, is_full);
        if lacks_room {
            // Not before a checkpoint has begun that may make room: callers then wait for it.
            self.log.full(checkpoints);
        }
        Ok(())
    }

    /// Writes one batch, and makes it durable.
    fn write(&mut self, bodies: &[Vec<u8>]) -> io::Result<()> {
        self.batch.clear();
        self.batch.shrink_to(KEPT);
        let synced = Synced { offset: self.segment.written, len: self.segment.synced_len };
        for body in bodies {
            encode_frame(&mut self.batch, self.segment.salt, self.next, synced, body);
            self.next += 1;
        }
        self.segment.file.write_at(self.segment.written, &self.batch)?;
        if self.segment.tells_of_claims {
            self.log.written(self.next);
        }
        let begun = Instant::now();
        self.segment.file.sync()?;
        self.log.synced(begun.elapsed());
        self.segment.synced_len = self.segment.allocated;
        self.segment.tells_of_claims |= bodies.iter().any(|body| record::may_be_lost(body));
        let bytes = u64::try_from(self.batch.len()).unwrap_or(u64::MAX);
        self.segment.written += bytes;
        self.checkpoints.logged(bytes);
        self.log.made_durable(self.next, bytes);
        Ok(())
    }

    /// Lets the segment grow, unless the disk then lacks room for the next segment and snapshot. To
    /// drain a queue, the room for the next snapshot is enough: a small segment can follow.
    /// Returns whether it has grown.
    fn grow(&mut self, wanted: Grow) -> io::Result<bool> {
        let (more, segment) = if wanted.draining {
            (self.options.chunk.max(wanted.least), 0)
        } else {
            let more = self.options.chunk.max(wanted.least + self.options.reserve);
            (more, 2 * self.options.reserve + self.options.chunk)
        };
        let needed = more.saturating_add(segment).saturating_add(self.checkpoints.next_size());
        if self.disk.space()?.free < needed {
            return Ok(false);
        }
        let allocated = self.segment.allocated + more;
        match self.segment.file.reserve(allocated) {
            Ok(()) => {
                self.segment.allocated = allocated;
                self.log.grown(more);
                Ok(true)
            }
            Err(error) if is_full(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Continues in a new segment, unless the disk has no space for it: then it returns false.
    fn rotate(&mut self) -> io::Result<bool> {
        let (number, least) = (self.segment.number + 1, self.segment.room());
        let mut wanted = 2 * self.options.reserve + self.options.chunk;
        if self.disk.space()?.free < wanted.saturating_add(self.checkpoints.next_size()) {
            // Only the rest of this segment is left.
            wanted = least;
        }
        match Segment::create(&self.disk, number, self.next, wanted, least) {
            Ok(segment) => {
                self.refused = None;
                self.log.replace_room(segment.room());
                self.checkpoints.rotated(number);
                let mut sealed = std::mem::replace(&mut self.segment, segment);
                // Only gives room back that it does not need any more.
                if let Err(error) = sealed.file.truncate(sealed.written) {
                    tracing::debug!(%error, "a sealed segment keeps its room");
                }
                Ok(true)
            }
            Err(CreateError::Before(error)) if is_full(&error) => Ok(false),
            Err(CreateError::Before(error)) if is_passing(&error) => {
                tracing::warn!(%error, "the log continues in a large segment, because no new one \
                                        can be created");
                self.refused = Some(Instant::now());
                Ok(true)
            }
            Err(error) => Err(error.into_io()),
        }
    }
}

/// Fails all calls if it is dropped.
struct FailOnDrop(Arc<Log>);

impl Drop for FailOnDrop {
    fn drop(&mut self) {
        self.0.fail("the thread that writes the log has ended");
    }
}

/// Memory that the writer keeps for the next batch, in bytes.
const KEPT: usize = 256 << 10;

/// How long the current segment continues if none could be created.
const RETRY: Duration = Duration::from_secs(10);

/// How long the writer waits for work before it looks whether a checkpoint is due.
const IDLE: Duration = Duration::from_secs(5);
