//! Queues in a directory of the local disk.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
#[cfg(unix)]
use std::time::Duration;

use async_trait::async_trait;
#[cfg(unix)]
use delayline_core::ErrorClass;
use delayline_core::{Held, QueueBackend, QueueName};
use delayline_file::{Directory, OpenError, Options};
#[cfg(unix)]
use delayline_redis_protocol::WorkerProcess;
use delayline_redis_protocol::{Removal, runtime};
#[cfg(unix)]
use tokio::time::{Instant, sleep};

use crate::Error;
use crate::directory_status::{Backup, DirectoryStatus, SyncTimes};
use crate::registry::WorkerRegistry;
#[cfg(unix)]
use crate::store::FoundWorkers;
use crate::store::{FoundQueues, Opening, Store};

/// Opens the directory in a thread that may block, as it reads everything that is stored.
/// `registry` has the workers of this process.
pub(crate) async fn open(
    path: PathBuf,
    how: Opening,
    registry: WorkerRegistry,
) -> Result<Arc<dyn Store>, Error> {
    #[cfg(not(unix))]
    let _ = registry;
    let options = Options::default().accept_clock(how.accept_clock);
    let runtime = runtime()?;
    #[cfg(unix)]
    let mut waits_for: (Option<String>, Instant) = (None, Instant::now());
    loop {
        let path = path.clone();
        match runtime.spawn_blocking(move || Directory::open(path, options)).await {
            Ok(Ok(directory)) => {
                #[cfg(unix)]
                if how.share
                    && let Err(error) =
                        directory.share(SHARED_AFTER, move || introduced(registry.process()))
                {
                    tracing::warn!(%error, "other commands cannot reach the queues through this \
                                            process");
                }
                return Ok(Arc::new(Files(directory)));
            }
            #[cfg(unix)]
            Ok(Err(OpenError::InUse { path, holder })) if how.beside => {
                if waits_for.0 != holder {
                    waits_for = (holder.clone(), Instant::now());
                }
                match delayline_file::Beside::connect(&path).await {
                    Ok(beside) => return Ok(Arc::new(Beside(beside))),
                    Err(error) if error.class() == ErrorClass::Rejected => return Err(error.into()),
                    // That process is about to share the directory, or to close it.
                    Err(_) if waits_for.1.elapsed() < MOST_WAIT => sleep(PAUSE).await,
                    // It does not share it.
                    Err(_) => return Err(refused(OpenError::InUse { path, holder })),
                }
            }
            Ok(Err(error)) => return Err(refused(error)),
            // It panicked, or the runtime has ended.
            Err(_) => return Err(Error::sender_gone()),
        }
    }
}

/// How long the opening of a directory waits for each process to share or close it.
#[cfg(unix)]
const MOST_WAIT: Duration = Duration::from_secs(1);
/// The pause between two attempts.
#[cfg(unix)]
const PAUSE: Duration = Duration::from_millis(20);
/// A process that has closed the directory by then was not worth a connection.
#[cfg(unix)]
const SHARED_AFTER: Duration = Duration::from_millis(300);

/// Copies a directory in a thread that may block.
pub(crate) async fn backup(from: PathBuf, to: PathBuf) -> Result<Backup, Error> {
    let copying = runtime()?.spawn_blocking(move || delayline_file::backup(from, to));
    match copying.await {
        Ok(Ok(copied)) => {
            let (queues, messages, bytes) = (copied.queues, copied.messages, copied.bytes);
            Ok(Backup { queues, messages, bytes })
        }
        Ok(Err(error)) => Err(delayline_core::Error::from(error).into()),
        // It panicked, or the runtime has ended.
        Err(_) => Err(Error::sender_gone()),
    }
}

/// The description of this process for other processes, empty without workers.
#[cfg(unix)]
fn introduced(own: Option<WorkerProcess>) -> String {
    own.map_or_else(String::new, |process| process.to_string())
}

fn refused(error: OpenError) -> Error {
    delayline_core::Error::from(error).into()
}

fn removal((existed, held): (bool, Held)) -> Removal {
    let mut removal = Removal::default();
    removal.existed = existed;
    removal.messages = held.messages + held.relayed;
    (removal.results, removal.throttled) = (held.results, held.throttled);
    removal
}

fn status(status: delayline_file::DirectoryStatus) -> DirectoryStatus {
    let syncs = &status.syncs;
    let syncs = SyncTimes {
        count: syncs.count(),
        sum: syncs.sum(),
        p50: syncs.quantile(0.5),
        p99: syncs.quantile(0.99),
        max: syncs.max(),
        buckets: syncs.buckets().collect(),
    };
    DirectoryStatus {
        queues: status.queues,
        segments: status.segments,
        log_bytes: status.log_bytes,
        snapshot_bytes: status.snapshot_bytes,
        last_checkpoint: status.last_checkpoint,
        checkpoint_running: status.checkpoint_running,
        free_bytes: status.free_bytes,
        room_bytes: status.room_bytes,
        reserve_bytes: status.reserve_bytes,
        full: status.full,
        failure: status.failure,
        syncs,
    }
}

/// An open directory.
struct Files(Directory);

#[async_trait]
impl Store for Files {
    async fn open(&self, name: QueueName) -> Result<Arc<dyn QueueBackend>, Error> {
        Ok(Arc::new(self.0.queue(name)?))
    }

    async fn queues(&self, _most_keys: u64) -> Result<FoundQueues, Error> {
        Ok(FoundQueues { names: self.0.queues(), complete: true, failure: None })
    }

    async fn delete_if_empty(&self, name: QueueName) -> Result<Removal, Error> {
        Ok(removal(self.0.delete_if_empty(&name).await?))
    }

    async fn held(&self, name: QueueName) -> Result<Removal, Error> {
        Ok(removal(self.0.held(&name)?))
    }

    async fn directory_status(&self) -> Result<Option<DirectoryStatus>, Error> {
        Ok(Some(status(self.0.status())))
    }

    async fn close(&self) -> Result<(), Error> {
        let directory = self.0.clone();
        match runtime()?.spawn_blocking(move || directory.close()).await {
            Ok(closed) => Ok(closed?),
            // It panicked, or the runtime has ended.
            Err(_) => Err(Error::sender_gone()),
        }
    }
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "file:{}", self.0.path().display())
    }
}

/// A directory that another process has opened.
#[cfg(unix)]
struct Beside(delayline_file::Beside);

#[cfg(unix)]
#[async_trait]
impl Store for Beside {
    async fn open(&self, name: QueueName) -> Result<Arc<dyn QueueBackend>, Error> {
        Ok(Arc::new(self.0.queue(name)))
    }

    async fn queues(&self, _most_keys: u64) -> Result<FoundQueues, Error> {
        Ok(FoundQueues { names: self.0.queues().await?, complete: true, failure: None })
    }

    async fn delete_if_empty(&self, name: QueueName) -> Result<Removal, Error> {
        Ok(removal(self.0.delete_if_empty(&name).await?))
    }

    async fn held(&self, name: QueueName) -> Result<Removal, Error> {
        Ok(removal(self.0.held(&name).await?))
    }

    /// All workers are in the process that has opened the directory.
    async fn workers(&self, _own: Option<WorkerProcess>) -> Result<FoundWorkers, Error> {
        let about = self.0.about().await?;
        let process = if about.is_empty() { None } else { Some(about.parse()?) };
        let processes = process.into_iter().collect();
        Ok(FoundWorkers { processes, complete: true, failure: None })
    }

    async fn directory_status(&self) -> Result<Option<DirectoryStatus>, Error> {
        Ok(Some(status(self.0.status().await?)))
    }
}

#[cfg(unix)]
impl fmt::Debug for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "file:{}, beside its process", self.0.path().display())
    }
}
