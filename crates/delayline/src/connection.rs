//! One connection, many queues.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use delayline_core::{QueueBackend, QueueName};
use delayline_redis_protocol::{Inspection, Removal, Upgrade, conversions};

use crate::after::siblings::Siblings;
use crate::cancels::Cancels;
use crate::codec::Json;
use crate::directory_status::DirectoryStatus;
use crate::registry::WorkerRegistry;
use crate::shards::Opened;
use crate::store::{FoundQueues, FoundWorkers, Store};
use crate::{Error, Queue, shards};

/// A connection to a server, to a directory, or to queues in this process. Opens queues by name.
/// Created by [`connect`](crate::connect) or [`Connect::connect`](crate::Connect::connect).
///
/// All its queues share one connection for calls. Idle workers wait on another one for each 64
/// queues, because a blocking wait would hold up all other calls on its connection. Clones share
/// all of them. They are closed when all clones and queues are dropped.
///
/// A `memory:` connection creates a queue when its name is first used, and keeps it until all
/// clones of the connection are dropped: the same name always opens the same queue. Its messages
/// are gone when the process ends.
///
/// A `file:` connection keeps its directory locked until it is [closed](Self::close), or all
/// clones, queues and workers are dropped. The last drop blocks its thread until a snapshot is
/// written, which takes seconds with a million messages.
///
/// ```
/// # use delayline::Queue;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), delayline::Error> {
/// // Or "redis://127.0.0.1:6379".
/// let connection = delayline::connect("memory:").await?;
/// let orders: Queue<u64> = connection.queue("orders").await?;
/// let texts: Queue<String> = connection.queue("texts").await?;
///
/// orders.send(&1234).await?;
/// assert_eq!(texts.stats().await?.ready, 0);
/// # Ok(())
/// # }
/// ```
///
/// Its `Debug` output shows the address, but neither user name nor password.
#[derive(Clone)]
pub struct Connection(Arc<dyn Store>, Cancels, WorkerRegistry, Siblings);

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connection").field(&self.0).finish()
    }
}

impl Connection {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        let registry = WorkerRegistry::on(store.transport());
        Self::with(store, registry)
    }

    /// A connection whose workers enter this registry.
    pub(crate) fn with(store: Arc<dyn Store>, registry: WorkerRegistry) -> Self {
        let siblings = Siblings::of(Arc::clone(&store));
        Self(store, Cancels::default(), registry, siblings)
    }

    /// Checks that the server is suitable, and opens a queue of JSON payloads. [`Queue::codec`]
    /// changes the codec, and [`Opening::shards`] spreads the queue over several places.
    ///
    /// A name has 1 to 128 of the characters `A-Z a-z 0-9 _ . : / -`. `#` is reserved for shards.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect: opening does not change the queue on the server. With
    /// [`Opening::shards`], the number may have been stored.
    ///
    /// # Errors
    ///
    /// If the name is malformed, or the server cannot be reached, is a read-only replica, evicts
    /// keys ([`ErrorKind::Evicting`](crate::ErrorKind::Evicting)), or holds the queue in a newer
    /// format.
    pub fn queue<T: ?Sized>(&self, name: &str) -> Opening<Queue<T>> {
        self.opening(name, |connection, opened| {
            let Self(_, cancels, registry, siblings) = connection;
            Queue::sharing(opened, Json, cancels, registry, siblings)
        })
    }

    /// Opens a queue as a backend, which executes any [`Op`](crate::backend::Op).
    ///
    /// # Cancel safety
    ///
    /// Like [`queue`](Self::queue).
    ///
    /// # Errors
    ///
    /// Like [`queue`](Self::queue).
    pub fn backend(&self, name: &str) -> Opening<Arc<dyn QueueBackend>> {
        self.opening(name, |_, opened| opened.backend)
    }

    /// A queue on this backend that shares what the queues of the connection share.
    #[cfg(feature = "testing")]
    pub(crate) fn queue_on<T: ?Sized>(&self, backend: Arc<dyn QueueBackend>) -> Queue<T> {
        let Self(_, cancels, registry, siblings) = self.clone();
        Queue::sharing(Opened::plain(backend), Json, cancels, registry, siblings)
    }

    fn opening<O>(&self, name: &str, made: fn(Self, Opened) -> O) -> Opening<O> {
        Opening {
            connection: self.clone(),
            name: name.to_owned(),
            shards: None,
            strays: false,
            made,
            running: None,
        }
    }

    /// Returns the names of all queues on the server, on all primaries of a cluster, or in the
    /// directory, in order; in memory, of those that this connection has opened. Changes nothing.
    ///
    /// A queue exists on a server or in a directory once a message has been sent to it, or limits
    /// or a pause have been set before. This call reads the names of all keys with `SCAN`, 1,000 at
    /// a time, so it is meant for tools rather than for each request. A queue that is created
    /// during the call, or moves to another node of a cluster, may be missing.
    ///
    /// ```
    /// # use delayline::Queue;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), delayline::Error> {
    /// let connection = delayline::connect("memory:").await?;
    /// let orders: Queue<u64> = connection.queue("orders").await?;
    /// orders.send(&1234).await?;
    /// assert_eq!(connection.queues().await?, ["orders".parse()?]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// This call changes nothing; its future can be dropped.
    ///
    /// # Errors
    ///
    /// If one of the primaries cannot be reached, or if the user may not run
    /// `SCAN`.
    pub async fn queues(&self) -> Result<Vec<QueueName>, Error> {
        let found = self.queues_within(u64::MAX).await?;
        found.failure.map_or(Ok(found.names), Err)
    }

    /// Like [`queues`](Self::queues), but stops after about `most_keys` keys of any kind on each
    /// server. So the cost is bounded on a server with many other keys, for programs that poll the
    /// list. The result says whether it is complete. In memory and in a directory, it always is.
    ///
    /// If some primaries of a cluster fail, the result contains the queues of the others and the
    /// [`failure`](FoundQueues::failure).
    ///
    /// # Cancel safety
    ///
    /// This call changes nothing; its future can be dropped.
    ///
    /// # Errors
    ///
    /// If no primary can be reached, or if the user may not run `SCAN` on any.
    pub async fn queues_within(&self, most_keys: u64) -> Result<FoundQueues, Error> {
        let mut found = self.0.queues(most_keys).await?;
        found.names.retain(|name| !name.is_shard());
        Ok(found)
    }

    /// Returns the processes with [`Worker`](crate::Worker)s on queues of the server, or of all
    /// primaries of a cluster: where they run, since when, their queues and handlers. In memory,
    /// that is this process; in a directory, the process that has opened it. Changes nothing.
    ///
    /// Workers introduce themselves by the names of their connections, which `CLIENT LIST` shows.
    /// Those of other database numbers are left out.
    /// If the server refuses `CLIENT SETNAME` to the user of a worker, the worker is missing here,
    /// and works. [`MessageInfo::holder`](crate::message::MessageInfo::holder) says which process
    /// holds a message, also if it is missing here. A process that has died is listed until the
    /// server closes its connections.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), delayline::Error> {
    /// let connection = delayline::connect("memory:").await?;
    /// for process in connection.workers().await?.processes {
    ///     println!("{}: {} handlers since {}", process.host, process.handlers, process.since);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// This call changes nothing; its future can be dropped.
    ///
    /// # Errors
    ///
    /// If no server can be reached, or if the user may not run `CLIENT LIST` on any. If only some
    /// primaries of a cluster fail, the result has the [`failure`](FoundWorkers::failure).
    /// [Beside](crate::Connect::beside) a process that has opened the directory, if it has ended.
    pub async fn workers(&self) -> Result<FoundWorkers, Error> {
        self.0.workers(self.2.process()).await
    }

    /// Inspects the server, and the permissions of the user on the queue `name`, without opening
    /// the queue. Works even on servers that [`queue`](Self::queue) refuses. Changes nothing.
    ///
    /// # Cancel safety
    ///
    /// This call changes nothing; its future can be dropped.
    ///
    /// # Errors
    ///
    /// If the name is malformed, the server cannot be reached, or it refuses all scripts.
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) for `memory:` and `file:`.
    pub async fn inspect(&self, name: &str) -> Result<Inspection, Error> {
        let name = QueueName::new(name)?;
        let mut found = self.0.inspect(name.clone()).await?;
        // A queue that cannot be opened is inspected without its shards.
        for shard in shards::names(&*self.0, &name).await.unwrap_or_default() {
            found.denials.extend(self.0.inspect(shard).await?.denials);
        }
        Ok(found)
    }

    /// Returns the number of [shards](Opening::shards) of the queue `name`, or `None` if it has
    /// none. Changes nothing.
    ///
    /// # Cancel safety
    ///
    /// This call changes nothing; its future can be dropped.
    ///
    /// # Errors
    ///
    /// Like [`queue`](Self::queue).
    pub async fn shards_of(&self, name: &str) -> Result<Option<u32>, Error> {
        shards::number(&*self.0, &QueueName::new(name)?).await
    }

    /// Counts the live messages that are stored under the queue `name`, and that users of the queue
    /// do not see. If it has shards, these are messages without a shard: a program sent them that
    /// had opened the queue before it got its shards, and [`Opening::strays`] opens them.
    /// Otherwise, these are messages in shards whose number is lost. Changes nothing.
    ///
    /// # Cancel safety
    ///
    /// This call changes nothing; its future can be dropped.
    ///
    /// # Errors
    ///
    /// Like [`queue`](Self::queue).
    pub async fn stray_messages(&self, name: &str) -> Result<u64, Error> {
        shards::strays(&*self.0, &QueueName::new(name)?).await
    }

    /// Returns the state of the directory of a `file:` URL: its files, the free space, and the
    /// duration of syncs. Returns `None` for other connections. Changes nothing.
    ///
    /// # Cancel safety
    ///
    /// This call changes nothing; its future can be dropped.
    ///
    /// # Errors
    ///
    /// If the process that opened the directory has ended or closed it; see
    /// [`Connect::beside`](crate::Connect::beside). Connect again to retry.
    pub async fn directory_status(&self) -> Result<Option<DirectoryStatus>, Error> {
        self.0.directory_status().await
    }

    /// Closes the directory of a `file:` URL in another thread: waits until all calls in progress
    /// are on disk, and writes a snapshot. Then another process can open the directory. From then
    /// on, calls of clones, queues and workers fail with
    /// [`ErrorKind::Storage`](crate::ErrorKind::Storage), so stop workers first.
    ///
    /// Dropping the connection and everything that it has opened has the same effect, but the last
    /// drop blocks its thread. For other connections, and for those to another process that has the
    /// directory, this does nothing: dropping closes them.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the directory is still closed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DiskFailed`](crate::ErrorKind::DiskFailed) if the disk has failed, and
    /// [`ErrorKind::DiskFull`](crate::ErrorKind::DiskFull) if it has no space for the snapshot. All
    /// acknowledged calls are on disk. The directory can be opened again, which then takes longer.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), delayline::Error> {
    /// let connection = delayline::connect("memory:").await?;
    /// connection.close().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn close(&self) -> Result<(), Error> {
        self.0.close().await
    }

    /// Removes the queue `name` from the server or the directory, if it holds no messages, results
    /// or throttled ids. Otherwise it changes nothing and returns the counts. Without shards, this
    /// is one atomic step.
    ///
    /// The removal deletes counters, history, a pause and limits with an order, and the ids of
    /// recently finished messages: if one of these is sent again, it is delivered again. The next
    /// send creates the queue again. On a server, the user needs `UNLINK` on all keys of the queue.
    /// In a directory, elements that a relay has moved and no program has taken count as messages.
    ///
    /// A queue with [shards](Opening::shards) is removed shard by shard, and last the number of
    /// shards. It stays if a message arrives meanwhile. Then the removed shards get their pause and
    /// limits again, but not their counters, history and finished ids. Stop the programs that have
    /// opened it first: later messages of theirs are in shards whose number is lost.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the queue may have been removed. It is safe to call this again.
    ///
    /// # Errors
    ///
    /// Like [`queue`](Self::queue). [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) for
    /// `memory:`.
    pub async fn delete_queue(&self, name: &str) -> Result<Removal, Error> {
        let name = QueueName::new(name)?;
        match shards::delete_if_empty(&*self.0, &name).await? {
            Some(removal) => Ok(removal),
            None => self.0.delete_if_empty(name).await,
        }
    }

    /// Returns whether the queue `name` has an older layout, and how many entries are left to
    /// convert. Changes nothing.
    ///
    /// # Cancel safety
    ///
    /// This call changes nothing; its future can be dropped.
    ///
    /// # Errors
    ///
    /// If the name is malformed, the server cannot be reached or is not suitable;
    /// [`ErrorKind::NewerVersion`](crate::ErrorKind::NewerVersion) if a newer version has written
    /// the queue; [`ErrorKind::OlderVersion`](crate::ErrorKind::OlderVersion) if this version
    /// cannot upgrade it; [`ErrorKind::Damaged`](crate::ErrorKind::Damaged).
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) for `memory:` and `file:`.
    pub async fn upgrade_status(&self, name: &str) -> Result<Upgrade, Error> {
        let name = QueueName::new(name)?;
        let plain = self.0.any_layout(name.clone()).await?;
        let mut sum = plain.upgrade_status(conversions()).await?;
        // The number of shards is readable in the present layout only.
        if sum.exists && !sum.is_needed() {
            for shard in shards::names(&*self.0, &name).await? {
                let shard = self.0.any_layout(shard).await?;
                add(&mut sum, &shard.upgrade_status(conversions()).await?);
            }
        }
        Ok(sum)
    }

    /// Converts the queue `name` to the layout of this version, page by page, and calls `progress`
    /// after each page, of each shard in turn. Does nothing if the queue has that layout, or does
    /// not exist.
    ///
    /// From the first page to the last, every operation on the queue fails with
    /// [`ErrorKind::Upgrading`](crate::ErrorKind::Upgrading), in older and newer versions. Workers,
    /// and calls with time left, repeat it. Messages, due instants and leases stay as they are. If
    /// a lease ends during the conversion, it is reclaimed afterwards as usual. From then on, older
    /// versions refuse the queue, so stop them first.
    ///
    /// Opening a queue never upgrades it, because that would break a rolling deploy halfway.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the queue stays partly converted. Call this again, from any
    /// process, to continue.
    ///
    /// # Errors
    ///
    /// Like [`upgrade_status`](Self::upgrade_status), and any error of a call. If it is not
    /// [`Rejected`](crate::ErrorClass::Rejected), call again to continue.
    pub async fn upgrade_queue(
        &self,
        name: &str,
        mut progress: impl FnMut(&Upgrade),
    ) -> Result<Upgrade, Error> {
        let name = QueueName::new(name)?;
        let plain = self.0.any_layout(name.clone()).await?;
        let mut sum = plain.upgrade(conversions(), &mut progress).await?;
        if sum.exists {
            for shard in shards::names(&*self.0, &name).await? {
                let shard = self.0.any_layout(shard).await?;
                add(&mut sum, &shard.upgrade(conversions(), &mut progress).await?);
            }
        }
        Ok(sum)
    }
}

/// Adds the state of a shard.
fn add(sum: &mut Upgrade, shard: &Upgrade) {
    if shard.exists {
        sum.version = sum.version.min(shard.version);
        sum.begun |= shard.begun;
        sum.seen += shard.seen;
        sum.total += shard.total;
    }
}

type Running<O> = Pin<Box<dyn Future<Output = Result<O, Error>> + Send>>;

/// A queue that is being opened: `.await` it. From [`Connection::queue`] and
/// [`Connection::backend`].
#[must_use = "a queue is opened when this is awaited"]
pub struct Opening<O> {
    connection: Connection,
    name: String,
    shards: Option<u32>,
    strays: bool,
    made: fn(Connection, Opened) -> O,
    /// Once it was polled.
    running: Option<Running<O>>,
}

impl<O> Opening<O> {
    /// Opens the queue with this number of shards: 2 to 64. Each is a queue with its own keys, so
    /// that the nodes of a cluster share one queue.
    ///
    /// The first program that opens a new queue decides. The number is stored, and cannot be
    /// changed. Without this call, the queue is opened as it is stored.
    ///
    /// The guide [When one node is not enough](crate::guides::when_one_node_is_not_enough) says when
    /// this helps, and what differs.
    ///
    /// ```
    /// # use delayline::Queue;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), delayline::Error> {
    /// let connection = delayline::connect("memory:").await?;
    /// let orders: Queue<u64> = connection.queue("orders").shards(4).await?;
    /// orders.send(&1234).await?;
    /// assert_eq!(connection.queue::<u64>("orders").await?.stats().await?.ready, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Opening fails with [`ErrorKind::OtherShards`](crate::ErrorKind::OtherShards) if the queue has
    /// another number, or holds messages without shards. It fails with
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the number is not from 2 to 64.
    pub fn shards(mut self, number: u32) -> Self {
        self.shards = Some(number);
        self
    }

    /// Opens the messages that no shard of the queue has: those that
    /// [`Connection::stray_messages`] counts. [`Queue::transfer_to`] moves them into the shards.
    /// Send nothing to them. A queue without shards is opened as usual.
    ///
    /// ```
    /// # use delayline::Queue;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), delayline::Error> {
    /// let connection = delayline::connect("memory:").await?;
    /// let opened_before: Queue<u64> = connection.queue("orders").await?;
    /// let orders: Queue<u64> = connection.queue("orders").shards(4).await?;
    /// opened_before.send(&1234).await?;
    /// assert_eq!((orders.stats().await?.ready, connection.stray_messages("orders").await?), (0, 1));
    ///
    /// let strays: Queue<u64> = connection.queue("orders").strays().await?;
    /// strays.transfer_to(&orders)?.pass().await?;
    /// assert_eq!((orders.stats().await?.ready, connection.stray_messages("orders").await?), (1, 0));
    /// # Ok(())
    /// # }
    /// ```
    pub const fn strays(mut self) -> Self {
        self.strays = true;
        self
    }
}

impl<O: 'static> Future for Opening<O> {
    type Output = Result<O, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { connection, name, shards, strays, made, running } = &mut *self;
        let running = running.get_or_insert_with(|| {
            let (connection, name) = (connection.clone(), std::mem::take(name));
            let (shards, strays, made) = (*shards, *strays, *made);
            Box::pin(async move {
                let (store, name) = (&*connection.0, QueueName::new(name)?);
                let opened = if strays {
                    Opened::plain(store.open(name).await?)
                } else {
                    shards::open(store, name, shards).await?
                };
                Ok(made(connection, opened))
            })
        });
        running.as_mut().poll(context)
    }
}

impl<O> fmt::Debug for Opening<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opening")
            .field("name", &self.name)
            .field("shards", &self.shards)
            .finish_non_exhaustive()
    }
}
