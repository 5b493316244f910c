//! What the suite needs from a backend.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use delayline_core::{Error, QueueBackend};

use crate::limits::{CASE_TIME, DEFAULT_CASES};

/// Creates the queues for the suite.
#[async_trait]
pub trait Fixture: Send + Sync + 'static {
    /// Returns an empty queue that is not used elsewhere. It must have every operation. A call may
    /// fail only if its operation violates a limit: most trials fail with any other error.
    ///
    /// Called for every case and every random sequence, more than a thousand times, so it should be
    /// cheap: a new queue name on an existing connection. With
    /// [`At::Server`](delayline_core::At::Server), the queue must use a clock that moves, counts
    /// milliseconds since 1970 in UTC, and is within 10 minutes of this computer's.
    ///
    /// A [`QueueName`](delayline_core::QueueName) may contain `/` and `..`, so a backend that makes
    /// files or keys of names should have such names here.
    ///
    /// Relays of a queue with the name `NAME` go to the list `a-list{NAME}` and the stream
    /// `a-stream{NAME}`; without a [name](delayline_core::Backend::queue_name), to `a-list` and
    /// `a-stream`. These must be empty, and the queue must be allowed to write to them.
    ///
    /// # Errors
    ///
    /// [`Error`] if no queue is available; the trial then fails.
    async fn fresh(&self) -> Result<Arc<dyn QueueBackend>, Error>;

    /// Closes a queue of [`fresh`](Self::fresh) and opens it again from its stored data, as a new
    /// process would. `None` if this backend stores nothing.
    ///
    /// The suite has no other reference to `queue`, so dropping it closes a backend that closes
    /// when it is dropped. If the backend promises that its data survive a crash, crash it here.
    /// [`Backend::queue_name`](delayline_core::Backend::queue_name) can tell which queue it is.
    ///
    /// The trials `reopen::` then compare the queue with the model: every message, lease and
    /// result, the totals, the ids that it remembers, whether it is paused. By default there is
    /// nothing to open: the trials are reported as ignored, with the reason.
    ///
    /// # Errors
    ///
    /// [`Error`] if the queue cannot be opened again; the trial then fails.
    async fn reopen(
        &self,
        queue: Arc<dyn QueueBackend>,
    ) -> Result<Option<Arc<dyn QueueBackend>>, Error> {
        drop(queue);
        Ok(None)
    }

    /// Opens a second client of a queue of [`fresh`](Self::fresh), as another process would: over
    /// its own connection, and with nothing in memory that both share. `None` if only one client
    /// can have the queue open.
    ///
    /// [`Backend::queue_name`](delayline_core::Backend::queue_name) can tell which queue it is. The
    /// suite drops both clients at the end of the trial. It calls this as often as `fresh`, so an
    /// existing connection is best, as long as no client of `fresh` uses it.
    ///
    /// The trials about concurrent clients and repeated operations then use both clients in turns,
    /// and so do the trials `two_clients::`. By default there is only one client: these trials are
    /// reported as ignored, and a backend passes whose clients miss each other's changes.
    ///
    /// # Errors
    ///
    /// [`Error`] if the queue cannot be opened again; the trial then fails.
    async fn another(
        &self,
        queue: &Arc<dyn QueueBackend>,
    ) -> Result<Option<Arc<dyn QueueBackend>>, Error> {
        let _ = queue;
        Ok(None)
    }

    /// Whether [`Wakeup::wait`](delayline_core::Wakeup::wait) gives hints at all. If not, the
    /// trials about hints are reported as ignored.
    fn hints(&self) -> bool {
        true
    }

    /// Returns whether the suite has the trial of this name, such as `cases::dead` or
    /// `regressions::every_operation`. By default it has all.
    ///
    /// For one more way to a backend that another run tests in full, the trials that begin with
    /// `regressions::`, `differential::` and `histories::` are enough: they have every operation.
    fn wants(&self, trial: &str) -> bool {
        let _ = trial;
        true
    }

    /// The most time for a hand-written case: 60 s. A case that takes longer fails. Some cases have
    /// hundreds of operations, so a slow store may need more.
    fn case_time(&self) -> Duration {
        CASE_TIME
    }

    /// The number of random sequences in a run, unless `DELAYLINE_CASES` says otherwise: 1000. They
    /// take most of a run's time. Fewer are enough for one more way to a backend that another run
    /// tests.
    fn random_cases(&self) -> u32 {
        DEFAULT_CASES
    }
}

/// What a backend lacks that a trial needs.
#[derive(Debug)]
pub(crate) struct Lacks(pub(crate) &'static str);
