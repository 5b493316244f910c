//! A directory with many queues and one log.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
#[cfg(unix)]
use std::time::Duration;

use delayline_core::{Error, ErrorKind, Held, QueueName, State, Timestamp, Violation};

use crate::backend::Queue;
use crate::checkpoint::{Checkpoints, next_size, remove_obsolete};
use crate::clock::{Clock, MAX_STEP_BACK_MS, machine_ms};
use crate::contents::{Contents, Stored};
use crate::disk::{DiskFile, RealDisk, Volume, is_full};
#[cfg(unix)]
use crate::endpoint::{Endpoint, Reached};
use crate::log::Log;
use crate::replay::{Last, Recovered, recover};
use crate::segment::frame_len;
use crate::writer::{CreateError, Segment, Writer};
use crate::{
    DirectoryStatus, FileBackend, MAX_QUEUES, OpenError, Options, names, record, snapshot,
};

/// Queues that are stored in a directory on the local disk. Only one process uses it at a time.
/// Clones share it; it is closed when they and all its queues are dropped. Closing writes a
/// snapshot, which blocks the thread: for seconds with a million messages.
///
/// A call returns once its effect is on disk. All queues share one log, and all calls that wait
/// share one sync. The messages are in memory as well.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use delayline_core::{At, Backend, MessageId, NewMessage, Op};
/// use delayline_file::{Directory, Options};
///
/// # let parent = tempfile::tempdir()?;
/// # let path = parent.path().join("queues");
/// let directory = Directory::open(&path, Options::default())?;
/// let orders = directory.queue("orders".parse()?)?;
/// let message = NewMessage::new(MessageId::try_from("order-1")?, "close it");
/// orders.apply(At::Server, &Op::Enqueue(vec![message])).await?;
/// drop((directory, orders));
///
/// let directory = Directory::open(&path, Options::default())?;
/// assert_eq!(directory.queues(), ["orders".parse()?]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Directory(Arc<Inner>);

struct Inner {
    path: PathBuf,
    disk: Arc<Volume>,
    log: Arc<Log>,
    clock: Arc<Clock>,
    checkpoints: Arc<Checkpoints>,
    queues: Mutex<Queues>,
    /// The sequence number with which it was opened, and whether a snapshot of a closed directory
    /// had all before.
    opened: (u64, bool),
    /// `None` once it is closed.
    writer: Mutex<Option<JoinHandle<u64>>>,
    #[cfg(unix)]
    endpoint: Mutex<Option<Endpoint>>,
}

#[derive(Default)]
struct Queues {
    by_name: BTreeMap<QueueName, Arc<Queue>>,
    /// The number of the next queue.
    next: u32,
}

impl Directory {
    /// Opens a directory, and creates it if it does not exist. Reads everything in it, which takes
    /// seconds for a million messages: in an asynchronous program, call this in a blocking task.
    ///
    /// Torn writes of a crash, which were never acknowledged, are dropped.
    ///
    /// # Errors
    ///
    /// [`OpenError`]. The stored data is not changed.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self, OpenError> {
        let disk = RealDisk::open(path.as_ref())?;
        Self::on(Arc::new(Volume::new(disk)), path.as_ref().to_owned(), options)
    }

    pub(crate) fn on(
        disk: Arc<Volume>,
        path: PathBuf,
        options: Options,
    ) -> Result<Self, OpenError> {
        let failed = |what| {
            let path = path.clone();
            move |source| OpenError::Io { path, what, source }
        };
        let recovered = recover(&**disk)?;
        let space = disk.space().map_err(failed("read the size of the disk"))?;
        let options = options.on_disk_of(space.total);
        let last = recovered.contents.clock;
        let now = machine_ms();
        let is_behind = last.as_ms().saturating_sub(now) > MAX_STEP_BACK_MS;
        if is_behind && !options.accept_clock {
            let now = Timestamp::from_ms(now).unwrap_or_default();
            return Err(OpenError::Clock { now, last });
        }
        let clock = Arc::new(Clock::new(if is_behind { Timestamp::MIN } else { last }));
        let begun =
            begin(&disk, &recovered, options).map_err(failed("begin a segment of the log"))?;
        let Recovered { mut contents, files, logged, snapshot_size, closed, .. } = recovered;
        let next = contents.next;
        let lost = contents.claims_lost.then(|| {
            let until = clock.upper_bound();
            contents.skip_epochs(until);
            record::claims_lost(until)
        });
        let taken = lost.as_ref().map_or(0, |body| frame_len(body));
        let left = begun.room().saturating_sub(taken);
        let log = Arc::new(Log::new(next, left, taken, options.reserve));
        // Claims wait for it, like for any change before them.
        let last = if lost.is_some() { next } else { 0 };
        log.append(lost).map_err(|error| failed("begin the log")(std::io::Error::other(error)))?;
        let checkpoints = Arc::new(Checkpoints::new(
            Arc::clone(&disk),
            Arc::clone(&log),
            options.segment,
            &files,
            begun.number(),
            snapshot_size,
            logged,
        ));
        let writer = {
            let (disk, log) = (Arc::clone(&disk), Arc::clone(&log));
            Writer::new(disk, log, Arc::clone(&checkpoints), options, begun, next)
        };
        let thread = thread::Builder::new().name("delayline-log".to_owned());
        let writer = thread.spawn(move || writer.run()).map_err(failed("start a thread"))?;
        Ok(Self(Arc::new(Inner {
            path,
            disk,
            log,
            clock,
            checkpoints,
            queues: Mutex::new(Queues::of(contents, last)),
            opened: (next, closed && files.segments.is_empty()),
            writer: Mutex::new(Some(writer)),
            #[cfg(unix)]
            endpoint: Mutex::default(),
        })))
    }

    /// Returns the queue with this name, always the same one. A new queue is stored with its first
    /// message.
    ///
    /// # Errors
    ///
    /// [`Violation::TooLong`] if the directory has [`MAX_QUEUES`] other queues, including those
    /// that are only opened.
    pub fn queue(&self, name: QueueName) -> Result<FileBackend, Error> {
        let mut queues = self.0.queues();
        if let Some(queue) = queues.by_name.get(&name) {
            return Ok(self.backend(queue));
        }
        if queues.by_name.len() == MAX_QUEUES {
            queues.forget_unused();
        }
        if queues.by_name.len() == MAX_QUEUES {
            return Err(Violation::TooLong {
                what: "the directory",
                unit: "queues",
                actual: MAX_QUEUES + 1,
                limit: MAX_QUEUES,
            }
            .into());
        }
        let queue = Arc::new(Queue::new(queues.next, name.clone(), State::new(), 0, false));
        queues.next += 1;
        queues.by_name.insert(name, Arc::clone(&queue));
        Ok(self.backend(&queue))
    }

    fn backend(&self, queue: &Arc<Queue>) -> FileBackend {
        let directory = Arc::clone(&self.0);
        FileBackend::new(directory, &self.0.log, &self.0.clock, queue)
    }

    /// Lets other processes of the same user reach the queues while this one has them open:
    /// [`Beside::connect`](crate::Beside::connect). They can do everything that an operator does,
    /// but run no workers. Before `after` has passed, they cannot connect: so they wait for a
    /// process that closes the directory sooner, instead of losing their connection to it.
    ///
    /// `about` returns a description of this process, such as its workers:
    /// [`Beside::about`](crate::Beside::about) returns it in the other process.
    ///
    /// Binds a unix socket in the directory, which only this user can open. It is removed when the
    /// directory is closed. Then pending requests are dropped, and their callers learn that the
    /// connection was lost. Does nothing if the directory is already shared.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with I/O.
    ///
    /// # Errors
    ///
    /// If the socket cannot be bound: on systems other than Linux, for example, because its path is
    /// longer than about 100 bytes. The directory can still be used.
    #[cfg(unix)]
    pub fn share(
        &self,
        after: Duration,
        about: impl Fn() -> String + Send + Sync + 'static,
    ) -> std::io::Result<()> {
        // Only a missing runtime causes a panic while it is locked.
        let mut endpoint = self.0.endpoint.lock().unwrap_or_else(PoisonError::into_inner);
        if endpoint.is_none() {
            let inner = Arc::downgrade(&self.0);
            let find = Arc::new(move || {
                let directory = inner.upgrade().map(Self)?;
                Some(Box::new(directory) as Box<dyn Reached>)
            });
            *endpoint = Some(Endpoint::bind(&self.0.path, after, find, Arc::new(about))?);
        }
        Ok(())
    }

    /// Removes the queue with this name if it is empty, so that it no longer counts towards
    /// [`MAX_QUEUES`]. Returns whether it was stored, and its contents: if they are
    /// [empty](Held::is_empty), the queue was removed. The removal deletes its counters,
    /// history, pause and limits with its order, and the ids of recently finished messages. The
    /// next message stores it again.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the queue may have been removed. It is safe to call this again.
    ///
    /// # Errors
    ///
    /// Like [`Backend::apply`](delayline_core::Backend::apply).
    pub async fn delete_if_empty(&self, name: &QueueName) -> Result<(bool, Held), Error> {
        let queue = self.0.queues().by_name.get(name).cloned();
        match queue {
            Some(queue) => self.backend(&queue).remove_if_empty().await,
            None => Ok((false, Held::default())),
        }
    }

    /// Returns whether the queue with this name is stored, and its contents, which
    /// [`delete_if_empty`](Self::delete_if_empty) would lose.
    ///
    /// # Errors
    ///
    /// Like [`Backend::apply`](delayline_core::Backend::apply).
    pub fn held(&self, name: &QueueName) -> Result<(bool, Held), Error> {
        let queue = self.0.queues().by_name.get(name).cloned();
        queue.map_or_else(|| Ok((false, Held::default())), |queue| self.backend(&queue).held())
    }

    /// Closes the directory for all clones and queues: waits for pending writes, and leaves only a
    /// snapshot. Then another process can open it. Further calls fail with
    /// [`ErrorKind::Storage`](delayline_core::ErrorKind::Storage). Does nothing if it is closed.
    ///
    /// This blocks the thread, for seconds with a million messages.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DiskFailed`](delayline_core::ErrorKind::DiskFailed) if the disk has failed, now
    /// or earlier, and [`ErrorKind::DiskFull`](delayline_core::ErrorKind::DiskFull) if it has no
    /// space for the snapshot. All acknowledged calls are still in the log, and the directory can
    /// be opened again.
    pub fn close(&self) -> Result<(), Error> {
        self.0.close()
    }

    /// Returns the names of all stored queues, in order.
    #[must_use]
    pub fn queues(&self) -> Vec<QueueName> {
        let queues = self.0.queues();
        let stored = queues.by_name.iter().filter(|(_, queue)| queue.is_stored());
        stored.map(|(name, _)| name.clone()).collect()
    }

    /// Returns the path with which the directory was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Returns the size of the directory, its free space, and the duration of syncs.
    #[must_use]
    pub fn status(&self) -> DirectoryStatus {
        let latest = self.0.checkpoints.latest();
        let log = self.0.log.status();
        DirectoryStatus {
            queues: u64::try_from(self.queues().len()).unwrap_or(u64::MAX),
            segments: latest.segments,
            log_bytes: latest.log_bytes,
            snapshot_bytes: latest.snapshot_bytes,
            last_checkpoint: latest.finished,
            checkpoint_running: latest.is_running,
            free_bytes: self.0.disk.space().map_or(0, |space| space.free),
            room_bytes: log.room,
            reserve_bytes: log.reserve,
            full: log.full,
            failure: log.failure,
            syncs: log.syncs,
        }
    }
}

#[cfg(unix)]
impl Reached for Directory {
    fn names(&self) -> Vec<QueueName> {
        self.queues()
    }

    fn find(&self, name: QueueName) -> Result<FileBackend, Error> {
        self.queue(name)
    }

    fn status(&self) -> DirectoryStatus {
        Self::status(self)
    }
}

/// Makes durable what a recovery has read, cleans up after it, and begins a new segment: nothing is
/// ever appended to a segment that a crash may have torn.
///
/// What an earlier process has not synced may be in the system's cache only. If a sync has failed,
/// the system takes it for synced all the same, so it is written again before it is synced.
fn begin(disk: &Volume, recovered: &Recovered, options: Options) -> std::io::Result<Segment> {
    let mut last = match &recovered.last {
        Some(last) => Some((disk.edit(&names::segment(last.number))?, last)),
        None => None,
    };
    if let Some((file, last)) = &mut last
        && let Err(error) = write_again(&mut **file, last)
    {
        if !is_full(&error) {
            return Err(error);
        }
        // Some file systems need room even for bytes that replace others.
        file.release(last.end)?;
        write_again(&mut **file, last)?;
    }
    let (files, oldest) = (&recovered.files, recovered.files.snapshot.max(1));
    if files.replaced {
        rename_again(disk, &names::snapshot(files.snapshot))?;
    }
    if files.begun {
        rename_again(disk, &names::begun(oldest))?;
    }
    // The snapshot's name must be durable before older files are removed.
    disk.sync_directory()?;
    remove_obsolete(&**disk);
    let next = recovered.last.as_ref().map(|last| last.number + 1);
    let number = recovered.torn.or(next).unwrap_or(oldest);
    let wanted = 2 * options.reserve + options.chunk;
    let first = recovered.contents.next;
    let least = LEAST.min(wanted);
    let create = || Segment::create(disk, number, first, wanted, least);
    let mut created = create();
    if let (Err(CreateError::Before(error)), Some((file, last))) = (&created, &mut last)
        && is_full(error)
    {
        // The last segment releases the room that it does not need, and keeps its length: until
        // the next segment exists, the frames state that length.
        file.release(last.end)?;
        created = create();
    }
    let mut segment = created.map_err(CreateError::into_io)?;
    if recovered.closed && !files.begun {
        mark_begun(disk, oldest)?;
    }
    if let Some((mut file, last)) = last {
        // Not before: frames say how long the last segment is.
        file.truncate(last.end)?;
    }
    // The next snapshot needs room, too.
    let snapshot = next_size(recovered.snapshot_size, recovered.logged);
    let has_room = disk.space()?.free >= wanted.saturating_add(snapshot);
    segment.grow_to(if has_room { wanted } else { options.reserve })?;
    Ok(segment)
}

fn write_again(file: &mut dyn DiskFile, last: &Last) -> std::io::Result<()> {
    let (offset, bytes) = &last.unproven;
    file.write_at(*offset, bytes)?;
    file.sync()
}

/// Makes the name of a file again, so that the next sync makes it durable. A crash can leave the
/// file without it, so the queues must be readable without that file.
fn rename_again(disk: &Volume, name: &str) -> std::io::Result<()> {
    // No snapshot has this number.
    let temporary = names::temporary(0);
    disk.rename(name, &temporary)?;
    disk.rename(&temporary, name)
}

/// Says that the segment `number`, which is durable, was begun after the queues had been closed.
fn mark_begun(disk: &Volume, number: u64) -> std::io::Result<()> {
    match disk.create(&names::begun(number)).map(drop) {
        // Without room for it, a segment that goes missing later would not be missed.
        Err(error) if is_full(&error) => {
            tracing::warn!(%error, "the directory does not say that its log was begun");
            Ok(())
        }
        result => result.and_then(|()| disk.sync_directory()),
    }
}

impl Queues {
    /// Forgets queues that are neither stored nor in use, such as those of misspelt names.
    fn forget_unused(&mut self) {
        // Only with this lock does another clone come into being.
        self.by_name.retain(|_, queue| queue.is_stored() || Arc::strong_count(queue) > 1);
        self.next = self.by_name.values().map(|queue| queue.number + 1).max().unwrap_or(1);
    }

    /// The queues of a recovery. `last` is the last frame that it has appended.
    fn of(contents: Contents, last: u64) -> Self {
        let next = contents.queues.keys().next_back().map_or(1, |last| last + 1);
        let queue = |(number, stored): (u32, Stored)| {
            let name = stored.name.clone();
            (stored.name, Arc::new(Queue::new(number, name, stored.state, last, true)))
        };
        Self { by_name: contents.queues.into_iter().map(queue).collect(), next }
    }
}

impl Inner {
    fn queues(&self) -> MutexGuard<'_, Queues> {
        // Nothing panics while it is locked.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves nothing but a snapshot.
    fn leave_snapshot(&self, last_segment: u64) -> std::io::Result<()> {
        let next = self.log.next();
        if self.opened == (next, true) {
            // In this order: without the first, the second would be missed.
            match self.disk.remove(&names::begun(last_segment)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            self.disk.sync_directory()?;
            return self.disk.remove(&names::segment(last_segment));
        }
        let queues = self.queues();
        let stored: Vec<_> = queues.by_name.values().filter(|queue| queue.is_stored()).collect();
        let states: Vec<_> = stored.iter().map(|queue| queue.lock()).collect();
        let all = stored
            .iter()
            .zip(&states)
            .map(|(queue, state)| (queue.number, &queue.name, state.state()));
        let number = last_segment + 1;
        let written = snapshot::write(&self.disk, number, true, self.clock.latest(), next, all);
        if written.is_err() {
            // The log has everything.
            let _ = self.disk.remove(&names::temporary(number));
        }
        written?;
        remove_obsolete(&**self.disk);
        Ok(())
    }

    fn close(&self) -> Result<(), Error> {
        // One call closes it. Others wait.
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(running) = writer.take() else { return Ok(()) };
        #[cfg(unix)]
        drop(self.endpoint.lock().unwrap_or_else(PoisonError::into_inner).take());
        {
            // No operation may be between its effect and its record.
            let queues = self.queues();
            let _states: Vec<_> = queues.by_name.values().map(|queue| queue.lock()).collect();
            self.log.close();
        }
        let last_segment = running.join().ok();
        self.checkpoints.join();
        let closed = match last_segment {
            Some(last_segment) if !self.log.has_failed() => {
                self.leave_snapshot(last_segment).map_err(|error| {
                    tracing::warn!(%error, "no snapshot was left; the next start reads the log");
                    let is_full = is_full(&error);
                    let kind = if is_full { ErrorKind::DiskFull } else { ErrorKind::DiskFailed };
                    Error::with_detail(kind, format!("no snapshot was left: {error}"))
                })
            }
            _ => Err(Error::with_detail(ErrorKind::DiskFailed, "the disk had failed before")),
        };
        self.disk.unlock();
        closed
    }
}

#[cfg(test)]
impl Directory {
    /// Waits until no checkpoint is running.
    pub(crate) fn finish_checkpoint(&self) {
        self.0.checkpoints.join();
    }
}

/// Closes the directory: waits for writes under way, and leaves a snapshot only.
impl Drop for Inner {
    fn drop(&mut self) {
        // It has logged why, and the log has everything.
        let _ = self.close();
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Directory").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Minimum size of a segment with which a directory on a full disk is opened, in bytes. The space
/// that the last segment then releases is added.
const LEAST: u64 = 64 << 10;
