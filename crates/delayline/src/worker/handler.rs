//! Turns a delivery into an outcome: decoding, the user's handler, its timeout.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use delayline_core::Delivery;
use tokio::task::JoinError;
use tokio::time::timeout;

use super::control::Control;
use super::undecodable::Undecodable;
use super::{CancelReason, HandlerError, Job, Outcome};
use crate::after;
use crate::codec::{CodecError, Decode};
use crate::telemetry::Label;

/// Creates the future that handles a delivery, given how late it was claimed.
pub(super) type Start = Arc<
    dyn Fn(Delivery, Duration, Arc<Control>) -> Pin<Box<dyn Future<Output = Outcome> + Send>>
        + Send
        + Sync,
>;

/// The rules of a worker for each delivery, independent of its handler.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rules {
    /// How long the handler may run.
    pub(super) limit: Option<Duration>,
    pub(super) undecodable: Undecodable,
}

/// All user code (codec, handler, conversions) runs inside the returned future, so that a panic
/// affects only its own message.
pub(super) fn starter<T, C, H, F, O, E, K>(
    codec: Arc<C>,
    handler: H,
    Rules { limit, undecodable }: Rules,
    queue: Label,
) -> Start
where
    T: Send + 'static,
    C: Decode<T>,
    H: Fn(Job<T>) -> F + Send + Sync + 'static,
    F: Future<Output = Result<O, E>> + Send + 'static,
    O: Into<Outcome> + 'static,
    E: HandlerError<K> + 'static,
{
    let handler = Arc::new(handler);
    Arc::new(move |delivery, lateness, control| {
        let (codec, handler, queue) = (Arc::clone(&codec), Arc::clone(&handler), queue.clone());
        Box::pin(async move {
            let message = delivery.message;
            let (payload, members) = match after::delivered(&message.headers, &message.payload) {
                Ok(delivered) => delivered,
                Err(error) => return undecodable.noted(&CodecError::new(error)),
            };
            let payload = match codec.decode(&payload) {
                Ok(payload) => payload,
                Err(error) => return undecodable.noted(&error),
            };
            let job = Job::new(
                payload,
                message.info,
                message.headers,
                message.checkpoint,
                delivery.lease,
                lateness,
                Arc::clone(&control),
                queue,
            )
            .with_members(members);
            let work = handler(job);
            let result = match limit {
                None => work.await,
                Some(limit) => match timeout(limit, work).await {
                    Ok(result) => result,
                    Err(_) => {
                        control.cancel(CancelReason::TimedOut);
                        return Outcome::retry(format!("timed out after {limit:?}"));
                    }
                },
            };
            // A handler of several kinds decodes the payload itself.
            if let Some(error) = control.undecodable() {
                return undecodable.noted(error);
            }
            match result {
                Ok(outcome) => outcome.into(),
                Err(error) => {
                    let (outcome, hold) = error.into_outcome().held();
                    let outcome = match outcome {
                        Outcome::Retry { error, .. } | Outcome::RetryAt { error, .. }
                            if control.reason() == Some(CancelReason::Stopping) =>
                        {
                            tracing::info!(error, "released because the worker is stopping");
                            Outcome::Release
                        }
                        outcome => outcome,
                    };
                    outcome.with_hold(hold)
                }
            }
        })
    })
}

/// The outcome of a handler's task that returned none.
pub(super) fn without_outcome(error: JoinError) -> Outcome {
    match error.try_into_panic() {
        Ok(panic) => Outcome::retry(panic_text(panic)),
        // Dropped, because the worker stops.
        Err(_) => Outcome::Release,
    }
}

/// The text of a panic.
pub(super) fn panic_text(panic: Box<dyn Any + Send>) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = format!("panicked: {}", text.unwrap_or("without a text"));
    // Dropping the panic's payload could panic again.
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(again);
    }
    text
}
