//! What a running handler wants to save with its message.

use bytes::Bytes;

use crate::{Progress, Save};

/// The saves of one handler, merged: only the latest progress and checkpoint are sent. Parts that
/// the queue has not confirmed are sent again, with a later number.
#[derive(Debug, Default)]
pub(super) struct Saving {
    /// The number of the latest save.
    number: u64,
    /// Everything up to this number is stored.
    confirmed: u64,
    /// The number of the save in the extension in progress.
    sent: u64,
    /// Each part, with the number of the save that it came with.
    progress: Option<(u64, Progress)>,
    checkpoint: Option<(u64, Bytes)>,
}

impl Saving {
    /// Takes a save; a missing part stays.
    pub(super) fn note(&mut self, progress: Option<Progress>, checkpoint: Option<Bytes>) {
        self.number += 1;
        let number = self.number;
        self.progress = progress.map(|it| (number, it)).or_else(|| self.progress.take());
        self.checkpoint = checkpoint.map(|it| (number, it)).or_else(|| self.checkpoint.take());
    }

    /// Returns what the queue has not confirmed, if anything.
    pub(super) fn unsaved(&self) -> Option<Save> {
        let progress = self.progress.as_ref().filter(|(number, _)| *number > self.confirmed);
        let checkpoint = self.checkpoint.as_ref().filter(|(number, _)| *number > self.confirmed);
        self.is_unsaved().then(|| {
            Save::new(self.number)
                .progress(progress.map(|(_, progress)| progress.clone()))
                .checkpoint(checkpoint.map(|(_, bytes)| bytes.clone()))
        })
    }

    pub(super) const fn is_unsaved(&self) -> bool {
        self.number > self.confirmed
    }

    pub(super) const fn sent(&mut self) {
        self.sent = self.number;
    }

    /// The extension in progress has extended the lease, with the save if it had one.
    pub(super) const fn confirmed(&mut self) {
        self.confirmed = self.sent;
    }

    /// Whether the extension in progress had a save is not known to have changed anything.
    pub(super) const fn failed(&mut self) {
        self.sent = self.confirmed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &'static str) -> Option<Bytes> {
        Some(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn what_is_not_confirmed_is_sent_again_with_what_came_later() {
        let mut saving = Saving::default();
        assert_eq!(saving.unsaved(), None);
        saving.note(None, bytes("one"));
        saving.sent();
        // The extension with the checkpoint is under way, and its fate unknown.
        saving.note(Some(Progress::new(0.5, "")), None);
        let both = saving.unsaved().unwrap();
        assert_eq!(
            (both.number, both.progress.is_some(), both.checkpoint),
            (2, true, bytes("one"))
        );
        saving.confirmed();
        let rest = saving.unsaved().unwrap();
        assert_eq!((rest.number, rest.progress.is_some(), rest.checkpoint), (2, true, None));
        saving.sent();
        saving.failed();
        assert!(saving.is_unsaved());
        saving.sent();
        saving.confirmed();
        assert_eq!(saving.unsaved(), None);
    }
}
