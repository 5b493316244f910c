//! Queues in a directory of the local disk.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use delayline_core::{QueueBackend, QueueName};
use delayline_file::{Directory, Options};

use crate::Error;
use crate::store::{FoundQueues, Store};

/// An open directory.
pub(crate) struct Files(Directory);

/// Opens the directory in a thread that may block, as it reads everything that is stored.
pub(crate) async fn open(path: PathBuf, accept_clock: bool) -> Result<Files, Error> {
    let options = Options::default().accept_clock(accept_clock);
    let opening = tokio::task::spawn_blocking(move || Directory::open(path, options));
    match opening.await {
        Ok(Ok(directory)) => Ok(Files(directory)),
        Ok(Err(error)) => Err(delayline_core::Error::from(error).into()),
        // It panicked, or the runtime has ended.
        Err(_) => Err(Error::sender_gone()),
    }
}

#[async_trait]
impl Store for Files {
    async fn open(&self, name: QueueName) -> Result<Arc<dyn QueueBackend>, Error> {
        Ok(Arc::new(self.0.queue(name)?))
    }

    async fn queues(&self, _most_keys: u64) -> Result<FoundQueues, Error> {
        Ok(FoundQueues { names: self.0.queues(), complete: true, failure: None })
    }
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "file:{}", self.0.path().display())
    }
}
