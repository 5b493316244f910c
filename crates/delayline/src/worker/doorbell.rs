//! The doorbell: hints that there may be something to claim.

use std::sync::Arc;
use std::time::Duration;

use delayline_core::{ErrorKind, Queueing, Wakeup};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use super::pace::{new_pauses, poll_period};

/// Waits for hints in a task of its own: a wait that is given up could take a hint along.
pub(super) struct Doorbell {
    listening: watch::Sender<bool>,
    rings: Arc<Notify>,
    _listener: AbortOnDropHandle<()>,
}

impl Doorbell {
    pub(super) fn new(backend: Arc<dyn Queueing>) -> Self {
        let (sender, receiver) = watch::channel(false);
        let rings = Arc::new(Notify::new());
        let listener = tokio::spawn(listen(backend, receiver, Arc::clone(&rings)));
        Self { listening: sender, rings, _listener: AbortOnDropHandle::new(listener) }
    }

    /// Says whether hints are of use: not while all slots are taken, when they had better wake
    /// another process. A wait under way goes on, and its hint is kept.
    pub(super) fn listen_if(&self, useful: bool) {
        self.listening.send_if_modified(|listening| {
            let changed = *listening != useful;
            *listening = useful;
            changed
        });
    }

    /// Waits for a hint. One that came earlier is kept.
    pub(super) async fn rang(&self) {
        self.rings.notified().await;
    }
}

async fn listen(
    backend: Arc<dyn Queueing>,
    mut listening: watch::Receiver<bool>,
    rings: Arc<Notify>,
) {
    let mut pauses = new_pauses();
    while listening.wait_for(|listening| *listening).await.is_ok() {
        let started = Instant::now();
        match Wakeup::wait(&backend, poll_period()).await {
            Ok(true) => {
                pauses.reset();
                rings.notify_one();
            }
            Ok(false) => {
                pauses.reset();
                // A backend that answers "none" at once must not be asked without end.
                sleep_until(started + SHORTEST_WAIT).await;
            }
            Err(error) if matches!(error.kind(), ErrorKind::Unsupported(_)) => {
                tracing::debug!(%error, "no hints: messages are looked for by timer only");
                return;
            }
            Err(error) => {
                tracing::debug!(%error, "no hints at the moment");
                sleep(pauses.next()).await;
            }
        }
    }
}

const SHORTEST_WAIT: Duration = Duration::from_millis(100);
