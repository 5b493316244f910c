//! A queue whose replies are late, or which fails.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use delayline::admin::QueueName;
use delayline::backend::{Applied, At, Backend, ConsumerName, Op, QueueBackend, Wakeup};
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

/// Counts operations and waits; fails, panics, reads the history slowly or ends a wait early on
/// request.
#[derive(Debug)]
pub struct Counted {
    inner: Arc<dyn QueueBackend>,
    ops: Mutex<BTreeMap<&'static str, u64>>,
    /// The name of the operations that panic.
    pub panics: Mutex<&'static str>,
    /// How long each reading of the history takes.
    pub history_seconds: AtomicU64,
    pub consumers: Mutex<BTreeSet<ConsumerName>>,
    pub waits: AtomicUsize,
    pub most_waits: AtomicUsize,
    pub away: AtomicUsize,
    pub early: AtomicUsize,
}

impl Counted {
    pub fn on(queue: &Raws) -> (Arc<Self>, Raws) {
        let inner = Arc::clone(queue.backend());
        let [waits, most_waits, away, early] = Default::default();
        let counted = Arc::new(Self {
            inner,
            ops: Mutex::default(),
            panics: Mutex::default(),
            history_seconds: AtomicU64::default(),
            consumers: Mutex::default(),
            waits,
            most_waits,
            away,
            early,
        });
        let queue = Queue::new(Arc::clone(&counted) as Arc<dyn QueueBackend>).codec(Raw);
        (counted, queue)
    }

    /// How many operations of this name were applied.
    pub fn count(&self, name: &str) -> u64 {
        self.ops.lock().unwrap().get(name).copied().unwrap_or(0)
    }

    /// How many operations were applied.
    pub fn all(&self) -> u64 {
        self.ops.lock().unwrap().values().sum()
    }
}

#[async_trait]
impl Backend for Counted {
    fn queue_name(&self) -> Option<&QueueName> {
        self.inner.queue_name()
    }

    async fn apply(&self, at: At, op: &Op) -> Result<Applied, Error> {
        if self.away.load(Ordering::SeqCst) > 0 {
            return Err(Error::new(ErrorKind::Unreachable));
        }
        let panics = *self.panics.lock().unwrap();
        assert!(op.name() != panics, "on purpose");
        *self.ops.lock().unwrap().entry(op.name()).or_default() += 1;
        if let Op::History(_) = op {
            let seconds = self.history_seconds.load(Ordering::SeqCst);
            tokio::time::sleep(Duration::from_secs(seconds)).await;
        }
        if let Op::Claim(claim) = op {
            self.consumers.lock().unwrap().insert(claim.consumer.clone());
        }
        self.inner.apply(at, op).await
    }
}

struct Ended<'a>(&'a AtomicUsize);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl Wakeup for Counted {
    async fn wait(&self, timeout: Duration) -> Result<bool, Error> {
        let waits = self.waits.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_waits.fetch_max(waits, Ordering::SeqCst);
        let _ended = Ended(&self.waits);
        if self.early.swap(0, Ordering::SeqCst) > 0 {
            return Ok(false);
        }
        self.inner.wait(timeout).await
    }

    async fn ring(&self) -> Result<(), Error> {
        self.inner.ring().await
    }
}
