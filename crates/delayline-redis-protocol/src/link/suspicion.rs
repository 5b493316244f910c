//! Suspects servers that were silent for a while of having been replaced.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{error::Elapsed, timeout};

/// The time after which a call without a reply raises the suspicion that its server has been
/// replaced.
const SUSPECT_AFTER: Duration = Duration::from_secs(1);

/// The suspicion that a slow server has been replaced. A server that was frozen replies to the
/// requests in its sockets before it learns that it was replaced.
#[derive(Clone)]
pub(crate) struct Suspicion {
    is_raised: Arc<AtomicBool>,
    /// Whether a confirmation was slow. Replicas and disks may be slow although the server is not,
    /// so this concerns durable calls only.
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

    /// Returns whether the reply to a call counts only after a refresh of the topology.
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

    /// Ends the suspicion: the topology was refreshed after the reply to such a call, and the
    /// server still serves.
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

    /// Like [`timeout`](Self::timeout), for a server that was asked to wait for up to `wait` before
    /// it replies. Until then, slowness raises the suspicion for durable calls only.
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
