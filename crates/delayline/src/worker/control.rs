//! State that a worker shares with a running handler.

use std::sync::OnceLock;

use delayline_core::worker::CancelReason;

use super::Cancellation;
use super::saves::Saves;
use crate::codec::CodecError;

/// The state that a worker and the handler of one message share.
#[derive(Debug, Default)]
pub(crate) struct Control {
    pub(super) cancellation: Cancellation,
    reason: OnceLock<CancelReason>,
    /// The kind of the message, as its handler is registered.
    kind: OnceLock<&'static str>,
    /// Why the payload cannot be decoded, if a handler has reported that.
    undecodable: OnceLock<CodecError>,
    pub(super) saves: Saves,
}

impl Control {
    /// For a handler that saves through its worker.
    pub(super) fn saving(saves: Saves) -> Self {
        Self { saves, ..Self::default() }
    }

    /// Fires the token. Only the first reason is kept.
    pub(super) fn cancel(&self, reason: CancelReason) {
        let _ = self.reason.set(reason);
        self.cancellation.cancel();
    }

    pub(super) fn reason(&self) -> Option<CancelReason> {
        self.reason.get().copied()
    }

    pub(crate) fn set_kind(&self, kind: &'static str) {
        let _ = self.kind.set(kind);
    }

    pub(crate) fn kind(&self) -> Option<&'static str> {
        self.kind.get().copied()
    }

    /// Makes the worker treat the payload as undecodable, whatever the handler returns.
    pub(crate) fn set_undecodable(&self, error: CodecError) {
        let _ = self.undecodable.set(error);
    }

    pub(super) fn undecodable(&self) -> Option<&CodecError> {
        self.undecodable.get()
    }
}
