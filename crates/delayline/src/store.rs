//! Where queues are stored: on a server, or in this process.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use delayline_core::{QueueBackend, QueueName};
use delayline_redis_protocol::{Inspection, Removal, ScriptBackend, Transport, WorkerProcess};

use crate::Error;
use crate::directory_status::DirectoryStatus;

/// A place with queues, which opens them by name. Connections share one.
#[async_trait]
pub(crate) trait Store: fmt::Debug + Send + Sync {
    /// Opens a queue. Changes nothing that outlives this process. The first call checks that this
    /// version can read the queue.
    async fn open(&self, name: QueueName) -> Result<Arc<dyn QueueBackend>, Error>;

    /// Returns the queues, after reading about `most_keys` keys of each server.
    async fn queues(&self, most_keys: u64) -> Result<FoundQueues, Error>;

    /// Returns what reaches the server, if the queues are on one.
    fn transport(&self) -> Option<Arc<dyn Transport>> {
        None
    }

    /// Returns the processes with workers. `own` is this process, if it has workers.
    async fn workers(&self, own: Option<WorkerProcess>) -> Result<FoundWorkers, Error> {
        Ok(FoundWorkers { processes: own.into_iter().collect(), complete: true, failure: None })
    }

    /// Inspects the server and the permissions of its user on the queue.
    async fn inspect(&self, _name: QueueName) -> Result<Inspection, Error> {
        Err(Error::unsupported("inspecting a queue that is not on a server"))
    }

    /// Removes the queue if it is empty.
    async fn delete_if_empty(&self, _name: QueueName) -> Result<Removal, Error> {
        Err(Error::unsupported("deleting a queue that is not on a server"))
    }

    /// Returns what [`delete_if_empty`](Self::delete_if_empty) would, and removes nothing.
    async fn held(&self, _name: QueueName) -> Result<Removal, Error> {
        Err(Error::unsupported("deleting a queue that is not on a server"))
    }

    /// Returns the state of the directory, if the queues are in one.
    async fn directory_status(&self) -> Result<Option<DirectoryStatus>, Error> {
        Ok(None)
    }

    /// Closes a directory for all that use it.
    async fn close(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Opens a queue for its upgrade, whatever layout it has.
    async fn any_layout(&self, _name: QueueName) -> Result<ScriptBackend<dyn Transport>, Error> {
        Err(Error::unsupported("upgrading a queue that is not on a server"))
    }
}

/// The queues that [`Connection::queues_within`](crate::Connection::queues_within) has found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FoundQueues {
    /// Their names, in order.
    pub names: Vec<QueueName>,
    /// Whether all keys of all primaries were read; otherwise there may be more queues.
    pub complete: bool,
    /// The error of the primaries of a cluster that could not be read, with the address of each.
    /// Their queues are missing from `names`.
    pub failure: Option<Error>,
}

/// The processes that [`Connection::workers`](crate::Connection::workers) has found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FoundWorkers {
    /// The processes, by id.
    pub processes: Vec<WorkerProcess>,
    /// Whether these are all processes that have introduced themselves. On servers, up to 1,000
    /// connections of workers are read.
    pub complete: bool,
    /// The error of the primaries of a cluster that could not be asked, with the address of each.
    pub failure: Option<Error>,
}

/// How a directory is opened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Opening {
    pub(crate) accept_clock: bool,
    pub(crate) share: bool,
    pub(crate) beside: bool,
}
