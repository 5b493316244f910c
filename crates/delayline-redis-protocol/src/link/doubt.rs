//! Whether a server that was silent for a while can still be believed.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{error::Elapsed, timeout};

/// A call that takes longer than this makes us look whether its server still serves its keys.
const DOUBT: Duration = Duration::from_secs(1);

/// A server that is slow to answer may have been replaced. A server that was frozen answers what
/// waited in its sockets before it hears that it was.
#[derive(Clone)]
pub(crate) struct Doubt {
    is_raised: Arc<AtomicBool>,
    /// Whoever looks for changes of the topology waits for this.
    sign: Arc<Notify>,
}

impl Doubt {
    pub(crate) fn new(sign: &Arc<Notify>) -> Self {
        Self { is_raised: Arc::default(), sign: Arc::clone(sign) }
    }

    pub(crate) fn is_raised(&self) -> bool {
        self.is_raised.load(Ordering::Acquire)
    }

    pub(crate) fn raise(&self) {
        self.is_raised.store(true, Ordering::Release);
        self.sign.notify_one();
    }

    /// Somebody has looked, and the server still serves.
    pub(crate) fn settle(&self) {
        self.is_raised.store(false, Ordering::Release);
    }

    /// Awaits a connection, and raises the doubt each time that [`DOUBT`] has passed.
    pub(crate) async fn watch<F: Future>(doubt: Option<&Self>, connection: F) -> F::Output {
        let Some(doubt) = doubt else { return connection.await };
        let mut connection = pin!(connection);
        loop {
            if let Ok(connection) = timeout(DOUBT, &mut connection).await {
                return connection;
            }
            doubt.raise();
        }
    }

    /// Like [`timeout`], but raises the doubt each time that [`DOUBT`] has passed. One timer serves
    /// both: every call waits for it.
    pub(crate) async fn timeout<F: Future>(
        doubt: Option<&Self>,
        limit: Duration,
        reply: F,
    ) -> Result<F::Output, Elapsed> {
        let Some(doubt) = doubt else { return timeout(limit, reply).await };
        let (mut reply, mut left) = (pin!(reply), limit);
        while left > DOUBT {
            if let Ok(reply) = timeout(DOUBT, &mut reply).await {
                return Ok(reply);
            }
            doubt.raise();
            left -= DOUBT;
        }
        timeout(left, reply).await
    }
}
