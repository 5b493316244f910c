//! Handles deliveries without the loop of a worker.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use delayline_core::{Delivery, Save};
use tokio::task::JoinError;

use super::control::Control;
use super::handler::{Rules, Start, starter, without_outcome};
use super::saves::Pending;
use super::{HandlerError, Job, Outcome};
use crate::codec::Decode;
use crate::telemetry::Label;

/// Handles deliveries as a worker would.
pub(crate) struct Alone(Start);

impl Alone {
    pub(crate) fn new<T, C, H, F, O, E, K>(codec: Arc<C>, handler: H, queue: Label) -> Self
    where
        T: Send + 'static,
        C: Decode<T>,
        H: Fn(Job<T>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<O, E>> + Send + 'static,
        O: Into<Outcome> + 'static,
        E: HandlerError<K> + 'static,
    {
        Self(starter(codec, handler, Rules::default(), queue))
    }

    /// Returns the handler's future, to be spawned as a task, and a function that takes what the
    /// handler has saved.
    pub(crate) fn handle(
        &self,
        delivery: Delivery,
        lateness: Duration,
    ) -> (
        impl Future<Output = Outcome> + Send + use<>,
        impl Fn() -> Option<Save> + Send + Sync + use<>,
    ) {
        let control = Arc::new(Control::default());
        let saved = Arc::clone(&control);
        let save = move || {
            let Pending { progress, checkpoint } = saved.saves.take()?;
            Some(Save::new(1).progress(progress).checkpoint(checkpoint))
        };
        ((self.0)(delivery, lateness, control), save)
    }

    /// The outcome of such a task.
    pub(crate) fn outcome(ended: Result<Outcome, JoinError>) -> Outcome {
        ended.unwrap_or_else(without_outcome)
    }
}
