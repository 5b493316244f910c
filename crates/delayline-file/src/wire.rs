//! The protocol between a process that has opened a directory and other processes.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Mutex, PoisonError};

use delayline_core::{Applied, Error, ErrorKind, Held, Op, Violation};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::DirectoryStatus;

/// The version of the protocol, which must be the same on both sides.
pub(crate) const VERSION: u32 = 4;

/// The first message of the process that has opened the directory.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) version: u32,
}

/// A request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ask {
    /// Asks for the names of all queues.
    Queues,
    /// Asks for the state of the directory.
    Status,
    /// Asks for the process's description of itself.
    About,
    /// Removes a queue if it holds nothing.
    Delete(String),
    /// Asks what a queue holds.
    Held(String),
    /// Applies an operation to a queue, at the instant of the directory's clock.
    Apply { queue: String, op: Op },
}

/// The reply to a request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    Queues(Vec<String>),
    Status(Box<DirectoryStatus>),
    About(String),
    /// Whether the queue existed, and its contents.
    Held {
        existed: bool,
        held: Held,
    },
    Applied(Box<Applied>),
    Failed(Failure),
}

/// An error, whose class and sentence are the same on both sides.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    kind: Kind,
    detail: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    /// One of [`PLAIN`], by its name.
    Plain(String),
    /// The directory has too many queues.
    TooLong {
        what: String,
        unit: String,
        actual: usize,
        limit: usize,
    },
    Unsupported(String),
    /// Another kind of this class, which a directory does not have. The detail is its sentence.
    Other(String),
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        let kind = match error.kind() {
            ErrorKind::Invalid(Violation::TooLong { what, unit, actual, limit }) => {
                let (what, unit) = ((*what).to_owned(), (*unit).to_owned());
                Kind::TooLong { what, unit, actual: *actual, limit: *limit }
            }
            ErrorKind::Unsupported(capability) => Kind::Unsupported((*capability).to_owned()),
            kind if PLAIN.contains(kind) => Kind::Plain(format!("{kind:?}")),
            kind => {
                let (class, detail) = (kind.class(), error.to_string());
                return Self { kind: Kind::Other(class.name().to_owned()), detail };
            }
        };
        Self { kind, detail: error.detail().to_owned() }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        let kind = match failure.kind {
            Kind::Plain(name) => {
                let known = PLAIN.into_iter().find(|kind| format!("{kind:?}") == name);
                known.unwrap_or(ErrorKind::Server)
            }
            Kind::TooLong { what, unit, actual, limit } => {
                let (what, unit) = (kept(what), kept(unit));
                ErrorKind::Invalid(Violation::TooLong { what, unit, actual, limit })
            }
            Kind::Unsupported(capability) => ErrorKind::Unsupported(kept(capability)),
            Kind::Other(class) => match class.as_str() {
                "rejected" => ErrorKind::Unsupported("the request"),
                "not_executed" => ErrorKind::Busy,
                _ => ErrorKind::Server,
            },
        };
        Self::with_detail(kind, failure.detail)
    }
}

/// A text for as long as this process runs, as errors have it. Each is kept once, and both sides
/// have the same few.
fn kept(text: String) -> &'static str {
    static TEXTS: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = texts.get(text.as_str()) {
        return known;
    }
    let text: &'static str = text.leak();
    texts.insert(text);
    text
}

/// Writes a message: its length, then MessagePack.
pub(crate) async fn write<T: Serialize>(
    to: &mut (impl AsyncWrite + Unpin),
    message: &T,
) -> io::Result<()> {
    let mut bytes = vec![0; HEAD];
    let mut serializer = rmp_serde::Serializer::new(&mut bytes).with_struct_map();
    message.serialize(&mut serializer).map_err(io::Error::other)?;
    let len = u32::try_from(bytes.len() - HEAD).ok().filter(|len| *len <= MAX_BYTES);
    let len = len.ok_or_else(|| io::Error::other("the message is too large for the socket"))?;
    bytes[..HEAD].copy_from_slice(&len.to_le_bytes());
    to.write_all(&bytes).await?;
    to.flush().await
}

/// Reads a message, or returns `None` if the other side has closed the connection before it.
pub(crate) async fn read<T: DeserializeOwned>(
    from: &mut (impl AsyncRead + Unpin),
) -> io::Result<Option<T>> {
    let mut len = [0; HEAD];
    if from.read(&mut len[..1]).await? == 0 {
        return Ok(None);
    }
    from.read_exact(&mut len[1..]).await?;
    let len = u32::from_le_bytes(len);
    if len > MAX_BYTES {
        return Err(io::Error::other("a message on the socket is too large"));
    }
    // It grows with the data that arrives, so a large length alone takes no memory.
    let mut bytes = Vec::new();
    from.take(u64::from(len)).read_to_end(&mut bytes).await?;
    rmp_serde::from_slice(&bytes).map(Some).map_err(io::Error::other)
}

/// The kinds without parts.
const PLAIN: [ErrorKind; 22] = [
    ErrorKind::Encode,
    ErrorKind::Decode,
    ErrorKind::Unreachable,
    ErrorKind::Tls,
    ErrorKind::Authentication,
    ErrorKind::PermissionDenied,
    ErrorKind::ReadOnly,
    ErrorKind::OutOfMemory,
    ErrorKind::Busy,
    ErrorKind::InUse,
    ErrorKind::DiskFull,
    ErrorKind::Storage,
    ErrorKind::DiskFailed,
    ErrorKind::Overloaded,
    ErrorKind::WrongType,
    ErrorKind::Damaged,
    ErrorKind::Partial,
    ErrorKind::ConnectionLost,
    ErrorKind::Timeout,
    ErrorKind::Unconfirmed,
    ErrorKind::Protocol,
    ErrorKind::Server,
];

/// Bytes of the length in front of each message.
const HEAD: usize = 4;

/// Maximum number of bytes of a message: more than the largest operation or reply has.
const MAX_BYTES: u32 = 256 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// A command decides by the class of an error whether it repeats the call, and by its kind with
    /// which exit code it ends.
    #[test]
    fn an_error_is_the_same_on_both_sides() {
        let received = |sent: &Error| {
            let bytes = rmp_serde::to_vec_named(&Failure::from(sent)).unwrap();
            Error::from(rmp_serde::from_slice::<Failure>(&bytes).unwrap())
        };
        let (what, unit, actual, limit) = ("the directory", "queues", 9, 8);
        let too_long = Violation::TooLong { what, unit, actual, limit };
        let with_parts = [ErrorKind::Invalid(too_long), ErrorKind::Unsupported("the operation")];
        for kind in PLAIN.into_iter().chain(with_parts) {
            for sent in [Error::new(kind.clone()), Error::with_detail(kind, "the reason")] {
                let received = received(&sent);
                assert_eq!(received.kind(), sent.kind());
                assert_eq!(received.to_string(), sent.to_string());
            }
        }
        for kind in [
            ErrorKind::Upgrading { from: 1, to: 2 },
            ErrorKind::OtherShards { found: 2, requested: 3 },
        ] {
            let sent = Error::with_detail(kind, "the reason");
            let received = received(&sent);
            assert_eq!(received.class(), sent.class());
            assert!(received.to_string().ends_with(&sent.to_string()), "{received}");
        }
    }
}
