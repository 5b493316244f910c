//! Checkpoints: snapshots made from the files while the queues run.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use crate::OpenError;
use crate::disk::{Disk, Volume};
use crate::log::Log;
use crate::names;
use crate::replay::{Files, sealed};
use crate::snapshot;

/// Decides when the next snapshot is made, and makes it in a separate thread.
pub(crate) struct Checkpoints {
    disk: Arc<Volume>,
    /// Knows whether a checkpoint is running, because callers wait for its room.
    log: Arc<Log>,
    /// A checkpoint pays from this many bytes of log on.
    least: u64,
    state: Mutex<State>,
}

struct State {
    /// The number of the latest snapshot; 0 if there is none.
    snapshot: u64,
    /// The number of the current segment.
    current: u64,
    /// The snapshot's size in bytes.
    size: u64,
    /// The bytes of the frames that are not in it.
    logged: u64,
    /// Those of them that are in segments before the current one.
    sealed: u64,
    /// The segments of earlier processes that are not in it.
    segments: u64,
    /// The thread of the latest checkpoint.
    thread: Option<JoinHandle<()>>,
    finished: Option<SystemTime>,
    /// When one last failed, for want of room or something else that passes.
    refused: Option<Instant>,
}

impl Checkpoints {
    pub(crate) fn new(
        disk: Arc<Volume>,
        log: Arc<Log>,
        least: u64,
        files: &Files,
        current: u64,
        size: u64,
        logged: u64,
    ) -> Self {
        let state = State {
            snapshot: files.snapshot,
            current,
            size,
            logged,
            sealed: logged,
            segments: u64::try_from(files.segments.len()).unwrap_or(u64::MAX),
            thread: None,
            finished: None,
            refused: None,
        };
        Self { disk, log, least, state: Mutex::new(state) }
    }

    /// Counts bytes of the log.
    pub(crate) fn logged(&self, bytes: u64) {
        self.lock().logged += bytes;
    }

    /// Notes the number of the current segment.
    pub(crate) fn rotated(&self, current: u64) {
        let mut state = self.lock();
        (state.current, state.sealed) = (current, state.logged);
    }

    /// Returns an upper bound for the size of the next snapshot in bytes.
    pub(crate) fn next_size(&self) -> u64 {
        let state = self.lock();
        next_size(state.size, state.logged)
    }

    /// Whether a checkpoint of the current segment, of this length, would make room on a full disk.
    pub(crate) fn would_help(&self, written: u64) -> bool {
        !self.is_running() && !self.lock().failed_lately() && written >= self.least / 8
    }

    /// Starts a checkpoint of the segments before `current`, if one is due.
    pub(crate) fn start_if_due(self: &Arc<Self>, current: u64, full: bool) {
        let mut state = self.lock();
        if self.is_running() || state.failed_lately() {
            return;
        }
        let from = state.snapshot;
        let has_sealed = current > from.max(1);
        let is_large = state.logged >= self.least.max(state.size) || state.segments > MAX_SEGMENTS;
        if !has_sealed || !(is_large || full && state.logged > self.least / 8) {
            return;
        }
        let (sealed, running) = (state.sealed, self.begin());
        let run = move || running.0.run(from, current, sealed);
        match thread::Builder::new().name("delayline-checkpoint".to_owned()).spawn(run) {
            Ok(thread) => state.thread = Some(thread),
            Err(error) => tracing::warn!(%error, "the checkpoint thread could not be started"),
        }
    }

    fn begin(self: &Arc<Self>) -> Running {
        self.log.making_room(true);
        Running(Arc::clone(self))
    }

    /// Returns whether one is being made. Its thread may end later.
    fn is_running(&self) -> bool {
        self.log.is_making_room()
    }

    fn run(&self, from: u64, to: u64, sealed: u64) {
        match self.make(from, to) {
            Ok(size) => {
                let mut state = self.lock();
                (state.snapshot, state.size, state.segments) = (to, size, 0);
                state.logged = state.logged.saturating_sub(sealed);
                state.sealed = state.sealed.saturating_sub(sealed);
                (state.finished, state.refused) = (Some(SystemTime::now()), None);
            }
            // It is made of other files than the log, and the next attempt writes another file.
            Err(error) if error.is_passing() => {
                tracing::warn!(%error, "a checkpoint was not made; the next attempt follows");
                let _ = self.disk.remove(&names::temporary(to));
                self.lock().refused = Some(Instant::now());
            }
            Err(error) => self.log.fail(&format!("a checkpoint failed: {error}")),
        }
    }

    fn make(&self, from: u64, to: u64) -> Result<u64, OpenError> {
        let contents = sealed(&**self.disk, from, to)?;
        let queues = contents.queues.iter().map(|(number, it)| (*number, &it.name, &it.state));
        let size =
            snapshot::write(&self.disk, to, false, contents.clock, contents.next, queues).map_err(
                |source| OpenError::Io { path: names::snapshot(to).into(), what: "write", source },
            )?;
        remove_obsolete(&**self.disk);
        Ok(size)
    }

    /// Waits until no checkpoint is running.
    pub(crate) fn join(&self) {
        let thread = self.lock().thread.take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("a checkpoint has panicked");
        }
    }

    /// Returns the files other than the current segment.
    pub(crate) fn latest(&self) -> Latest {
        let state = self.lock();
        Latest {
            snapshot_bytes: state.size,
            segments: state.current + 1 - state.snapshot.max(1),
            log_bytes: state.logged,
            finished: state.finished,
            is_running: self.is_running(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is locked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The latest snapshot, and the segments after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Latest {
    /// The size of the snapshot in bytes.
    pub(crate) snapshot_bytes: u64,
    /// The segments that are not in it, the current one included.
    pub(crate) segments: u64,
    /// The bytes of the frames that are not in it.
    pub(crate) log_bytes: u64,
    /// When this process finished it.
    pub(crate) finished: Option<SystemTime>,
    /// Whether the next one is being made.
    pub(crate) is_running: bool,
}

/// Returns an upper bound for the size of the next snapshot in bytes: a message takes at most three
/// times its bytes in the log.
pub(crate) const fn next_size(latest: u64, logged: u64) -> u64 {
    latest.saturating_add(logged.saturating_mul(3)).saturating_add(OVERHEAD)
}

/// A checkpoint, until it is dropped.
struct Running(Arc<Checkpoints>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.log.making_room(false);
    }
}

impl State {
    fn failed_lately(&self) -> bool {
        self.refused.is_some_and(|since| since.elapsed() < RETRY)
    }
}

/// Removes files that no recovery reads. What cannot be removed is removed the next time.
pub(crate) fn remove_obsolete(disk: &dyn Disk) {
    let removed = Files::find(disk)
        .and_then(|files| files.obsolete.iter().try_for_each(|name| disk.remove(name)));
    report(removed);
}

fn report(removed: io::Result<()>) {
    if let Err(error) = removed {
        tracing::debug!(%error, "an old file of the log was not removed");
    }
}

/// Room for what queues keep besides messages, in bytes.
const OVERHEAD: u64 = 1 << 20;

/// More segments than these are worth a checkpoint, however small they are: each start adds one.
const MAX_SEGMENTS: u64 = 16;

/// How long it waits after a checkpoint that was not made.
const RETRY: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::simulated::SimulatedDisk;

    /// Otherwise, on a full disk, a call that drains a queue is refused although the next
    /// checkpoint would make room for it.
    #[test]
    fn the_next_checkpoint_may_begin_before_the_thread_of_the_last_one_has_ended() {
        let disk = Arc::new(Volume::new(SimulatedDisk::default()));
        let files = Files::find(&**disk).unwrap();
        let log = Arc::new(Log::new(1, 0, 0, 0));
        let checkpoints = Checkpoints::new(disk, Arc::clone(&log), 800, &files, 1, 0, 0);
        let checkpoints = Arc::new(checkpoints);
        let running = checkpoints.begin();
        assert!(!checkpoints.would_help(100) && checkpoints.latest().is_running);
        drop(running);
        assert!(checkpoints.would_help(100) && !checkpoints.latest().is_running);
        assert_eq!(log.checkpoints(), 1);
    }
}
