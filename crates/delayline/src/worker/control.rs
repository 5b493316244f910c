//! How a running handler learns that it had better stop.

use std::sync::OnceLock;

use tokio_util::sync::CancellationToken;

/// Why a handler's cancellation token fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CancelReason {
    /// The lease has been lost or has run out: another worker may have the message.
    LeaseLost,
    /// Somebody cancelled the message (G13). Unless the handler acks, the message is finished.
    Requested,
    /// The worker stops and waits no longer.
    Stopping,
    /// The handler ran longer than its timeout and has been dropped; only what it spawned can see
    /// this.
    TimedOut,
}

/// A token that remembers why it fired.
#[derive(Debug, Default)]
pub(super) struct Control {
    pub(super) token: CancellationToken,
    reason: OnceLock<CancelReason>,
}

impl Control {
    /// Fires the token. The first reason stays.
    pub(super) fn cancel(&self, reason: CancelReason) {
        let _ = self.reason.set(reason);
        self.token.cancel();
    }

    pub(super) fn reason(&self) -> Option<CancelReason> {
        self.reason.get().copied()
    }
}
