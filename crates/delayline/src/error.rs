//! The error type of this crate.

use std::convert::Infallible;

use delayline_core::{ErrorClass, ErrorKind, MessageId, Violation};

use crate::CodecError;

/// Why a call failed.
///
/// It never contains payloads or passwords. [`class`](Self::class) says whether the call can be
/// repeated, [`kind`](Self::kind) why the backend failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The backend refused the operation, failed, or could not be reached. With
    /// [`ErrorClass::Ambiguous`] the operation may have been executed; it has already been repeated, and
    /// can be repeated again with the same id.
    #[error(transparent)]
    Backend(#[from] delayline_core::Error),
    /// A value could not be encoded. Nothing was sent.
    #[error("the value could not be encoded")]
    Encode(#[source] CodecError),
    /// A payload could not be decoded.
    #[error("a payload could not be decoded")]
    Decode(#[source] CodecError),
}

impl Error {
    /// What is known about the operation, and so whether it can be repeated. A codec's error is
    /// [`ErrorClass::Rejected`].
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Backend(error) => error.class(),
            Self::Encode(_) | Self::Decode(_) => ErrorClass::Rejected,
        }
    }

    /// Why the backend refused or failed; `None` for a codec's error.
    #[must_use]
    pub fn kind(&self) -> Option<&ErrorKind> {
        match self {
            Self::Backend(error) => Some(error.kind()),
            Self::Encode(_) | Self::Decode(_) => None,
        }
    }

    /// For the messages of a batch that were not sent because an earlier part failed.
    pub(crate) fn not_sent() -> Self {
        Self::Backend(delayline_core::Error::with_detail(
            ErrorKind::Unreachable,
            "not sent, because an earlier part of the batch failed",
        ))
    }

    /// The task that was sending a message has ended, so the outcome is unknown.
    pub(crate) fn sender_gone() -> Self {
        Self::Backend(delayline_core::Error::with_detail(
            ErrorKind::ConnectionLost,
            "the runtime that was sending the message has ended, or the backend panicked",
        ))
    }

    /// The backend replied to another operation than the one requested.
    pub(crate) fn unexpected_reply() -> Self {
        Self::Backend(delayline_core::Error::with_detail(
            ErrorKind::Protocol,
            "the reply belongs to another operation",
        ))
    }
}

impl From<Violation> for Error {
    fn from(violation: Violation) -> Self {
        Self::Backend(violation.into())
    }
}

/// Lets callers pass a [`MessageId`] where `impl TryInto<MessageId>` is expected.
impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// Converts the id that a caller passed.
pub(crate) fn message_id<I>(id: I) -> Result<MessageId, Error>
where
    I: TryInto<MessageId>,
    I::Error: Into<Error>,
{
    id.try_into().map_err(Into::into)
}
