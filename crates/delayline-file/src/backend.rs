//! One queue of a directory.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use delayline_core::{
    Applied, At, Backend, DestinationKey, Durability, Element, Error, ErrorKind, Held, Op,
    QueueName, State, Wakeup,
};
use tokio::sync::Notify;

use crate::clock::Clock as MachineClock;
use crate::contents::Contents;
use crate::log::Log;
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
    /// Whether a frame or the snapshot has its name.
    stored: bool,
}

impl Live {
    pub(crate) const fn state(&self) -> &State {
        &self.state
    }
}

impl Queue {
    pub(crate) fn new(number: u32, name: QueueName, mut state: State, stored: bool) -> Self {
        let revision = Contents::revision(&mut state);
        let live = Live { state, revision, last: 0, stored };
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
            let elements = live.state.take_relayed(key);
            if !elements.is_empty() {
                live.last = log.append([body])?;
                room.used(1, bytes);
            }
            (elements, live.last)
        };
        log.durable(last).await?;
        Ok(elements)
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
                live.last = log.append([body])?;
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

    /// Executes an operation. Returns the reply, whether a sleeper has to be woken, and the frame
    /// that the reply has to wait for.
    async fn execute(&self, at: At, op: &Op) -> Result<(Applied, bool, u64), Error> {
        let log = &self.log;
        // The name of a new queue precedes its first operation.
        let name = record::queue(self.queue.number, &self.queue.name);
        let mut prepared = None;
        if !op.is_read_only() {
            let body = record::encode_op(op)?;
            let frame = usize::try_from(crate::segment::FRAME).unwrap_or(usize::MAX);
            let room = log.room(body.len() + name.len() + frame, grows(op)).await?;
            prepared = Some((body, room));
        }
        let mut live = self.queue.lock();
        log.check()?;
        // Read under the lock, so that the instants of operations never go back.
        let ((now, micros), clock) = match at {
            At::Server => (self.clock.now()?, Clock::Machine),
            At::Fixed(now) => ((now, 0), Clock::Test),
        };
        let (applied, hint) = live.state.apply_and_hint(now, op);
        if applied.revision != live.revision
            && let Some((mut body, room)) = prepared
        {
            live.revision = applied.revision;
            record::stamp(&mut body, self.queue.number, now, clock, applied.revision);
            let name = (!live.stored).then_some(name);
            let bytes = body.len() + name.as_ref().map_or(0, Vec::len);
            let bodies = 1 + u64::from(name.is_some());
            live.last = log.append(name.into_iter().chain([body]))?;
            live.stored = true;
            room.used(bodies, bytes);
        }
        Ok((applied.with_micros(micros), hint, live.last))
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

/// Every reply, even of a read, waits until its content is on disk.
///
/// Fails with [`ErrorKind::DiskFull`] if the disk is full: enqueues at once, and operations that
/// drain a queue only when the reserve is used up. Fails with [`ErrorKind::DiskFailed`] once the
/// disk has failed, until the directory is opened again. Fails with [`ErrorKind::Busy`] while the
/// machine's clock is more than an hour behind.
#[async_trait]
impl Backend for FileBackend {
    async fn apply(&self, at: At, op: &Op) -> Result<Applied, Error> {
        op.validate()?;
        let (applied, hint, last) = self.execute(at, op).await?;
        if hint {
            self.queue.bell.notify_one();
        }
        self.log.durable(last).await?;
        Ok(applied)
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
        self.apply(at, op).await
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
