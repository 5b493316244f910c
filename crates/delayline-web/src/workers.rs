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

    /// The list, at most this old.
    pub(crate) async fn list(&self, age: Duration) -> Option<Arc<Result<FoundWorkers, Error>>> {
        let read = async { Ok::<_, Infallible>(Arc::new(self.connection.workers().await)) };
        self.latest.within(age, read).await
    }
}

/// How old the list of an open page may be.
pub(crate) const MOST_AGE: Duration = Duration::from_secs(1);
