//! One operation on its way to the backend.

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;

use delayline_core::{Applied, At, Error, Op, Queueing};
use tokio::time::Instant;

/// At most one operation under way, to be awaited next to other things: giving up the wait does
/// not give up the operation.
#[derive(Default)]
pub(super) struct Flight(Option<Pin<Box<dyn Future<Output = Landed> + Send>>>);

/// An operation that has been answered, or has failed.
pub(super) struct Landed {
    pub(super) op: Op,
    pub(super) sent_at: Instant,
    pub(super) result: Result<Applied, Error>,
}

impl Flight {
    pub(super) const fn is_idle(&self) -> bool {
        self.0.is_none()
    }

    pub(super) fn launch(&mut self, backend: &Arc<dyn Queueing>, op: Op) {
        let backend = Arc::clone(backend);
        self.0 = Some(Box::pin(async move {
            let sent_at = Instant::now();
            let result = backend.apply(At::Server, &op).await;
            Landed { op, sent_at, result }
        }));
    }

    /// Waits for the operation; for ever if there is none.
    pub(super) async fn landed(&mut self) -> Landed {
        match &mut self.0 {
            Some(call) => {
                let landed = call.await;
                self.0 = None;
                landed
            }
            None => pending().await,
        }
    }
}
