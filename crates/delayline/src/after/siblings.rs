//! The queues of a connection, for messages that wait for messages of other queues.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use delayline_core::{Backend as _, QueueBackend, QueueName};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::store::Store;
use crate::{Error, shards};

/// The queues of one connection, opened when they are first needed. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Siblings(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// `None` for a queue on a backend of the caller, which has no siblings.
    store: Option<Arc<dyn Store>>,
    open: Mutex<BTreeMap<QueueName, Arc<dyn QueueBackend>>>,
    /// One for each queue that is queried now.
    queries: Semaphore,
}

impl Default for Inner {
    fn default() -> Self {
        Self { store: None, open: Mutex::default(), queries: Semaphore::new(MOST_QUERIES) }
    }
}

impl Siblings {
    pub(crate) fn of(store: Arc<dyn Store>) -> Self {
        Self(Arc::new(Inner { store: Some(store), ..Inner::default() }))
    }

    /// Returns `true` if both are the queues of one connection.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns `true` if other queues can be opened.
    pub(crate) fn has_queues(&self) -> bool {
        self.0.store.is_some()
    }

    /// Returns a queue, and opens it at its first use.
    pub(crate) async fn open(&self, name: &QueueName) -> Result<Arc<dyn QueueBackend>, Error> {
        if let Some(known) = self.lock().get(name) {
            return Ok(Arc::clone(known));
        }
        let Some(store) = &self.0.store else {
            return Err(Error::unsupported("messages of other queues, without a connection"));
        };
        let backend = shards::open(&**store, name.clone(), None).await?.backend;
        let mut open = self.lock();
        // Senders choose the names, so there may be any number.
        if open.len() >= MOST_OPEN {
            open.retain(|_, queue| Arc::strong_count(queue) > 1);
        }
        Ok(Arc::clone(open.entry(name.clone()).or_insert(backend)))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<QueueName, Arc<dyn QueueBackend>>> {
        // Nothing panics while it is locked.
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A queue, and the other queues of its connection.
#[derive(Clone, Debug)]
pub(crate) struct Reach {
    own: Arc<dyn QueueBackend>,
    siblings: Siblings,
}

impl Reach {
    pub(crate) fn new(own: Arc<dyn QueueBackend>, siblings: Siblings) -> Self {
        Self { own, siblings }
    }

    /// The same queues, for a task that must not keep them open.
    pub(crate) fn downgrade(&self) -> WeakReach {
        let siblings = Arc::downgrade(&self.siblings.0);
        WeakReach { own: Arc::downgrade(&self.own), siblings }
    }

    /// Waits until another queue may be queried: members are in as many queues as their sender
    /// chose, and must leave room for the other calls of the connection.
    pub(super) async fn may_query(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed.
        self.siblings.0.queries.acquire().await.ok()
    }

    /// The queue itself.
    pub(crate) fn own(&self) -> &Arc<dyn QueueBackend> {
        &self.own
    }

    /// Returns the queue of this name, or the queue itself for `None`.
    pub(crate) async fn queue(
        &self,
        name: Option<&QueueName>,
    ) -> Result<Arc<dyn QueueBackend>, Error> {
        match name {
            Some(name) if self.own.queue_name() != Some(name) => self.siblings.open(name).await,
            _ => Ok(Arc::clone(&self.own)),
        }
    }
}

/// A queue, and the other queues of its connection, as long as others hold them.
#[derive(Debug)]
pub(crate) struct WeakReach {
    own: Weak<dyn QueueBackend>,
    siblings: Weak<Inner>,
}

impl WeakReach {
    /// Returns the queue of this name, or the queue itself for `None`. Returns `None` if all that
    /// hold it, or the connection, have been dropped.
    pub(crate) async fn queue(
        &self,
        name: Option<&QueueName>,
    ) -> Option<Result<Arc<dyn QueueBackend>, Error>> {
        let own = self.own.upgrade();
        match (name, own) {
            (None, own) => own.map(Ok),
            (Some(name), Some(own)) if own.queue_name() == Some(name) => Some(Ok(own)),
            (Some(name), _) => Some(Siblings(self.siblings.upgrade()?).open(name).await),
        }
    }
}

/// Maximum number of queues that the checks of a connection query at once.
const MOST_QUERIES: usize = 256;
/// From this number on, an opening closes the queues that nothing uses.
const MOST_OPEN: usize = 256;
