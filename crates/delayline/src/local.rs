//! Queues in this process, by name.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use delayline_core::{QueueBackend, QueueName};
use delayline_memory::MemoryBackend;

use crate::Error;
use crate::store::{FoundQueues, Store};

/// Creates queues when their names are first used.
pub(crate) struct Local<B> {
    create: Box<dyn Fn(QueueName) -> B + Send + Sync>,
    queues: Mutex<BTreeMap<QueueName, Arc<B>>>,
}

impl Local<MemoryBackend> {
    /// Creates the queues of a `memory:` URL.
    pub(crate) fn memory() -> Self {
        Self::new(|name| MemoryBackend::new().named(name))
    }
}

impl<B> Local<B> {
    pub(crate) fn new(create: impl Fn(QueueName) -> B + Send + Sync + 'static) -> Self {
        Self { create: Box::new(create), queues: Mutex::default() }
    }

    /// Returns the queue of this name, and creates it at its first use.
    pub(crate) fn queue(&self, name: QueueName) -> Arc<B> {
        let create = |name: &QueueName| Arc::new((self.create)(name.clone()));
        Arc::clone(self.lock().entry(name).or_insert_with_key(create))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<QueueName, Arc<B>>> {
        // Nothing panics while it is locked.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl<B: QueueBackend + 'static> Store for Local<B> {
    async fn open(&self, name: QueueName) -> Result<Arc<dyn QueueBackend>, Error> {
        Ok(self.queue(name))
    }

    async fn queues(&self, _most_keys: u64) -> Result<FoundQueues, Error> {
        let names = self.lock().keys().cloned().collect();
        Ok(FoundQueues { names, complete: true, failure: None })
    }
}

impl<B> fmt::Debug for Local<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("memory:")
    }
}
