//! Examines the servers for all who want to know at the same time.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use delayline::{Connect, Error};
use delayline_admin::doctor::{Examination, Finding, examine, examine_queue};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::latest::Latest;

/// How to reach the servers, and the latest findings.
pub(crate) struct Examiner {
    connect: Connect,
    latest: Latest<Arc<Examined>>,
    /// Held while a queue is examined: one at a time.
    turn: Mutex<()>,
}

/// The findings on the servers, or why there are none, and their time.
pub(crate) struct Examined {
    pub(crate) at: Instant,
    pub(crate) result: Result<Examination, Error>,
}

impl Examiner {
    pub(crate) fn new(connect: Connect) -> Self {
        Self { connect, latest: Latest::default(), turn: Mutex::default() }
    }

    /// The findings of the last seconds.
    pub(crate) async fn servers(&self) -> Option<Arc<Examined>> {
        let read = async {
            let result = examine(&self.connect).await;
            Ok::<_, Infallible>(Arc::new(Examined { at: Instant::now(), result }))
        };
        self.latest.within(MOST_AGE, read).await
    }

    /// The findings about a queue, now, over a separate connection.
    pub(crate) async fn queue(&self, name: &str) -> Result<Vec<Finding>, Error> {
        let _turn = self.turn.lock().await;
        examine_queue(&self.connect, name).await
    }
}

/// How old a finding may be before the servers are asked again.
const MOST_AGE: Duration = Duration::from_secs(5);
