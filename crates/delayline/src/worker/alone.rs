//! Handles one delivery without a worker's loop.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use delayline_core::Delivery;
use tokio::task::JoinSet;

use super::control::Control;
use super::handler::{Rules, Start, starter, without_outcome};
use super::{HandlerError, Job, Outcome};
use crate::Codec;
use crate::telemetry::Label;

/// Handles deliveries one by one, as a worker would.
pub(crate) struct Alone(Start);

impl Alone {
    pub(crate) fn new<T, C, H, F, O, E, K>(codec: Arc<C>, handler: H, queue: Label) -> Self
    where
        T: Send + 'static,
        C: Codec<T>,
        H: Fn(Job<T>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<O, E>> + Send + 'static,
        O: Into<Outcome> + 'static,
        E: HandlerError<K> + 'static,
    {
        Self(starter(codec, handler, Rules::default(), queue))
    }

    /// Returns the handler's result. Dropping the future drops the handler.
    pub(crate) async fn handle(&self, delivery: Delivery, lateness: Duration) -> Outcome {
        let mut task = JoinSet::new();
        task.spawn((self.0)(delivery, lateness, Arc::new(Control::default())));
        match task.join_next().await {
            Some(Ok(outcome)) => outcome,
            Some(Err(error)) => without_outcome(error),
            // There is a task.
            None => Outcome::Release,
        }
    }
}
