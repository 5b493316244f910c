//! The processes with workers, as the servers list them.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use delayline::admin::FoundWorkers;
use delayline::{Connection, Error};

use crate::latest::Latest;

/// Where the processes are listed, and the latest list.
pub(crate) struct Workers {
    connection: Connection,
    latest: Latest<Arc<Result<FoundWorkers, Error>>>,
}

impl Workers {
    pub(crate) fn new(connection: Connection) -> Self {
        Self { connection, latest: Latest::default() }
    }

    /// The list, at most a second old.
    pub(crate) async fn list(&self) -> Option<Arc<Result<FoundWorkers, Error>>> {
        let read = async { Ok::<_, Infallible>(Arc::new(self.connection.workers().await)) };
        self.latest.within(MOST_AGE, read).await
    }
}

/// How old the list may be.
const MOST_AGE: Duration = Duration::from_secs(1);
