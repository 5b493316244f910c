//! One connection, many queues.

use std::sync::Arc;

use delayline_core::{QueueName, Queueing};
#[cfg(feature = "memory")]
use delayline_memory::MemoryBackend;
#[cfg(any(feature = "redis", feature = "fred"))]
use delayline_redis_protocol::{Inspection, ScriptBackend, Transport, inspect};

use crate::{Connect, Error, Queue};

/// Connects to a URL for several queues, with the default options of [`Connect`].
///
/// # Errors
///
/// See [`Connect::new`] and [`Connect::connection`].
pub async fn connect(url: &str) -> Result<Connection, Error> {
    // Options have a name for one queue, which nobody is told here.
    Connect::new(url, "unnamed")?.connection().await
}

/// A server or a place in this process, from which queues are opened by name: made by [`connect`]
/// or [`Connect::connection`].
///
/// All its queues share one connection for their calls, and all workers that wait one more, because
/// a server holds back all else on a connection that waits. Clones are one and the same, and the
/// connection is closed when they and the queues are gone.
///
/// A `memory:` connection makes a queue when its name is first asked for, and keeps it as long as
/// there is a clone of the connection: the same name leads to the same queue.
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
/// Its `Debug` output shows where it leads to, and neither user name nor password.
#[derive(Clone, Debug)]
pub struct Connection(Way);

/// How operations get to a queue.
#[derive(Clone, Debug)]
pub(crate) enum Way {
    #[cfg(feature = "memory")]
    Memory(Memory),
    #[cfg(any(feature = "redis", feature = "fred"))]
    Server { transport: Arc<dyn Transport>, allow_eviction: bool },
}

impl Connection {
    pub(crate) const fn new(way: Way) -> Self {
        Self(way)
    }

    /// Opens the queue of that name, after a look whether the server is fit for it.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`]: the name is malformed, or see [`Connect::open`].
    pub async fn open(&self, queue: &str) -> Result<Arc<dyn Queueing>, Error> {
        self.open_named(QueueName::new(queue)?).await
    }

    /// Opens a queue of JSON payloads that knows its name; see [`Queue::named`].
    ///
    /// # Errors
    ///
    /// Like [`open`](Self::open).
    pub async fn queue<T>(&self, queue: &str) -> Result<Queue<T>, Error> {
        let name = QueueName::new(queue)?;
        Ok(Queue::new(self.open_named(name.clone()).await?).named(&name))
    }

    pub(crate) async fn open_named(&self, queue: QueueName) -> Result<Arc<dyn Queueing>, Error> {
        match &self.0 {
            #[cfg(feature = "memory")]
            Way::Memory(memory) => Ok(memory.queue(queue)),
            #[cfg(any(feature = "redis", feature = "fred"))]
            Way::Server { transport, allow_eviction } => {
                let transport = Arc::clone(transport);
                Ok(Arc::new(ScriptBackend::open(transport, queue, *allow_eviction).await?))
            }
            #[cfg(not(any(feature = "memory", feature = "redis", feature = "fred")))]
            _ => {
                drop(queue);
                Err(crate::connect::unsupported("any queue"))
            }
        }
    }
}

#[cfg(any(feature = "redis", feature = "fred"))]
impl Connection {
    pub(crate) async fn inspect(&self, queue: &QueueName) -> Result<Inspection, Error> {
        match &self.0 {
            #[cfg(feature = "memory")]
            Way::Memory(_) => Err(crate::connect::unsupported("a look at a server that is none")),
            Way::Server { transport, .. } => Ok(inspect(&**transport, queue).await?),
        }
    }
}

/// Queues in this process.
#[cfg(feature = "memory")]
#[derive(Clone, Default)]
pub(crate) struct Memory(
    Arc<std::sync::Mutex<std::collections::HashMap<QueueName, Arc<MemoryBackend>>>>,
);

#[cfg(feature = "memory")]
impl Memory {
    fn queue(&self, name: QueueName) -> Arc<dyn Queueing> {
        // Nothing panics while it is locked.
        let mut queues = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let queue: &mut Arc<MemoryBackend> = queues.entry(name).or_default();
        Arc::clone(queue) as _
    }
}

#[cfg(feature = "memory")]
impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("memory:")
    }
}
