//! Attempts to handle a message that did not succeed.

use crate::Timestamp;
use crate::limits::{MAX_ATTEMPT_ERROR_BYTES, MAX_ATTEMPTS};

/// An attempt to handle a message that did not succeed: a lease that ended in a failure, a
/// rejection, or a crash.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Attempt {
    /// When it ended. An expired lease ends with the claim that takes it back.
    pub at: Timestamp,
    /// How it ended.
    pub outcome: AttemptOutcome,
    /// The error text, cut between characters to [`MAX_ATTEMPT_ERROR_BYTES`].
    pub error: Option<String>,
}

impl Attempt {
    /// An attempt that ended at `at`. An empty text is no error; a long one is cut.
    #[must_use]
    pub fn new(at: Timestamp, outcome: AttemptOutcome, error: &str) -> Self {
        let mut cuts = (0..=error.len().min(MAX_ATTEMPT_ERROR_BYTES)).rev();
        let end = cuts.find(|end| error.is_char_boundary(*end)).unwrap_or(0);
        Self { at, outcome, error: (end > 0).then(|| error[..end].to_owned()) }
    }
}

/// How an attempt ended that did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum AttemptOutcome {
    /// The handler failed.
    Failed,
    /// The worker could not decode the payload.
    Undecodable,
    /// The handler rejected the message.
    Rejected,
    /// The lease expired.
    Crashed,
}

impl AttemptOutcome {
    /// Returns the name used in JSON: `failed`, `undecodable`, `rejected` or `crashed`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Undecodable => "undecodable",
            Self::Rejected => "rejected",
            Self::Crashed => "crashed",
        }
    }
}

/// The latest attempts of a message, oldest first.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub(crate) struct Attempts(Vec<Attempt>);

impl Attempts {
    /// Adds an attempt, and forgets the oldest of too many.
    pub(crate) fn note(&mut self, attempt: Attempt) {
        if self.0.len() >= MAX_ATTEMPTS {
            self.0.remove(0);
        }
        self.0.push(attempt);
    }

    pub(crate) fn as_slice(&self) -> &[Attempt] {
        &self.0
    }
}
