//! What handlers save with their messages: progress and a checkpoint.

use std::fmt;

use bytes::Bytes;

use crate::Violation;
use crate::limits::{MAX_CHECKPOINT_BYTES, MAX_PROGRESS_TEXT_BYTES, MAX_SAVE_NUMBER};

/// The progress of a handler: a share of the work, and a short text.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[non_exhaustive]
pub struct Progress {
    /// Thousandths of the work that are done: 0 to 1,000.
    pub permille: u16,
    /// A text for people, such as "page 12 of 30": at most [`MAX_PROGRESS_TEXT_BYTES`]; may be
    /// empty.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "String::is_empty"))]
    pub text: String,
}

impl Progress {
    /// The permille of finished work.
    const ALL: u16 = 1_000;

    /// Creates a progress from a share of the work, from 0 to 1. Another number becomes the nearest
    /// of these, and NaN becomes 0.
    #[must_use]
    pub fn new(done: f64, text: impl Into<String>) -> Self {
        let wanted = (done.clamp(0.0, 1.0) * f64::from(Self::ALL)).round();
        // The first permille that is not below it; `f64` has no checked conversion.
        let permille = (0..=Self::ALL).find(|permille| f64::from(*permille) >= wanted);
        Self { permille: permille.unwrap_or(0), text: text.into() }
    }

    /// Creates a progress from thousandths of the work. Numbers above 1,000 become 1,000.
    #[must_use]
    pub fn from_permille(permille: u16, text: impl Into<String>) -> Self {
        Self { permille: permille.min(Self::ALL), text: text.into() }
    }

    /// Returns the share of the work that is done, from 0 to 1.
    #[must_use]
    pub fn done(&self) -> f64 {
        f64::from(self.permille) / f64::from(Self::ALL)
    }

    fn validate(&self) -> Result<(), Violation> {
        let (permille, most) = (self.permille.into(), Self::ALL.into());
        Violation::within("the progress in thousandths", permille, 0, most)?;
        let bytes = self.text.len();
        Violation::at_most("the text of the progress", "bytes", bytes, MAX_PROGRESS_TEXT_BYTES)
    }
}

/// Percent and text, such as `40 %, page 12 of 30`. The text is not escaped.
impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", self.permille / 10)?;
        if self.text.is_empty() { Ok(()) } else { write!(f, ", {}", self.text) }
    }
}

/// What the holder of a lease saves with its message (G40). The next attempt gets it.
///
/// A part that is missing stays as it was saved before. Its `Debug` output omits the checkpoint.
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
#[non_exhaustive]
pub struct Save {
    /// Its number among the saves under one lease: at most [`MAX_SAVE_NUMBER`]. One that is not
    /// above that of the stored save changes nothing, so a repeated or late save undoes no newer
    /// one. The numbers of an earlier lease do not matter.
    pub number: u64,
    /// The new progress; `None` keeps the stored one.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub progress: Option<Progress>,
    /// The new checkpoint, which only the handlers of the message interpret: at most
    /// [`MAX_CHECKPOINT_BYTES`]. `None` keeps the stored one.
    #[cfg_attr(
        feature = "serde",
        serde(
            default,
            with = "crate::form::optional_bytes",
            skip_serializing_if = "Option::is_none"
        )
    )]
    pub checkpoint: Option<Bytes>,
}

impl Save {
    /// Creates a save with this number that changes neither part.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self { number, progress: None, checkpoint: None }
    }

    /// Sets the progress; `None` keeps the stored one.
    #[must_use]
    pub fn progress(mut self, progress: impl Into<Option<Progress>>) -> Self {
        self.progress = progress.into();
        self
    }

    /// Sets the checkpoint; `None` keeps the stored one.
    #[must_use]
    pub fn checkpoint(mut self, checkpoint: impl Into<Option<Bytes>>) -> Self {
        self.checkpoint = checkpoint.into();
        self
    }

    /// Returns the number of bytes of text and checkpoint. All saves of one operation together have
    /// at most [`MAX_BATCH_BYTES`](crate::limits::MAX_BATCH_BYTES). The messages and results of a
    /// hand-off do not count.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let text = self.progress.as_ref().map_or(0, |progress| progress.text.len());
        text.saturating_add(self.checkpoint.as_ref().map_or(0, Bytes::len))
    }

    /// Checks its limits, as [`Op::validate`](crate::Op::validate) does for whole operations.
    ///
    /// # Errors
    ///
    /// [`Violation`], which names the value and the limit.
    pub fn validate(&self) -> Result<(), Violation> {
        Violation::within("the number of the save", self.number, 0, MAX_SAVE_NUMBER)?;
        self.progress.iter().try_for_each(Progress::validate)?;
        let bytes = self.checkpoint.as_ref().map_or(0, Bytes::len);
        Violation::at_most("the checkpoint", "bytes", bytes, MAX_CHECKPOINT_BYTES)
    }
}

impl fmt::Debug for Save {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Save")
            .field("number", &self.number)
            .field("progress", &self.progress)
            .field("checkpoint_bytes", &self.checkpoint.as_ref().map(Bytes::len))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_progress_is_a_share_in_thousandths() {
        let shares = [-1.0, 0.0, 0.4, 0.999_6, 1.0, f64::INFINITY, f64::NAN];
        let permille = shares.map(|share| Progress::new(share, "").permille);
        assert_eq!(permille, [0, 0, 400, 1_000, 1_000, 1_000, 0]);
        let shown = [("", "40 %"), ("page 12", "40 %, page 12")];
        shown
            .iter()
            .for_each(|(text, shown)| assert_eq!(Progress::new(0.4, *text).to_string(), *shown));
        assert!((Progress::new(0.25, "").done() - 0.25).abs() < f64::EPSILON);
    }

    #[test]
    fn checkpoints_are_not_in_debug_output() {
        let save = Save::new(7).checkpoint(Bytes::from_static(b"hunter2"));
        assert_eq!(format!("{save:?}").matches("hunter2").count(), 0);
    }
}
