//! The error type of this crate.

use std::convert::Infallible;
use std::fmt;
use std::ops::RangeInclusive;
use std::time::{Duration, SystemTime};

use delayline_core::limits::MAX_DELAY_MS;
use delayline_core::{ErrorClass, ErrorKind, MessageId, Millis, Timestamp, Violation};

use crate::codec::CodecError;

/// Why a call failed.
///
/// [`kind`](Self::kind) is the reason. [`class`](Self::class) says whether the operation may have
/// been executed, and [`is_retryable`](Self::is_retryable) whether the same call may succeed later.
/// The text begins with that of the kind and continues with details, such as an address or the
/// message of a codec. The cause is its [`source`](std::error::Error::source).
///
/// It never contains payloads or passwords. Clones are cheap.
///
/// ```
/// use delayline::{Error, ErrorKind, Queue};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// # let orders: Queue<u64> = delayline::connect("memory:").await?.queue("orders").await?;
/// let error = orders.message(&1234).id("").send().await.unwrap_err();
/// assert!(matches!(error.kind(), ErrorKind::Invalid(_)));
/// assert!(error.is_invalid() && !error.is_retryable());
/// assert_eq!(error.to_string(), "the message id is empty");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Error(delayline_core::Error);

impl Error {
    /// Why the call failed.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        self.0.kind()
    }

    /// Whether the operation was executed. With [`ErrorClass::Ambiguous`], it may have been; it has
    /// already been repeated, and can be repeated again with the same id, unless that is a finished
    /// one to [reuse](crate::Draft::reuse_finished_id).
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        self.0.class()
    }

    /// Returns `true` if the same call may succeed later: the server was busy, unreachable, or did
    /// not reply in time. Each call has already been repeated for as long as
    /// [`Queue::patience`](crate::Queue::patience) allows.
    ///
    /// To repeat a send without a second message, choose the [id](crate::Draft::id): see
    /// [`ErrorClass::Ambiguous`].
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.class() != ErrorClass::Rejected
    }

    /// Returns `true` if an argument was invalid, so that nothing was sent: [`ErrorKind::Invalid`]
    /// or [`ErrorKind::Encode`].
    #[must_use]
    pub fn is_invalid(&self) -> bool {
        matches!(self.kind(), ErrorKind::Invalid(_) | ErrorKind::Encode)
    }

    /// The codec cannot encode a value.
    pub(crate) fn encode(error: CodecError) -> Self {
        Self::codec(ErrorKind::Encode, error)
    }

    /// The codec cannot decode a payload.
    pub(crate) fn decode(error: CodecError) -> Self {
        Self::codec(ErrorKind::Decode, error)
    }

    fn codec(kind: ErrorKind, error: CodecError) -> Self {
        Self(delayline_core::Error::with_source(kind, error.to_string(), error))
    }

    pub(crate) fn unsupported(capability: &'static str) -> Self {
        Self(delayline_core::Error::new(ErrorKind::Unsupported(capability)))
    }

    /// The error of messages that were not sent because a send before them failed with this one.
    pub(crate) fn of_unsent(&self) -> Self {
        if self.class() != ErrorClass::Ambiguous {
            return self.clone();
        }
        let detail = "not sent, because the outcome of an earlier send is unknown";
        Self(delayline_core::Error::with_detail(ErrorKind::Unreachable, detail))
    }

    /// The task that was sending a message has ended or stands still, so the outcome is unknown.
    pub(crate) fn sender_gone() -> Self {
        Self(delayline_core::Error::with_detail(
            ErrorKind::ConnectionLost,
            "the runtime that was sending the message has ended or is not run, or the backend \
             panicked",
        ))
    }

    /// The backend's reply belongs to another operation.
    pub(crate) fn unexpected_reply() -> Self {
        Self(delayline_core::Error::with_detail(
            ErrorKind::Protocol,
            "the reply belongs to another operation",
        ))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

/// An error of a backend.
impl From<delayline_core::Error> for Error {
    fn from(error: delayline_core::Error) -> Self {
        Self(error)
    }
}

/// For code that takes a backend's error, such as a backend that wraps a queue.
impl From<Error> for delayline_core::Error {
    fn from(error: Error) -> Self {
        error.0
    }
}

impl From<Violation> for Error {
    fn from(violation: Violation) -> Self {
        Self(violation.into())
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

/// Converts a duration that a caller passed, within `range` in milliseconds, rounded up.
pub(crate) fn millis(
    what: &'static str,
    duration: Duration,
    range: RangeInclusive<u64>,
) -> Result<Millis, Violation> {
    let (actual, least, most) = (whole_ms(duration), *range.start(), *range.end());
    let within = range.contains(&actual).then(|| Millis::new(actual).ok()).flatten();
    within.ok_or(Violation::OutOfRange { what, actual, least, most })
}

/// The name of the instant at which messages become due.
pub(crate) const DUE: &str = "due: the instant in ms since 1970";

/// Converts an instant that a caller passed, rounded up to the millisecond.
pub(crate) fn timestamp(what: &'static str, instant: SystemTime) -> Result<Timestamp, Violation> {
    Timestamp::try_from(instant).map_err(|violation| match violation {
        Violation::OutOfRange { actual, least, most, .. } => {
            Violation::OutOfRange { what, actual, least, most }
        }
        other => other,
    })
}

/// Converts the delay that a caller passed.
pub(crate) fn valid_delay(delay: Duration) -> Result<Millis, Violation> {
    millis("delay: the duration in ms", delay, 0..=MAX_DELAY_MS)
}

/// The milliseconds of a duration, rounded up.
pub(crate) fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
