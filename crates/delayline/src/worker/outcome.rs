//! What a handler answers.

use std::time::Duration;

use delayline_core::limits::MAX_ERROR_BYTES;
use delayline_core::{Millis, Outcome as Settled};

/// How the handling of a message ended.
///
/// Delays are to the millisecond, rounded up, and 100 years at most. Of error texts the first 1024
/// bytes are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// Handled. The message is finished.
    Ack,
    /// Failed. It counts as a failure; the message is tried again, or is a dead letter after its
    /// last failure allowed (G9).
    Retry {
        /// From now to the next try; `None` as the worker's retry policy says.
        after: Option<Duration>,
        /// What went wrong.
        error: String,
    },
    /// Not now. Nothing is counted; the message is due again after this time.
    ///
    /// With no delay it is a [`Release`](Self::Release).
    Snooze(Duration),
    /// Not here. Nothing is counted; the message is ready again at once, for any worker.
    ///
    /// While all that its handlers answer is this, a worker claims less and less often, down to ten
    /// times a second, so that a message nobody wants is no hot loop.
    Release,
    /// Hopeless. The message is a dead letter, for this reason.
    Reject(String),
}

impl Outcome {
    /// Failed; to be tried again as the worker's retry policy says.
    #[must_use]
    pub fn retry(error: impl Into<String>) -> Self {
        Self::Retry { after: None, error: error.into() }
    }

    /// Failed; to be tried again after this time.
    #[must_use]
    pub fn retry_in(after: Duration, error: impl Into<String>) -> Self {
        Self::Retry { after: Some(after), error: error.into() }
    }

    /// Hopeless.
    #[must_use]
    pub fn reject(error: impl Into<String>) -> Self {
        Self::Reject(error.into())
    }

    /// As the contract has it; `policy` has the delay of a retry that names none, for its error.
    pub(crate) fn settled(self, policy: impl FnOnce(&str) -> Millis) -> Settled {
        match self {
            Self::Ack => Settled::Ack,
            Self::Retry { after, error } => {
                let error = truncated(error);
                Settled::Retry { delay: after.map_or_else(|| policy(&error), millis), error }
            }
            Self::Snooze(delay) => Settled::Snooze { delay: millis(delay) },
            Self::Release => Settled::Release,
            Self::Reject(error) => Settled::Reject { error: truncated(error) },
        }
    }
}

impl From<()> for Outcome {
    fn from((): ()) -> Self {
        Self::Ack
    }
}

fn millis(duration: Duration) -> Millis {
    Millis::try_from(duration).unwrap_or(Millis::MAX)
}

/// The first [`MAX_ERROR_BYTES`] bytes of a text, less the part of a character.
fn truncated(mut text: String) -> String {
    let fits = |end: &usize| text.is_char_boundary(*end);
    if text.len() > MAX_ERROR_BYTES {
        let end = (0..=MAX_ERROR_BYTES).rev().find(fits).unwrap_or(0);
        text.truncate(end);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_errors_are_cut_between_characters() {
        assert_eq!(truncated("x".repeat(2_000)).len(), MAX_ERROR_BYTES);
        // Three bytes each.
        assert_eq!(truncated("\u{20ac}".repeat(500)).len(), 1_023);
        assert_eq!(truncated("short".to_owned()), "short");
    }

    #[test]
    fn delays_beyond_the_limit_are_the_limit() {
        let settled = Outcome::Snooze(Duration::MAX).settled(|_| Millis::ZERO);
        assert_eq!(settled, Settled::Snooze { delay: Millis::MAX });
    }
}
