//! Queues on Redis servers.

use std::sync::Arc;

use async_trait::async_trait;
use delayline_core::{QueueBackend, QueueName};
use delayline_redis_protocol::{
    Inspection, Removal, ScriptBackend, Transport, WorkerProcess, inspect,
};

use crate::Error;
use crate::store::{FoundQueues, FoundWorkers, Store};

/// The queues that a transport reaches.
#[derive(Debug)]
pub(crate) struct Server {
    transport: Arc<dyn Transport>,
    allow_eviction: bool,
}

impl Server {
    pub(crate) fn new(transport: Arc<dyn Transport>, allow_eviction: bool) -> Self {
        Self { transport, allow_eviction }
    }
}

#[async_trait]
impl Store for Server {
    async fn open(&self, name: QueueName) -> Result<Arc<dyn QueueBackend>, Error> {
        Ok(Arc::new(self.any_layout(name).await?))
    }

    async fn queues(&self, most_keys: u64) -> Result<FoundQueues, Error> {
        let found = self.transport.queues(most_keys).await?;
        Ok(FoundQueues {
            names: found.names.into_iter().collect(),
            complete: found.complete,
            failure: found.failure.map(Error::from),
        })
    }

    fn transport(&self) -> Option<Arc<dyn Transport>> {
        Some(Arc::clone(&self.transport))
    }

    async fn workers(&self, _own: Option<WorkerProcess>) -> Result<FoundWorkers, Error> {
        let found = self.transport.workers().await?;
        Ok(FoundWorkers {
            processes: found.processes,
            complete: found.complete,
            failure: found.failure.map(Error::from),
        })
    }

    async fn inspect(&self, name: QueueName) -> Result<Inspection, Error> {
        Ok(inspect(&*self.transport, &name).await?)
    }

    async fn delete_if_empty(&self, name: QueueName) -> Result<Removal, Error> {
        Ok(self.any_layout(name).await?.delete_if_empty().await?)
    }

    async fn held(&self, name: QueueName) -> Result<Removal, Error> {
        Ok(self.any_layout(name).await?.held().await?)
    }

    async fn any_layout(&self, name: QueueName) -> Result<ScriptBackend<dyn Transport>, Error> {
        let transport = Arc::clone(&self.transport);
        Ok(ScriptBackend::open_any_layout(transport, name, self.allow_eviction).await?)
    }
}
