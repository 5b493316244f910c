//! Lets a test fill batches: instead of lingering, they wait until the test has no further message.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

tokio::task_local! {
    /// Set in the tasks of a test's handlers.
    static GATHERING: Arc<Gathering>;
}

/// The batches that handlers have opened but not yet started.
#[derive(Debug, Default)]
pub(crate) struct Gathering {
    /// The number of their jobs.
    waiting: AtomicUsize,
    /// Notified when `waiting` may have grown.
    changed: Notify,
    complete: CancellationToken,
}

impl Gathering {
    /// Runs a handler whose batches wait for this.
    pub(crate) fn of<F: Future>(
        self: &Arc<Self>,
        handler: F,
    ) -> impl Future<Output = F::Output> + use<F> {
        GATHERING.scope(Arc::clone(self), handler)
    }

    /// The gathering of this task's handler, in a test.
    pub(super) fn current() -> Option<Arc<Self>> {
        GATHERING.try_with(Arc::clone).ok()
    }

    /// A job has joined a batch, which has this many jobs now.
    pub(super) fn joined(&self, jobs: usize, is_full: bool) {
        if is_full {
            // The last job has not waited. The other jobs may belong to another drain with the same
            // handler.
            let earlier = jobs.saturating_sub(1);
            let less = |waiting: usize| Some(waiting.saturating_sub(earlier));
            let _ = self.waiting.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        } else {
            self.waiting.fetch_add(1, Ordering::SeqCst);
        }
        self.changed.notify_one();
    }

    /// Completes once no further job can arrive.
    pub(super) async fn completed(&self) {
        self.complete.cancelled().await;
    }

    /// The number of jobs that wait for others.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Completes when the number of waiting jobs may have grown.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Starts all open batches. From now on no batch waits.
    pub(crate) fn complete(&self) {
        self.complete.cancel();
    }
}
