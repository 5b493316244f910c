//! The end of the log: pending writes, their waiting callers, and whether there is room.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use delayline_core::{Error, ErrorKind};
use tokio::sync::{Notify, watch};

use crate::Syncs;
use crate::segment::FRAME;

/// What the callers and the writer share.
#[derive(Debug)]
pub(crate) struct Log {
    tail: Mutex<Tail>,
    /// Wakes the writer.
    work: Condvar,
    /// Wakes the callers whose frames are durable.
    callers: Batches,
    /// Wakes the claims whose frames are written.
    claims: Batches,
    /// Changes whenever there may be more room.
    rooms: watch::Sender<u64>,
    /// Room that messages may not take.
    reserve: u64,
}

/// Wakes callers of batches with an even number, and of those with an odd one. So a sync wakes no
/// caller of the batch after it.
#[derive(Debug, Default)]
struct Batches([Notify; 2]);

/// The frames that a reply waits for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Until {
    /// The last frame that must be durable.
    pub(crate) durable: u64,
    /// The last frame that must be written, by a claim that a crash may undo.
    pub(crate) written: u64,
}

#[derive(Debug)]
struct Tail {
    /// Bodies of frames to be written, in order.
    pending: Vec<Vec<u8>>,
    /// The sequence number of the next frame.
    next: u64,
    /// The sequence number of the first frame that the writer has not taken.
    untaken: u64,
    /// The sequence number of the last frame that is durable.
    durable: u64,
    /// The sequence number of the last frame that is durable, or at least written in a segment
    /// whose claims a recovery takes into account.
    written: u64,
    /// The number of batches that the writer has taken.
    batches: usize,
    /// Room of the current segment that nothing has taken yet.
    left: u64,
    /// What the operations that have room and are not written need.
    promised: u64,
    /// The room that an operation waits for.
    wanted: u64,
    /// Whether one of the waiting operations drains a queue.
    draining: bool,
    /// When the disk last refused more room.
    full: Option<Instant>,
    /// When it refused that even to an operation that drains a queue.
    used_up: Option<Instant>,
    /// Whether a checkpoint is running, which may make room.
    making_room: bool,
    /// The number of checkpoints that have ended.
    checkpoints: u64,
    closing: bool,
    /// Why nothing is written any more.
    failure: Option<String>,
    syncs: Syncs,
}

/// The room and the syncs of a log.
#[derive(Clone, Debug)]
pub(crate) struct LogStatus {
    pub(crate) room: u64,
    pub(crate) reserve: u64,
    pub(crate) full: bool,
    pub(crate) failure: Option<String>,
    pub(crate) syncs: Syncs,
}

/// Room for one operation. Gives it back if nothing is written.
#[derive(Debug)]
pub(crate) struct Room<'a> {
    log: &'a Log,
    bytes: u64,
}

/// What the writer is to do.
#[derive(Debug, Default)]
pub(crate) struct Work {
    pub(crate) bodies: Vec<Vec<u8>>,
    /// How much room is wanted, if any is.
    pub(crate) grow: Option<Grow>,
    pub(crate) closing: bool,
}

/// More room for the current segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grow {
    /// The least that an operation needs, in bytes.
    pub(crate) least: u64,
    /// Whether that operation drains a queue and finds the reserve used up.
    pub(crate) draining: bool,
}

impl Log {
    /// A log whose next frame has the number `next`, and whose segment has `left` bytes of room
    /// after the `promised` ones.
    pub(crate) fn new(next: u64, left: u64, promised: u64, reserve: u64) -> Self {
        Self {
            tail: Mutex::new(Tail {
                pending: Vec::new(),
                next,
                untaken: next,
                durable: next - 1,
                written: next - 1,
                batches: 0,
                left,
                promised,
                wanted: 0,
                draining: false,
                full: None,
                used_up: None,
                making_room: false,
                checkpoints: 0,
                closing: false,
                failure: None,
                syncs: Syncs::default(),
            }),
            work: Condvar::new(),
            callers: Batches::default(),
            claims: Batches::default(),
            rooms: watch::Sender::new(0),
            reserve,
        }
    }

    /// Takes room for an operation with a body of `bytes`. `grows` says that it makes the queue
    /// larger: then it may not touch the reserve.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DiskFull`] if the disk has no room, [`ErrorKind::DiskFailed`] if it has failed.
    pub(crate) async fn room(&self, bytes: usize, grows: bool) -> Result<Room<'_>, Error> {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX).saturating_add(FRAME);
        let kept = if grows { self.reserve } else { 0 };
        loop {
            let mut rooms = {
                let mut tail = self.lock();
                tail.check()?;
                if tail.left >= bytes.saturating_add(kept) {
                    tail.left -= bytes;
                    tail.promised += bytes;
                    return Ok(Room { log: self, bytes });
                }
                let refused = if grows { tail.full } else { tail.used_up };
                let is_full = refused.is_some_and(|since| since.elapsed() < RETRY_FULL);
                if is_full && (grows || !tail.making_room) {
                    let detail = if grows {
                        "messages are accepted again when workers have drained the queues, or the \
                         disk has more space"
                    } else {
                        "even the reserved space is used up: the disk needs more free space"
                    };
                    return Err(Error::with_detail(ErrorKind::DiskFull, detail));
                }
                if !is_full {
                    tail.wanted = tail.wanted.max(bytes);
                    tail.draining |= !grows;
                    self.work.notify_one();
                }
                // Under the lock, so that no change is missed.
                self.rooms.subscribe()
            };
            // The sender is in `self`, so this does not fail.
            let _ = rooms.changed().await;
        }
    }

    /// Appends bodies, which one sync makes durable. Call it while no operation on the same queue
    /// can happen in between. Returns the last sequence number.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DiskFailed`]
    pub(crate) fn append(&self, bodies: impl IntoIterator<Item = Vec<u8>>) -> Result<u64, Error> {
        let mut tail = self.lock();
        tail.check()?;
        // The writer knows of the first body, and takes all that follow it.
        if tail.pending.is_empty() {
            self.work.notify_one();
        }
        for body in bodies {
            tail.next += 1;
            tail.pending.push(body);
        }
        Ok(tail.next - 1)
    }

    /// Waits until the frame `sequence` is durable.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DiskFailed`]
    pub(crate) async fn durable(&self, sequence: u64) -> Result<(), Error> {
        self.reached(Until { durable: sequence, written: sequence }).await
    }

    /// Waits for frames.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DiskFailed`]
    pub(crate) async fn reached(&self, until: Until) -> Result<(), Error> {
        loop {
            // Registered under the lock, so that no sync or write is missed before the first poll.
            let reached = {
                let tail = self.lock();
                let (batches, sequence) = if tail.durable < until.durable {
                    (&self.callers, until.durable)
                } else if tail.written < until.written {
                    (&self.claims, until.written)
                } else {
                    return Ok(());
                };
                tail.check_disk()?;
                batches.of(tail.batch_of(sequence)).notified()
            };
            reached.await;
        }
    }

    /// # Errors
    ///
    /// [`ErrorKind::DiskFailed`] if nothing is written any more, and [`ErrorKind::Storage`] if the
    /// directory was closed.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.lock().check()
    }

    /// Waits for work, at most for `timeout`.
    pub(crate) fn work(&self, timeout: Duration) -> Work {
        let idle = |tail: &mut Tail| tail.pending.is_empty() && tail.wanted == 0 && !tail.closing;
        let waited = self.work.wait_timeout_while(self.lock(), timeout, idle);
        let (mut tail, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let bodies = std::mem::take(&mut tail.pending);
        if !bodies.is_empty() {
            tail.untaken = tail.next;
            tail.batches = tail.batches.wrapping_add(1);
        }
        // Ahead of the callers, so that they need not wait.
        let is_low = tail.left < 2 * self.reserve && tail.full.is_none();
        let grow = Grow { least: tail.wanted, draining: tail.draining };
        let grow = (tail.wanted > 0 || is_low).then_some(grow);
        Work { bodies, grow, closing: tail.closing && tail.pending.is_empty() }
    }

    /// Reports that a batch is written, up to the frame before `next`: a crash of the process keeps
    /// it. Call it only if a recovery takes the claims of the segment into account.
    pub(crate) fn written(&self, next: u64) {
        let mut tail = self.lock();
        tail.written = next - 1;
        let batch = tail.batch_of(tail.written);
        drop(tail);
        self.claims.of(batch).notify_waiters();
    }

    /// Reports that a batch is durable, up to the frame before `next`.
    pub(crate) fn made_durable(&self, next: u64, bytes: u64) {
        let mut tail = self.lock();
        tail.promised = tail.promised.saturating_sub(bytes);
        (tail.durable, tail.written) = (next - 1, next - 1);
        let batch = tail.batch_of(tail.durable);
        drop(tail);
        self.callers.of(batch).notify_waiters();
        self.claims.of(batch).notify_waiters();
    }

    /// Reports that the segment has grown by `bytes`.
    pub(crate) fn grown(&self, bytes: u64) {
        let mut tail = self.lock();
        tail.left += bytes;
        (tail.wanted, tail.draining) = (0, false);
        (tail.full, tail.used_up) = (None, None);
        drop(tail);
        self.rooms.send_modify(|rooms| *rooms += 1);
    }

    /// Reports that the disk had no more room when this number of checkpoints had ended.
    pub(crate) fn full(&self, checkpoints: u64) {
        let mut tail = self.lock();
        if tail.checkpoints == checkpoints {
            tail.full = Some(Instant::now());
            if tail.draining {
                tail.used_up = tail.full;
            }
        }
        (tail.wanted, tail.draining) = (0, false);
        drop(tail);
        self.rooms.send_modify(|rooms| *rooms += 1);
    }

    /// Replaces the segment by one with `room` bytes behind its header: at least what is left of
    /// the current one.
    pub(crate) fn replace_room(&self, room: u64) {
        let mut tail = self.lock();
        tail.left = room.saturating_sub(tail.promised);
    }

    /// Reports that a checkpoint begins or ends. Operations that drain a queue wait for it if the
    /// reserve is used up. As they ask again, the next checkpoint may begin.
    pub(crate) fn making_room(&self, making_room: bool) {
        let mut tail = self.lock();
        tail.making_room = making_room;
        if !making_room {
            tail.checkpoints += 1;
            (tail.full, tail.used_up) = (None, None);
        }
        drop(tail);
        self.rooms.send_modify(|rooms| *rooms += 1);
    }

    /// Returns whether a checkpoint is running.
    pub(crate) fn is_making_room(&self) -> bool {
        self.lock().making_room
    }

    /// Counts a sync.
    pub(crate) fn synced(&self, took: Duration) {
        self.lock().syncs.add(took);
    }

    pub(crate) fn status(&self) -> LogStatus {
        let tail = self.lock();
        LogStatus {
            room: tail.left,
            reserve: self.reserve,
            full: tail.full.is_some(),
            failure: tail.failure.clone(),
            syncs: tail.syncs.clone(),
        }
    }

    /// Returns the number of checkpoints that have ended.
    pub(crate) fn checkpoints(&self) -> u64 {
        self.lock().checkpoints
    }

    /// Returns whether the disk had no room lately.
    pub(crate) fn is_full(&self) -> bool {
        self.lock().full.is_some()
    }

    /// Fails all further calls, and ends the writer once everything is written.
    pub(crate) fn close(&self) {
        self.lock().closing = true;
        self.work.notify_one();
        self.rooms.send_modify(|rooms| *rooms += 1);
    }

    /// Returns whether the disk has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.lock().failure.is_some()
    }

    /// Fails all calls, permanently.
    pub(crate) fn fail(&self, reason: &str) {
        let mut tail = self.lock();
        if tail.failure.is_none() {
            tracing::error!(reason, "the log cannot be written; open the queues again");
            tail.failure = Some(reason.to_owned());
        }
        drop(tail);
        self.rooms.send_modify(|rooms| *rooms += 1);
        for batches in [&self.callers, &self.claims] {
            batches.0.iter().for_each(Notify::notify_waiters);
        }
    }

    /// Returns the sequence number of the next frame.
    pub(crate) fn next(&self) -> u64 {
        self.lock().next
    }

    fn lock(&self) -> MutexGuard<'_, Tail> {
        // Nothing panics while it is locked.
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Batches {
    const fn of(&self, batch: usize) -> &Notify {
        &self.0[batch % 2]
    }
}

impl Tail {
    fn check(&self) -> Result<(), Error> {
        self.check_disk()?;
        if self.closing {
            let detail = "the directory was closed: open it again";
            return Err(Error::with_detail(ErrorKind::Storage, detail));
        }
        Ok(())
    }

    fn check_disk(&self) -> Result<(), Error> {
        match &self.failure {
            None => Ok(()),
            Some(reason) => Err(Error::with_detail(ErrorKind::DiskFailed, reason.as_str())),
        }
    }

    /// The number of the batch that contains a frame, if the frame is not durable: the batch that
    /// the writer has taken, or the next batch.
    const fn batch_of(&self, sequence: u64) -> usize {
        if sequence < self.untaken { self.batches } else { self.batches.wrapping_add(1) }
    }
}

impl Room<'_> {
    /// The operation has appended `bodies` of together `bytes`. Unused room is released.
    pub(crate) fn used(mut self, bodies: u64, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX).saturating_add(bodies * FRAME);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            let mut tail = self.log.lock();
            tail.left += self.bytes;
            tail.promised = tail.promised.saturating_sub(self.bytes);
        }
    }
}

/// How long a full disk is not asked for more room.
const RETRY_FULL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    /// Otherwise, messages would take the room that drains queues on a full disk.
    #[test]
    fn only_calls_that_drain_a_queue_ask_for_the_room_kept_for_them() {
        for grows in [true, false] {
            let log = Log::new(1, 0, 0, 0);
            let mut call = pin!(log.room(100, grows));
            assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            let grow = log.work(Duration::ZERO).grow.unwrap();
            assert_eq!(grow.draining, !grows);
        }
    }
}
