//! Whether a server that was silent for a while can still be believed.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{error::Elapsed, timeout};

/// A call that takes longer than this makes us look whether its server still serves its keys.
const SUSPECT_AFTER: Duration = Duration::from_secs(1);

/// A server that is slow to answer may have been replaced. A server that was frozen answers what
/// waited in its sockets before it hears that it was.
#[derive(Clone)]
pub(crate) struct Suspicion {
    is_raised: Arc<AtomicBool>,
    /// A confirmation took long. Replicas and disks may be slow where the server is not, so this
    /// concerns durable calls only.
    is_slow_to_confirm: Arc<AtomicBool>,
    /// Wakes the task that refreshes the topology.
    sign: Arc<Notify>,
}

impl Suspicion {
    pub(crate) fn new(sign: &Arc<Notify>) -> Self {
        let (is_raised, is_slow_to_confirm) = Default::default();
        Self { is_raised, is_slow_to_confirm, sign: Arc::clone(sign) }
    }

    pub(crate) fn is_raised(&self) -> bool {
        self.is_raised.load(Ordering::Acquire)
    }

    /// Whether the reply to a call counts only after a refresh of the topology.
    pub(crate) fn concerns(&self, is_durable: bool) -> bool {
        self.is_raised() || is_durable && self.is_slow_to_confirm.load(Ordering::Acquire)
    }

    pub(crate) fn raise(&self) {
        self.is_raised.store(true, Ordering::Release);
        self.sign.notify_one();
    }

    fn raise_for_durable_calls(&self) {
        self.is_slow_to_confirm.store(true, Ordering::Release);
        self.sign.notify_one();
    }

    /// The topology was refreshed after the reply to such a call, and the server still serves.
    pub(crate) fn settle(&self, is_durable: bool) {
        self.is_raised.store(false, Ordering::Release);
        if is_durable {
            self.is_slow_to_confirm.store(false, Ordering::Release);
        }
    }

    /// Awaits a connection, and raises the suspicion each time that [`SUSPECT_AFTER`] has passed.
    pub(crate) async fn watch<F: Future>(suspicion: Option<&Self>, connection: F) -> F::Output {
        let Some(suspicion) = suspicion else { return connection.await };
        let mut connection = pin!(connection);
        loop {
            if let Ok(connection) = timeout(SUSPECT_AFTER, &mut connection).await {
                return connection;
            }
            suspicion.raise();
        }
    }

    /// Like [`timeout`], but raises the suspicion each time that [`SUSPECT_AFTER`] has passed. One
    /// timer serves both: every call waits for it.
    pub(crate) async fn timeout<F: Future>(
        suspicion: Option<&Self>,
        limit: Duration,
        reply: F,
    ) -> Result<F::Output, Elapsed> {
        Self::timeout_of_wait(suspicion, Duration::ZERO, limit, reply).await
    }

    /// The same for the reply of a server that was asked to wait for up to `wait` before it: until
    /// then, slowness raises the suspicion for durable calls only.
    pub(crate) async fn timeout_of_wait<F: Future>(
        suspicion: Option<&Self>,
        wait: Duration,
        limit: Duration,
        reply: F,
    ) -> Result<F::Output, Elapsed> {
        let Some(suspicion) = suspicion else { return timeout(limit, reply).await };
        let (mut reply, mut passed) = (pin!(reply), Duration::ZERO);
        while limit - passed > SUSPECT_AFTER {
            if let Ok(reply) = timeout(SUSPECT_AFTER, &mut reply).await {
                return Ok(reply);
            }
            passed += SUSPECT_AFTER;
            if passed <= wait {
                suspicion.raise_for_durable_calls();
            } else {
                suspicion.raise();
            }
        }
        timeout(limit - passed, reply).await
    }
}
