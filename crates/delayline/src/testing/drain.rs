//! Runs handlers on a test's queue, without a worker and without waiting.

use std::future::Future;
use std::time::Duration;

use super::drained::Drained;
use super::{TestQueue, TestWorkers};
use crate::codec::Decode;
use crate::worker::HandlerError;
use crate::{Job, Outcome};

impl<T: Send + 'static, C: Decode<T>> TestQueue<T, C> {
    /// Handles the messages that are due or become due meanwhile, with a handler like that of
    /// [`Worker::run`](crate::Worker::run). The clock stands still, unless the handler moves it.
    ///
    /// Messages are handled one after the other, in the queue's order. Only a
    /// [`batch_handler`](crate::worker::batch_handler) gets several at once: up to its maximum of
    /// the messages due at the same instant. Its linger takes no time. Everything else works as in
    /// a worker: failures and their limits, panics, payloads that cannot be decoded. A handler that
    /// sleeps uses tokio's clock, which is a different one: see `tokio::time::pause`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the running handler. Its message stays leased for a day of the
    /// queue's clock.
    ///
    /// # Panics
    ///
    /// After [`max_deliveries`](Self::max_deliveries). The text lists the latest.
    pub async fn drain_due<H, F, O, E, K>(&self, handler: H) -> Drained
    where
        H: Fn(Job<T>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<O, E>> + Send + 'static,
        O: Into<Outcome> + 'static,
        E: HandlerError<K> + 'static,
    {
        self.alone(handler).drain_due().await
    }

    /// Handles the messages that become due within this time. Moves the clock from one due time to
    /// the next, and finally to the end of this time. Other queues of the same
    /// [`TestConnection`](super::TestConnection) share the clock. Otherwise like
    /// [`drain_due`](Self::drain_due).
    ///
    /// # Cancel safety
    ///
    /// Like [`drain_due`](Self::drain_due). The clock stays where it is.
    ///
    /// # Panics
    ///
    /// Like [`drain_due`](Self::drain_due).
    pub async fn drain_for<H, F, O, E, K>(&self, time: Duration, handler: H) -> Drained
    where
        H: Fn(Job<T>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<O, E>> + Send + 'static,
        O: Into<Outcome> + 'static,
        E: HandlerError<K> + 'static,
    {
        self.alone(handler).drain_for(time).await
    }

    /// Handles all messages, including retries and follow-ups, and moves the clock from one due
    /// time to the next. Ends when nothing is scheduled or ready any more, or when the queue is
    /// paused. Otherwise like [`drain_due`](Self::drain_due).
    ///
    /// # Cancel safety
    ///
    /// Like [`drain_due`](Self::drain_due). The clock stays where it is.
    ///
    /// # Panics
    ///
    /// Like [`drain_due`](Self::drain_due): for example if a message is snoozed forever.
    pub async fn drain<H, F, O, E, K>(&self, handler: H) -> Drained
    where
        H: Fn(Job<T>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<O, E>> + Send + 'static,
        O: Into<Outcome> + 'static,
        E: HandlerError<K> + 'static,
    {
        self.alone(handler).drain().await
    }

    fn alone<H, F, O, E, K>(&self, handler: H) -> TestWorkers
    where
        H: Fn(Job<T>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<O, E>> + Send + 'static,
        O: Into<Outcome> + 'static,
        E: HandlerError<K> + 'static,
    {
        self.connection.workers().add(self, handler)
    }
}
