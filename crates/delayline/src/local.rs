//! Queues in this process, by name.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use delayline_core::{QueueBackend, QueueName};
use delayline_memory::MemoryBackend;

/// The queues of a connection whose backends are in this process.
#[derive(Clone)]
pub(crate) struct Memory(Arc<dyn Open>);

impl Memory {
    pub(crate) fn new<B: QueueBackend + 'static>(queues: Arc<Local<B>>) -> Self {
        Self(queues)
    }

    pub(crate) fn queue(&self, name: QueueName) -> Arc<dyn QueueBackend> {
        self.0.open(name)
    }

    pub(crate) fn names(&self) -> Vec<QueueName> {
        self.0.names()
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new(Arc::new(Local::new(|name| MemoryBackend::new().named(name))))
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("memory:")
    }
}

/// Creates queues when their names are first used.
pub(crate) struct Local<B> {
    create: Box<dyn Fn(QueueName) -> B + Send + Sync>,
    queues: Mutex<BTreeMap<QueueName, Arc<B>>>,
}

impl<B> Local<B> {
    pub(crate) fn new(create: impl Fn(QueueName) -> B + Send + Sync + 'static) -> Self {
        Self { create: Box::new(create), queues: Mutex::default() }
    }

    /// Returns the queue of this name, always the same.
    pub(crate) fn queue(&self, name: QueueName) -> Arc<B> {
        let create = |name: &QueueName| Arc::new((self.create)(name.clone()));
        Arc::clone(self.lock().entry(name).or_insert_with_key(create))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<QueueName, Arc<B>>> {
        // Nothing panics while it is locked.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

trait Open: Send + Sync {
    fn open(&self, name: QueueName) -> Arc<dyn QueueBackend>;
    fn names(&self) -> Vec<QueueName>;
}

impl<B: QueueBackend + 'static> Open for Local<B> {
    fn open(&self, name: QueueName) -> Arc<dyn QueueBackend> {
        self.queue(name)
    }

    fn names(&self) -> Vec<QueueName> {
        self.lock().keys().cloned().collect()
    }
}
