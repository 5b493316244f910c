//! What a handler returns.

use std::time::Duration;

use delayline_core::limits::MAX_ERROR_BYTES;
use delayline_core::{Millis, Outcome as Settled};

/// How the handling of a message ended.
///
/// Delays are rounded up to the millisecond and limited to 100 years. Error texts are cut after
/// 1024 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// Handled: the message is finished.
    Ack,
    /// Failed: counts as a failure. The message is retried, or becomes a dead letter after its last
    /// allowed failure (G9).
    #[doc(alias = "nack")]
    Retry {
        /// The delay from now until the retry; `None` to use the worker's retry policy.
        after: Option<Duration>,
        /// What went wrong.
        error: String,
    },
    /// Not now: nothing is counted. The message is due again after this delay.
    ///
    /// With no delay it is a [`Release`](Self::Release).
    #[doc(alias = "defer")]
    Snooze(Duration),
    /// Not here: nothing is counted. The message is ready again at once, for any worker.
    ///
    /// While handlers return nothing else, a worker claims less and less often, down to ten times a
    /// second, so that a message that no worker wants does not cause a busy loop.
    #[doc(alias = "requeue")]
    Release,
    /// Hopeless: the message becomes a dead letter, with this text as the error.
    #[doc(alias = "DLQ")]
    Reject(String),
}

impl Outcome {
    /// Failed; to be retried as the worker's retry policy says.
    #[must_use]
    pub fn retry(error: impl Into<String>) -> Self {
        Self::Retry { after: None, error: error.into() }
    }

    /// Failed; to be retried after this delay.
    #[must_use]
    pub fn retry_in(after: Duration, error: impl Into<String>) -> Self {
        Self::Retry { after: Some(after), error: error.into() }
    }

    /// Hopeless; to become a dead letter.
    #[must_use]
    pub fn reject(error: impl Into<String>) -> Self {
        Self::Reject(error.into())
    }

    /// Converts to the outcome of the contract. `policy` returns the delay for a retry without one,
    /// given its error.
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

/// At most the first [`MAX_ERROR_BYTES`] bytes of a text, cut between characters.
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
