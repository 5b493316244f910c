//! The one error type of this crate.

use std::convert::Infallible;

use delayline_core::{Class, ErrorKind, MessageId, Violation};

use crate::CodecError;

/// Why a call failed.
///
/// Neither payloads nor passwords are ever part of it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The backend refused the operation, failed, or could not be reached. With
    /// [`Class::Ambiguous`] the operation may have been executed; it was repeated already, and may
    /// be repeated again (with the id that it had).
    #[error(transparent)]
    Backend(#[from] delayline_core::Error),
    /// A value could not be made a payload. Nothing was sent.
    #[error("the value could not be encoded")]
    Encode(#[source] CodecError),
    /// A payload could not be made a value.
    #[error("the payload could not be decoded")]
    Decode(#[source] CodecError),
}

impl Error {
    /// What is known about the operation, and so whether it may be sent again.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::Backend(error) => error.class(),
            Self::Encode(_) | Self::Decode(_) => Class::Rejected,
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

    /// A batch of which not everything was sent is over: this is for the rest.
    pub(crate) fn not_sent() -> Self {
        Self::Backend(delayline_core::Error::with_detail(
            ErrorKind::Unreachable,
            "not sent, because an earlier part of the batch failed",
        ))
    }

    /// The task that was sending a message is gone, and with it what it knew.
    pub(crate) fn sender_gone() -> Self {
        Self::Backend(delayline_core::Error::with_detail(
            ErrorKind::ConnectionLost,
            "the runtime that was sending the message has ended, or the backend panicked",
        ))
    }

    /// A backend that answers something else than it was asked.
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

/// Lets a [`MessageId`] stand where `impl TryInto<MessageId>` is asked for.
impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// The id that a caller gave in some form.
pub(crate) fn message_id<I>(id: I) -> Result<MessageId, Error>
where
    I: TryInto<MessageId>,
    I::Error: Into<Error>,
{
    id.try_into().map_err(Into::into)
}
