//! What a handler saves with its message, on the way to its worker.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use delayline_core::worker::Slot;
use delayline_core::{Progress, Save, Violation};
use tokio::sync::mpsc::UnboundedSender;

/// The saves that the worker has not taken yet, merged.
#[derive(Debug, Default)]
pub(crate) struct Saves {
    pending: Mutex<Pending>,
    /// Notifies the worker of a first save. Without a worker, the settlement takes the saves.
    worker: OnceLock<(Slot, UnboundedSender<Slot>)>,
}

/// The latest of each part.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    pub(crate) progress: Option<Progress>,
    pub(crate) checkpoint: Option<Bytes>,
}

impl Saves {
    pub(super) fn of(slot: Slot, worker: UnboundedSender<Slot>) -> Self {
        Self { pending: Mutex::default(), worker: OnceLock::from((slot, worker)) }
    }

    /// Checks a save and keeps it for the worker; a missing part stays.
    pub(super) fn put(
        &self,
        progress: Option<Progress>,
        checkpoint: Option<Bytes>,
    ) -> Result<(), Violation> {
        Save::new(1).progress(progress.clone()).checkpoint(checkpoint.clone()).validate()?;
        let was_empty = {
            let mut pending = self.lock();
            let was_empty = pending.is_empty();
            pending.progress = progress.or_else(|| pending.progress.take());
            pending.checkpoint = checkpoint.or_else(|| pending.checkpoint.take());
            was_empty
        };
        if was_empty && let Some((slot, worker)) = self.worker.get() {
            // A worker that has ended takes nothing: the lease is not renewed either.
            let _ = worker.send(*slot);
        }
        Ok(())
    }

    pub(crate) fn take(&self) -> Option<Pending> {
        Some(std::mem::take(&mut *self.lock())).filter(|pending| !pending.is_empty())
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pending {
    const fn is_empty(&self) -> bool {
        self.progress.is_none() && self.checkpoint.is_none()
    }
}
