//! Messages whose payloads the codec cannot decode.

use super::Outcome;
use crate::codec::CodecError;

/// How a worker treats a message whose payload its codec cannot decode: see
/// [`WorkerBuilder::on_undecodable`](super::WorkerBuilder::on_undecodable).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Undecodable {
    /// Count a failure, and retry the message according to the worker's retry policy: a worker that
    /// can decode it may get it then. At its last allowed failure, it becomes a dead letter
    /// ([`DeathReason::Undecodable`](crate::message::DeathReason::Undecodable)).
    #[default]
    Retry,
    /// Release the message, without counting, until another worker gets it. The queue may also
    /// deliver it to this worker again at once, so use this only while both versions of a program
    /// run.
    Release,
    /// Make the message a dead letter at once
    /// ([`DeathReason::Rejected`](crate::message::DeathReason::Rejected)).
    Reject,
}

impl Undecodable {
    /// The outcome of a message that cannot be decoded; logs it.
    pub(super) fn noted(self, error: &CodecError) -> Outcome {
        tracing::warn!(%error, "the payload cannot be decoded");
        self.outcome(error)
    }

    fn outcome(self, error: &CodecError) -> Outcome {
        let text = || format!("{UNDECODABLE}: {error}");
        match self {
            Self::Retry => Outcome::Undecodable(text()),
            Self::Release => Outcome::Release,
            Self::Reject => Outcome::reject(text()),
        }
    }
}

/// The beginning of the stored error.
const UNDECODABLE: &str = "the payload could not be decoded";
