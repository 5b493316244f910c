//! The protocol between a process that has opened a directory and other processes.

use std::io;

use delayline_core::{Applied, Error, ErrorKind, Held, Op};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::DirectoryStatus;

/// The version of the protocol, which must be the same on both sides.
pub(crate) const VERSION: u32 = 2;

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
    /// Whether the queue existed, and its contents. If it was empty, it was removed.
    Deleted {
        existed: bool,
        held: Held,
    },
    Applied(Box<Applied>),
    Failed(Failure),
}

/// An error. Its class is kept; kinds with borrowed parts become other kinds of that class.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Failure {
    DiskFull(String),
    DiskFailed(String),
    Busy(String),
    Refused(String),
    Unknown(String),
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        let detail = error.detail().to_owned();
        match error.kind() {
            ErrorKind::DiskFull => Self::DiskFull(detail),
            ErrorKind::DiskFailed => Self::DiskFailed(detail),
            ErrorKind::Busy => Self::Busy(detail),
            _ if error.class() == delayline_core::ErrorClass::Rejected => {
                Self::Refused(error.to_string())
            }
            _ => Self::Unknown(error.to_string()),
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        let (kind, detail) = match failure {
            Failure::DiskFull(detail) => (ErrorKind::DiskFull, detail),
            Failure::DiskFailed(detail) => (ErrorKind::DiskFailed, detail),
            Failure::Busy(detail) => (ErrorKind::Busy, detail),
            Failure::Refused(detail) => (
                ErrorKind::Unsupported("the request to the process that has the directory"),
                detail,
            ),
            Failure::Unknown(detail) => (ErrorKind::Server, detail),
        };
        Self::with_detail(kind, detail)
    }
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

/// Bytes of the length in front of each message.
const HEAD: usize = 4;

/// Maximum number of bytes of a message: more than the largest operation or reply has.
const MAX_BYTES: u32 = 256 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// A command decides by the class of an error whether it repeats the call.
    #[test]
    fn an_error_keeps_its_class_and_its_text() {
        for (kind, is_kept) in [
            (ErrorKind::DiskFull, true),
            (ErrorKind::DiskFailed, true),
            (ErrorKind::Busy, true),
            (ErrorKind::Storage, false),
            (ErrorKind::Timeout, false),
        ] {
            let sent = Error::with_detail(kind, "the reason");
            let received = Error::from(Failure::from(&sent));
            assert_eq!(received.class(), sent.class(), "{sent}");
            assert!(received.to_string().contains("the reason"), "{received}");
            assert_eq!(received.kind() == sent.kind(), is_kept, "{received}");
        }
    }
}
