//! What can go wrong, and whether the operation may be sent again.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

/// What is known about an operation that failed, and so what a caller may do (see "What a failed call
/// means" in the guarantees).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Nothing was executed. The same operation may be sent again, after a pause.
    NotExecuted,
    /// The operation was refused and changed nothing. The same operation will be refused again
    /// until somebody changes the input, the permissions or the server.
    Rejected,
    /// The operation may have been executed. It can be sent again unchanged: ids, claim ids and
    /// leases make the second one a repetition, not a new effect. The exception is an enqueue with
    /// [`FinishedIds::Reuse`](crate::FinishedIds::Reuse): if the first message has finished meanwhile,
    /// the second one is new.
    Ambiguous,
}

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The input is outside of a limit. Nothing was sent. [`Class::Rejected`].
    Invalid(Violation),
    /// The server could not be reached: wrong host or port, refused, or no route.
    /// [`Class::NotExecuted`].
    Unreachable,
    /// The TLS session could not be set up: wrong authority, host name or date.
    /// [`Class::Rejected`].
    Tls,
    /// The server wants another user name or password. [`Class::Rejected`].
    Authentication,
    /// The user may not run a command or touch a key. [`Class::Rejected`].
    PermissionDenied,
    /// The server is a read-only replica. [`Class::NotExecuted`].
    ReadOnly,
    /// The server is at its memory limit and took nothing. [`Class::NotExecuted`].
    OutOfMemory,
    /// The server evicts keys when memory runs out, so it could eat messages.
    /// [`Class::Rejected`].
    Evicting {
        /// The server's `maxmemory-policy`.
        policy: String,
    },
    /// The server is loading, busy with a script, without its replicas, or moving the queue.
    /// [`Class::NotExecuted`].
    Busy,
    /// Too many operations wait in this process, or the server takes no more clients.
    /// [`Class::NotExecuted`].
    Overloaded,
    /// A key of the queue holds something else. [`Class::Rejected`].
    WrongType,
    /// What a queue knows about itself can no longer be read, so no operation is possible until it
    /// is removed; its messages stand elsewhere. The detail says what to remove. [`Class::Rejected`].
    Damaged,
    /// The queue was written by a newer version of this library. [`Class::Rejected`].
    NewerVersion {
        /// The schema version found with the queue.
        found: u64,
        /// The newest schema version that this library reads.
        supported: u64,
    },
    /// The queue was written by an older version of this library, with a layout that is not read any
    /// more. [`Class::Rejected`]: drain it with that version, or use another name.
    OlderVersion {
        /// The schema version found with the queue.
        found: u64,
        /// The only schema version that this library reads.
        supported: u64,
    },
    /// The connection was lost before the reply came. [`Class::Ambiguous`].
    ConnectionLost,
    /// No reply came in time. [`Class::Ambiguous`].
    Timeout,
    /// The operation was executed, but is not known to be as safe as its
    /// [`Durability`](crate::Durability) demands. [`Class::Ambiguous`].
    Unconfirmed,
    /// The reply could not be understood. [`Class::Ambiguous`].
    Protocol,
    /// The server answered with an error that this library does not know. [`Class::Ambiguous`].
    Server,
    /// The backend or this build lacks the named capability. [`Class::Rejected`].
    Unsupported(&'static str),
}

impl ErrorKind {
    /// What is known about the operation that failed so.
    #[must_use]
    pub const fn class(&self) -> Class {
        match self {
            Self::Unreachable
            | Self::ReadOnly
            | Self::OutOfMemory
            | Self::Busy
            | Self::Overloaded => Class::NotExecuted,
            Self::Invalid(_)
            | Self::Tls
            | Self::Authentication
            | Self::PermissionDenied
            | Self::Evicting { .. }
            | Self::WrongType
            | Self::Damaged
            | Self::NewerVersion { .. }
            | Self::OlderVersion { .. }
            | Self::Unsupported(_) => Class::Rejected,
            Self::ConnectionLost
            | Self::Timeout
            | Self::Unconfirmed
            | Self::Protocol
            | Self::Server => Class::Ambiguous,
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(violation) => write!(f, "{violation}"),
            Self::Unreachable => f.write_str("the server cannot be reached"),
            Self::Tls => f.write_str("the TLS session could not be set up"),
            Self::Authentication => f.write_str("the server refused the user name or password"),
            Self::PermissionDenied => {
                f.write_str("the server's access rules do not permit the operation")
            }
            Self::ReadOnly => f.write_str("the server is a read-only replica"),
            Self::OutOfMemory => f.write_str("the server is out of memory"),
            Self::Evicting { policy } => write!(
                f,
                "the server's maxmemory-policy is {policy}, which can evict messages; \
                 set it to noeviction"
            ),
            Self::Busy => f.write_str("the server cannot serve the operation now"),
            Self::Overloaded => f.write_str("too many operations or clients at once"),
            Self::WrongType => f.write_str("a key of the queue holds another type of value"),
            Self::Damaged => f.write_str("the queue's control record is damaged"),
            Self::NewerVersion { found, supported } => write!(
                f,
                "the queue has schema version {found}, and this library reads up to {supported}: \
                 use a newer library"
            ),
            Self::OlderVersion { found, supported } => write!(
                f,
                "the queue has schema version {found}, and this library reads {supported} only: \
                 drain it with the version that wrote it, or choose another name"
            ),
            Self::ConnectionLost => f.write_str("the connection was lost before the reply came"),
            Self::Timeout => f.write_str("no reply came in time"),
            Self::Unconfirmed => f.write_str("executed, but not confirmed to be safe"),
            Self::Protocol => f.write_str("the reply could not be understood"),
            Self::Server => f.write_str("the server answered with an error"),
            Self::Unsupported(capability) => write!(f, "{capability} is not supported here"),
        }
    }
}

/// A failed operation: what happened, what is known of it, and the cause.
///
/// Neither payloads nor passwords are ever part of it. It is cheap to clone, because one failed
/// batch answers many callers.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

struct Inner {
    kind: ErrorKind,
    detail: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error of the given kind, with nothing more to say.
    #[must_use]
    pub fn new(kind: ErrorKind) -> Self {
        Self::with_detail(kind, String::new())
    }

    /// An error of the given kind; `detail` says what the kind cannot, and never holds a payload
    /// or a password.
    #[must_use]
    pub fn with_detail(kind: ErrorKind, detail: impl Into<String>) -> Self {
        Self(Arc::new(Inner { kind, detail: detail.into(), source: None }))
    }

    /// An error of the given kind that another error caused. Its text must be free of secrets.
    #[must_use]
    pub fn with_source(
        kind: ErrorKind,
        detail: impl Into<String>,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self(Arc::new(Inner { kind, detail: detail.into(), source: Some(source.into()) }))
    }

    /// Why the operation failed.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// What is known about the operation, and so whether it may be sent again.
    #[must_use]
    pub fn class(&self) -> Class {
        self.0.kind.class()
    }

    /// What the kind cannot say: the server's words, an address. May be empty.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.0.detail
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.kind)?;
        if !self.0.detail.is_empty() {
            write!(f, ": {}", self.0.detail)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("detail", &self.0.detail)
            .field("source", &self.0.source)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

impl From<Violation> for Error {
    fn from(violation: Violation) -> Self {
        Self::new(ErrorKind::Invalid(violation))
    }
}

/// An input that is outside of a limit. Nothing was sent.
///
/// It names the value and the limit, and never holds a payload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A text or a batch is longer than it may be.
    #[error("{what} is {actual} {unit} long; at most {limit} are allowed")]
    TooLong {
        /// The input, in words.
        what: &'static str,
        /// What is counted: `bytes`, `items`.
        unit: &'static str,
        /// How many there are.
        actual: usize,
        /// How many there may be.
        limit: usize,
    },
    /// A text or a batch is empty and may not be.
    #[error("{what} is empty")]
    Empty {
        /// The input, in words.
        what: &'static str,
    },
    /// A number is outside of its range.
    #[error("{what} is {actual}; it must be from {least} to {most}")]
    OutOfRange {
        /// The input, in words, with its unit.
        what: &'static str,
        /// The value given.
        actual: u64,
        /// The least value allowed.
        least: u64,
        /// The greatest value allowed.
        most: u64,
    },
    /// An id stands twice in one batch.
    #[error("the id {id} stands twice in one batch")]
    RepeatedId {
        /// The id, printable.
        id: String,
    },
    /// A text is not in the expected form.
    #[error("{what} {value:?} is not valid: {reason}")]
    Malformed {
        /// The input, in words.
        what: &'static str,
        /// The value given. Never a URL with a password, never a payload.
        value: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl Violation {
    /// Checks that a count is at most `limit`.
    pub(crate) fn at_most(
        what: &'static str,
        unit: &'static str,
        actual: usize,
        limit: usize,
    ) -> Result<(), Self> {
        if actual > limit {
            return Err(Self::TooLong { what, unit, actual, limit });
        }
        Ok(())
    }

    /// Checks that a number is within a range, both ends included.
    pub(crate) fn within(
        what: &'static str,
        actual: u64,
        least: u64,
        most: u64,
    ) -> Result<(), Self> {
        if actual < least || actual > most {
            return Err(Self::OutOfRange { what, actual, least, most });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_tells_its_kind_its_detail_and_its_cause() {
        let cause = std::io::Error::other("the wire is cut");
        let error = Error::with_source(ErrorKind::ConnectionLost, "to 127.0.0.1", cause);
        assert_eq!((error.kind(), error.class()), (&ErrorKind::ConnectionLost, Class::Ambiguous));
        assert_eq!(error.detail(), "to 127.0.0.1");
        assert_eq!(error.source().map(ToString::to_string).as_deref(), Some("the wire is cut"));
        assert!(error.to_string().ends_with(": to 127.0.0.1"), "{error}");
        let debug = format!("{error:?}");
        assert!(debug.contains("ConnectionLost") && debug.contains("the wire is cut"), "{debug}");
        assert!(Error::new(ErrorKind::Busy).source().is_none());
        assert!(Error::new(ErrorKind::Busy).detail().is_empty());
    }
}
