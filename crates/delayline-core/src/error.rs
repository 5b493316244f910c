//! Errors, and whether the failed operation may be repeated.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

/// The certainty about a failed operation, which decides the caller's next step (see "What a failed
/// call means" in the guarantees).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// Nothing was executed. The same operation may be repeated after a delay.
    NotExecuted,
    /// The operation was refused and changed nothing. It will be refused again until the input, the
    /// permissions or the server change.
    Rejected,
    /// The operation may have been executed. It can be repeated unchanged: because of its ids,
    /// claim id or leases, this has no second effect. The exception is an enqueue with
    /// [`FinishedIds::Reuse`](crate::FinishedIds::Reuse) that is not an
    /// [update](crate::Known::Update). If the first message has finished in the meantime, repeating
    /// it creates another one, unless its [`throttle`](crate::NewMessage::throttle) still lasts.
    Ambiguous,
}

impl ErrorClass {
    /// Returns the name used in JSON, logs and metric labels: `not_executed`, `rejected` or
    /// `ambiguous`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotExecuted => "not_executed",
            Self::Rejected => "rejected",
            Self::Ambiguous => "ambiguous",
        }
    }
}

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The input violates a limit. Nothing was sent. [`ErrorClass::Rejected`].
    Invalid(Violation),
    /// The program's codec cannot encode the value. Nothing was sent. Backends never fail this way.
    /// [`ErrorClass::Rejected`].
    Encode,
    /// The program's codec cannot decode the payload. Backends never fail this way.
    /// [`ErrorClass::Rejected`].
    Decode,
    /// The server could not be reached: wrong host or port, connection refused, or no route.
    /// [`ErrorClass::NotExecuted`].
    Unreachable,
    /// The TLS session could not be established: wrong authority, host name or date.
    /// [`ErrorClass::Rejected`].
    Tls,
    /// The server refused the user name or password, or in protected mode a client without them.
    /// [`ErrorClass::Rejected`].
    Authentication,
    /// The user may not run a command or access a key. [`ErrorClass::Rejected`].
    PermissionDenied,
    /// The server is a read-only replica. [`ErrorClass::NotExecuted`].
    ReadOnly,
    /// The server has reached its memory limit and stored nothing. [`ErrorClass::NotExecuted`].
    OutOfMemory,
    /// The server evicts keys when it runs out of memory, so it could delete messages.
    /// [`ErrorClass::Rejected`].
    Evicting {
        /// The server's `maxmemory-policy`.
        policy: String,
    },
    /// The server is loading, busy with a script, short of replicas, or moving the queue.
    /// [`ErrorClass::NotExecuted`].
    Busy,
    /// Another process, or another part of this one, uses the directory of the queues. The detail
    /// names it and says what to do. [`ErrorClass::NotExecuted`].
    InUse,
    /// The disk has no space for the operation. Operations that free space still work.
    /// [`ErrorClass::NotExecuted`].
    DiskFull,
    /// The directory of the queues cannot be opened: it is damaged, belongs to another program, or
    /// cannot be written. The detail says where, and what to do. [`ErrorClass::Rejected`].
    Storage,
    /// The disk failed while the operation was stored. The queues have to be opened again.
    /// [`ErrorClass::Ambiguous`].
    DiskFailed,
    /// Too many operations are waiting in this process, or the server accepts no more clients.
    /// [`ErrorClass::NotExecuted`].
    Overloaded,
    /// A key of the queue, or the destination of a relay, holds another type of value.
    /// [`ErrorClass::Rejected`].
    WrongType,
    /// The queue's control record cannot be read, so no operation is possible until it is removed;
    /// messages are stored elsewhere. The detail says what to remove. [`ErrorClass::Rejected`].
    Damaged,
    /// The queue was written by a newer version of this library. [`ErrorClass::Rejected`].
    NewerVersion {
        /// The schema version of the queue.
        found: u64,
        /// The newest schema version that this library supports.
        supported: u64,
    },
    /// The queue was written by an older version of this library, in another layout.
    /// [`ErrorClass::Rejected`]: run `delayline upgrade`, or drain the queue with that version.
    OlderVersion {
        /// The schema version of the queue.
        found: u64,
        /// The only schema version that this library supports.
        supported: u64,
    },
    /// The queue uses a feature that a newer version of this library has added. Queues that do not
    /// use it are open to both versions. [`ErrorClass::Rejected`]: install that version, or a newer
    /// one.
    NewerFeature {
        /// The major version that knows the feature.
        major: u64,
        /// Its minor version.
        minor: u64,
    },
    /// The queue is being upgraded to another layout. [`ErrorClass::NotExecuted`]: repeat the
    /// operation once `delayline upgrade` has finished. If that was interrupted, run it again:
    /// anyone may.
    Upgrading {
        /// The schema version that the queue had.
        from: u64,
        /// The schema version that it will have.
        to: u64,
    },
    /// The queue has another number of shards than was requested; 1 if it holds messages without
    /// shards. [`ErrorClass::Rejected`].
    OtherShards {
        /// The number of shards of the queue.
        found: u32,
        /// The number that was requested.
        requested: u32,
    },
    /// Some shards of the queue executed their part of the operation, and others failed. The detail
    /// names the first of these. [`ErrorClass::Ambiguous`].
    Partial,
    /// The connection was lost before the reply arrived. [`ErrorClass::Ambiguous`].
    ConnectionLost,
    /// No reply arrived in time. [`ErrorClass::Ambiguous`].
    Timeout,
    /// The operation was executed, but the [`Durability`](crate::Durability) that it requires was
    /// not confirmed. [`ErrorClass::Ambiguous`].
    Unconfirmed,
    /// The reply could not be understood. [`ErrorClass::Ambiguous`].
    Protocol,
    /// The server returned an error that this library does not know. [`ErrorClass::Ambiguous`].
    Server,
    /// The backend or this build lacks the named capability. [`ErrorClass::Rejected`].
    Unsupported(&'static str),
}

impl ErrorKind {
    /// Returns the class of an operation that failed this way.
    #[must_use]
    pub const fn class(&self) -> ErrorClass {
        match self {
            Self::Unreachable
            | Self::ReadOnly
            | Self::OutOfMemory
            | Self::Busy
            | Self::InUse
            | Self::DiskFull
            | Self::Upgrading { .. }
            | Self::Overloaded => ErrorClass::NotExecuted,
            Self::Invalid(_)
            | Self::Encode
            | Self::Decode
            | Self::Tls
            | Self::Authentication
            | Self::PermissionDenied
            | Self::Evicting { .. }
            | Self::WrongType
            | Self::Damaged
            | Self::Storage
            | Self::NewerVersion { .. }
            | Self::OlderVersion { .. }
            | Self::NewerFeature { .. }
            | Self::OtherShards { .. }
            | Self::Unsupported(_) => ErrorClass::Rejected,
            Self::Partial
            | Self::ConnectionLost
            | Self::Timeout
            | Self::Unconfirmed
            | Self::Protocol
            | Self::DiskFailed
            | Self::Server => ErrorClass::Ambiguous,
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(violation) => write!(f, "{violation}"),
            Self::Encode => f.write_str("the value could not be encoded"),
            Self::Decode => f.write_str("the payload could not be decoded"),
            Self::Unreachable => f.write_str("the server cannot be reached"),
            Self::Tls => f.write_str("the TLS session could not be set up"),
            Self::Authentication => {
                f.write_str("the server did not accept the user name or password")
            }
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
            Self::InUse => f.write_str("the directory of the queues is in use"),
            Self::DiskFull => f.write_str("the disk has no space for the operation"),
            Self::Storage => f.write_str("the directory of the queues cannot be opened"),
            Self::DiskFailed => {
                f.write_str("the disk failed, and the queues have to be opened again")
            }
            Self::Overloaded => f.write_str("too many operations or clients at once"),
            Self::WrongType => f.write_str("a key holds another type of value"),
            Self::Damaged => f.write_str("the queue's control record is damaged"),
            Self::NewerVersion { found, supported } => write!(
                f,
                "the queue has schema version {found}, and this library reads up to {supported}: \
                 use a newer library"
            ),
            Self::OlderVersion { found, supported } => write!(
                f,
                "the queue has schema version {found}, and this library reads {supported} only: \
                 run `delayline upgrade`, or drain it with the version that wrote it"
            ),
            Self::NewerFeature { major, minor } => {
                write!(f, "the queue uses a feature of version {major}.{minor}: use that version")
            }
            Self::Upgrading { from, to } => write!(
                f,
                "the queue is being upgraded from schema version {from} to {to}: try again later, \
                 and if the upgrade was interrupted, run `delayline upgrade` again"
            ),
            Self::OtherShards { found: ..=1, requested } => write!(
                f,
                "the queue holds messages without shards, and {requested} shards were requested: \
                 drain it first, or use another queue"
            ),
            Self::OtherShards { found, requested } => write!(
                f,
                "the queue has {found} shards, and {requested} were requested: open it with \
                 {found}, or without a number"
            ),
            Self::Partial => f.write_str("only some shards of the queue executed the operation"),
            Self::ConnectionLost => f.write_str("the connection was lost before the reply arrived"),
            Self::Timeout => f.write_str("no reply arrived in time"),
            Self::Unconfirmed => f.write_str("executed, but its durability was not confirmed"),
            Self::Protocol => f.write_str("the reply could not be understood"),
            Self::Server => f.write_str("the server answered with an error"),
            Self::Unsupported(capability) => write!(f, "{capability} is not supported here"),
        }
    }
}

/// A failed operation: its kind, its class, its text and its cause.
///
/// Never contains payloads or passwords. Cheap to clone, because one failed batch is reported to
/// many callers.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

struct Inner {
    kind: ErrorKind,
    detail: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// Creates an error of the given kind, without further detail.
    #[must_use]
    pub fn new(kind: ErrorKind) -> Self {
        Self::with_detail(kind, String::new())
    }

    /// Creates an error of the given kind with details, which must not contain payloads or
    /// passwords.
    #[must_use]
    pub fn with_detail(kind: ErrorKind, detail: impl Into<String>) -> Self {
        Self(Arc::new(Inner { kind, detail: detail.into(), source: None }))
    }

    /// Creates an error of the given kind with its cause, whose text must be free of secrets.
    #[must_use]
    pub fn with_source(
        kind: ErrorKind,
        detail: impl Into<String>,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self(Arc::new(Inner { kind, detail: detail.into(), source: Some(source.into()) }))
    }

    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// Returns the class of the error, which says whether the operation may be repeated.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        self.0.kind.class()
    }

    /// Returns details such as the server's error text or an address. May be empty.
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

/// An input that violates a limit. Nothing was sent.
///
/// Names the value and the limit, and never contains a payload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A text or a batch is too long.
    #[error("{what} is {actual} {unit} long; at most {limit} are allowed")]
    TooLong {
        /// The name of the input.
        what: &'static str,
        /// The counted unit: `bytes`, `items`.
        unit: &'static str,
        /// The actual length.
        actual: usize,
        /// The greatest length allowed.
        limit: usize,
    },
    /// A text or a batch is empty but must not be.
    #[error("{what} is empty")]
    Empty {
        /// The name of the input.
        what: &'static str,
    },
    /// A number is out of range.
    #[error("{what} is {actual}; it must be from {least} to {most}")]
    OutOfRange {
        /// The name of the input, with its unit.
        what: &'static str,
        /// The value given.
        actual: u64,
        /// The least value allowed.
        least: u64,
        /// The greatest value allowed.
        most: u64,
    },
    /// An id appears twice in one batch.
    #[error("the id {id} appears more than once in the batch")]
    RepeatedId {
        /// The id, in printable form.
        id: String,
    },
    /// A message was made for one queue and passed to another.
    #[error("a message of the queue {made_for} cannot be sent to the queue {queue}")]
    OtherQueue {
        /// The name of the queue that the message was made for.
        made_for: String,
        /// The name of the queue that it was passed to.
        queue: String,
    },
    /// A text does not have the expected form.
    #[error("{what} {value:?} is not valid: {reason}")]
    Malformed {
        /// The name of the input.
        what: &'static str,
        /// The value given. Never a URL with a password, and never a payload.
        value: String,
        /// The reason why it is wrong.
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

    /// Checks that a number is within a range, including both ends.
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
        assert_eq!(
            (error.kind(), error.class()),
            (&ErrorKind::ConnectionLost, ErrorClass::Ambiguous)
        );
        assert_eq!(error.detail(), "to 127.0.0.1");
        assert_eq!(error.source().map(ToString::to_string).as_deref(), Some("the wire is cut"));
        assert!(error.to_string().ends_with(": to 127.0.0.1"), "{error}");
        let debug = format!("{error:?}");
        assert!(debug.contains("ConnectionLost") && debug.contains("the wire is cut"), "{debug}");
        assert!(Error::new(ErrorKind::Busy).source().is_none());
        assert!(Error::new(ErrorKind::Busy).detail().is_empty());
    }
}
