//! A queue whose replies are late, or which fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use delayline::admin::QueueName;
use delayline::backend::{Applied, At, Backend, Op, QueueBackend, Wakeup};
use delayline::codec::Raw;
use delayline::{ErrorKind, Queue};
use delayline_core::Error;
use tokio::sync::{Notify, Semaphore};

use crate::support::Raws;

/// Stands in the details of errors.
pub const ADDRESS: &str = "redis-7.internal.example:6379";

/// Executes operations on another backend.
#[derive(Debug)]
pub struct Trouble {
    inner: Arc<dyn QueueBackend>,
    /// Operations that are executed; later ones are refused.
    left: AtomicUsize,
    refusal: ErrorKind,
    /// A reply takes a permit.
    replies: Semaphore,
    executed: Notify,
}

impl Trouble {
    /// Holds every reply back until [`release`](Self::release).
    pub fn holds_replies(queue: &Raws) -> (Arc<Self>, Raws) {
        Self::on(queue, usize::MAX, 0, ErrorKind::PermissionDenied)
    }

    /// Refuses all operations but the first ones.
    pub fn refuses_after(operations: usize, queue: &Raws) -> Raws {
        let refusal = ErrorKind::PermissionDenied;
        Self::on(queue, operations, Semaphore::MAX_PERMITS, refusal).1
    }

    /// Cannot be reached.
    pub fn is_away(queue: &Raws) -> Raws {
        Self::on(queue, 0, 0, ErrorKind::Unreachable).1
    }

    /// Whether it executes an operation is unknown.
    pub fn is_silent(queue: &Raws) -> Raws {
        Self::on(queue, 0, 0, ErrorKind::Timeout).1
    }

    fn on(queue: &Raws, left: usize, replies: usize, refusal: ErrorKind) -> (Arc<Self>, Raws) {
        let trouble = Arc::new(Self {
            inner: Arc::clone(queue.backend()),
            left: AtomicUsize::new(left),
            refusal,
            replies: Semaphore::new(replies),
            executed: Notify::new(),
        });
        let queue = Queue::new(Arc::clone(&trouble) as Arc<dyn QueueBackend>).codec(Raw);
        (trouble, queue)
    }

    /// Waits until an operation is executed whose reply is held back.
    pub async fn executed(&self) {
        self.executed.notified().await;
    }

    /// Lets one reply pass.
    pub fn release(&self) {
        self.replies.add_permits(1);
    }
}

#[async_trait]
impl Backend for Trouble {
    fn queue_name(&self) -> Option<&QueueName> {
        self.inner.queue_name()
    }

    async fn apply(&self, at: At, op: &Op) -> Result<Applied, Error> {
        let one_less = |left: usize| left.checked_sub(1);
        if self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_err() {
            return Err(Error::with_detail(self.refusal.clone(), ADDRESS));
        }
        let applied = self.inner.apply(at, op).await;
        self.executed.notify_one();
        self.replies.acquire().await.unwrap().forget();
        applied
    }
}

#[async_trait]
impl Wakeup for Trouble {
    async fn wait(&self, timeout: Duration) -> Result<bool, Error> {
        self.inner.wait(timeout).await
    }
}
