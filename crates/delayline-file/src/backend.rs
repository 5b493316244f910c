//! One queue of a directory.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use delayline_core::{
    Applied, At, Backend, DestinationKey, Durability, Element, Error, ErrorKind, Held, Op,
    QueueName, Reply, State, Wakeup,
};
use tokio::sync::Notify;

use crate::clock::Clock as MachineClock;
use crate::contents::Contents;
use crate::log::{Log, Until};
use crate::record::{self, Clock};

/// A queue that is stored in a [`Directory`](crate::Directory). Share it between tasks with an
/// [`Arc`].
pub struct FileBackend {
    log: Arc<Log>,
    clock: Arc<MachineClock>,
    queue: Arc<Queue>,
    /// Keeps the directory open.
    _directory: Arc<dyn Any + Send + Sync>,
}

/// A queue.
pub(crate) struct Queue {
    pub(crate) number: u32,
    pub(crate) name: QueueName,
    state: Mutex<Live>,
    bell: Notify,
}

/// The state of a queue, on disk or about to be written.
pub(crate) struct Live {
    state: State,
    revision: u64,
    /// The sequence number of the frame that has changed it last; 0 for one before this process.
    last: u64,
    /// Like `last`, but for claims that may be lost.
    last_kept: u64,
    /// Whether a frame or the snapshot has its name.
    stored: bool,
}

impl Live {
    pub(crate) const fn state(&self) -> &State {
        &self.state
    }

    /// Notes the frame of a change that may not be lost.
    const fn changed(&mut self, frame: u64) {
        (self.last, self.last_kept) = (frame, frame);
    }
}

impl Queue {
    /// A queue that the frame `last` has changed last.
    pub(crate) fn new(
        number: u32,
        name: QueueName,
        mut state: State,
        last: u64,
        stored: bool,
    ) -> Self {
        let revision = Contents::revision(&mut state);
        let live = Live { state, revision, last, last_kept: last, stored };
        Self { number, name, state: Mutex::new(live), bell: Notify::new() }
    }

    pub(crate) fn is_stored(&self) -> bool {
        self.lock().stored
    }

    /// Ignores poisoning: `apply` does not panic, so no panic can leave the state half changed, and
    /// the queue continues.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Live> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FileBackend {
    pub(crate) fn new(
        directory: Arc<dyn Any + Send + Sync>,
        log: &Arc<Log>,
        clock: &Arc<MachineClock>,
        queue: &Arc<Queue>,
    ) -> Self {
        let (log, clock, queue) = (Arc::clone(log), Arc::clone(clock), Arc::clone(queue));
        Self { log, clock, queue, _directory: directory }
    }

    /// Takes all elements out of a destination of relays, as its consumers would, and returns them
    /// once that is on disk. Elements stay in the directory until a program takes them.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the elements may have been taken, and are gone.
    ///
    /// # Errors
    ///
    /// Like [`Backend::apply`].
    pub async fn take_relayed(&self, key: &DestinationKey) -> Result<Vec<Element>, Error> {
        let log = &self.log;
        let body = record::take(self.queue.number, key);
        let bytes = body.len();
        let room = log.room(bytes, false).await?;
        let (elements, last) = {
            let mut live = self.queue.lock();
            // After a failure, they stay.
            log.check()?;
            let elements = live.state.take_relayed(key);
            if !elements.is_empty() {
                live.changed(log.append([body])?);
                room.used(1, bytes);
            }
            (elements, live.last)
        };
        log.durable(last).await?;
        Ok(elements)
    }

    /// Returns whether the queue is stored, and its contents.
    pub(crate) fn held(&self) -> Result<(bool, Held), Error> {
        let live = self.queue.lock();
        self.log.check()?;
        Ok((live.stored, live.state.held(self.clock.now()?.0)))
    }

    /// Removes the queue if it is empty. Returns whether it was stored, and its contents.
    pub(crate) async fn remove_if_empty(&self) -> Result<(bool, Held), Error> {
        let log = &self.log;
        let body = record::removed(self.queue.number);
        let bytes = body.len();
        let room = log.room(bytes, false).await?;
        let (existed, held, last) = {
            let mut live = self.queue.lock();
            log.check()?;
            let held = live.state.held(self.clock.now()?.0);
            let existed = live.stored;
            if existed && held.is_empty() {
                live.changed(log.append([body])?);
                room.used(1, bytes);
                // The next message stores it again.
                (live.state, live.stored) = (State::new(), false);
                live.revision = Contents::revision(&mut live.state);
            }
            (existed, held, live.last)
        };
        log.durable(last).await?;
        Ok((existed, held))
    }

    /// Executes an operation. Returns the reply, whether a sleeper has to be woken, and the frames
    /// that the reply has to wait for.
    ///
    /// With [`Durability::None`], a claim that may be lost does not wait until it is durable, nor
    /// for such claims before it.
    async fn execute(
        &self,
        at: At,
        op: &Op,
        durability: Durability,
    ) -> Result<(Applied, bool, Until), Error> {
        let log = &self.log;
        // The name of a new queue precedes its first operation.
        let name = record::queue(self.queue.number, &self.queue.name);
        let mut prepared = None;
        if !op.is_read_only() {
            let body = record::encode_op(op)?;
            let frame = usize::try_from(crate::segment::FRAME).unwrap_or(usize::MAX);
            let room = log.room(body.len() + name.len() + frame, grows(op)).await?;
            prepared = Some((body, room));
        } else {
            // A directory that is being closed holds its queues locked.
            log.check()?;
        }
        let mut live = self.queue.lock();
        log.check()?;
        // Read under the lock, so that the instants of operations never go back.
        let ((now, micros), clock) = match at {
            At::Server => (self.clock.now()?, Clock::Machine),
            At::Fixed(now) => ((now, 0), Clock::Test),
        };
        let may_lose = durability == Durability::None && live.state.may_lose(now, op);
        let (applied, hint) = live.state.apply_and_hint(now, op);
        // A dead letter is reported once.
        let may_lose = may_lose
            && live.stored
            && matches!(&applied.reply, Reply::Claim(claimed) if claimed.deaths.is_empty());
        if applied.revision != live.revision
            && let Some((mut body, room)) = prepared
        {
            live.revision = applied.revision;
            record::stamp(&mut body, self.queue.number, now, clock, applied.revision);
            if may_lose {
                record::mark_may_be_lost(&mut body);
            }
            let name = (!live.stored).then_some(name);
            let bytes = body.len() + name.as_ref().map_or(0, Vec::len);
            let bodies = 1 + u64::from(name.is_some());
            let frame = log.append(name.into_iter().chain([body]))?;
            if may_lose {
                live.last = frame;
            } else {
                live.changed(frame);
            }
            live.stored = true;
            room.used(bodies, bytes);
        }
        let durable = if may_lose { live.last_kept } else { live.last };
        Ok((applied.with_micros(micros), hint, Until { durable, written: live.last }))
    }

    async fn apply_with(&self, at: At, op: &Op, durability: Durability) -> Result<Applied, Error> {
        op.validate()?;
        let (applied, hint, until) = self.execute(at, op, durability).await?;
        if hint {
            self.queue.bell.notify_one();
        }
        self.log.reached(until).await?;
        Ok(applied)
    }
}

/// Whether an operation makes a queue larger, so that it may not use the reserve of a full disk.
const fn grows(op: &Op) -> bool {
    // A hand-off has messages or results.
    matches!(op, Op::Enqueue(_) | Op::HandOff(_))
}

/// Omits the messages.
impl fmt::Debug for FileBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileBackend").field("queue", &self.queue.name).finish_non_exhaustive()
    }
}

/// Every reply, even of a read, waits until its content is on disk. There is one exception: with
/// [`Durability::None`], as workers request it, a claim is only written before its reply, not
/// synced, so a power failure can undo it. Then its messages are delivered again, with a higher
/// epoch. A claim is always synced if it reclaims a lease or reports a death, or if the queue has
/// limits.
///
/// Fails with [`ErrorKind::DiskFull`] if the disk is full: enqueues at once, and operations that
/// drain a queue only when the reserve is used up. Fails with [`ErrorKind::DiskFailed`] once the
/// disk has failed, until the directory is opened again. Fails with [`ErrorKind::Busy`] while the
/// machine's clock is more than an hour behind.
#[async_trait]
impl Backend for FileBackend {
    async fn apply(&self, at: At, op: &Op) -> Result<Applied, Error> {
        self.apply_with(at, op, Durability::Disk).await
    }

    fn queue_name(&self) -> Option<&QueueName> {
        Some(&self.queue.name)
    }

    async fn apply_durably(
        &self,
        at: At,
        op: &Op,
        durability: Durability,
    ) -> Result<Applied, Error> {
        check_durability(durability)?;
        self.apply_with(at, op, durability).await
    }
}

/// # Errors
///
/// [`ErrorKind::Unsupported`] for replicas.
pub(crate) fn check_durability(durability: Durability) -> Result<(), Error> {
    if let Durability::None | Durability::Disk = durability {
        return Ok(());
    }
    durability.validate()?;
    let detail = format!("{durability}: a directory is on one disk, and always synced");
    Err(Error::with_detail(ErrorKind::Unsupported("durability"), detail))
}

#[async_trait]
impl Wakeup for FileBackend {
    async fn wait(&self, timeout: Duration) -> Result<bool, Error> {
        Ok(tokio::time::timeout(timeout, self.queue.bell.notified()).await.is_ok())
    }

    async fn ring(&self) -> Result<(), Error> {
        self.queue.bell.notify_one();
        Ok(())
    }
}
