//! How a running handler learns that it should stop.

use std::sync::OnceLock;

use delayline_core::worker::CancelReason;
use tokio_util::sync::CancellationToken;

/// A token that remembers why it fired.
#[derive(Debug, Default)]
pub(super) struct Control {
    pub(super) token: CancellationToken,
    reason: OnceLock<CancelReason>,
}

impl Control {
    /// Fires the token. Only the first reason is kept.
    pub(super) fn cancel(&self, reason: CancelReason) {
        let _ = self.reason.set(reason);
        self.token.cancel();
    }

    pub(super) fn reason(&self) -> Option<CancelReason> {
        self.reason.get().copied()
    }
}
