//! What a command saves with its message, as lines that it writes to a file descriptor.

use std::os::fd::OwnedFd;

use command_fds::{CommandFdExt as _, FdMapping};
use delayline_json::Saved;
use futures_util::StreamExt as _;
use tokio::net::unix::pipe::Receiver;
use tokio::process::Command;
use tokio_util::codec::{AnyDelimiterCodec, AnyDelimiterCodecError, FramedRead};

use super::delivery::Delivery;
use super::variables::{self, Names};

/// The variable with the number of the descriptor.
const SAVE_FD: &str = "DELAYLINE_SAVE_FD";
/// The variables with the checkpoint of an earlier attempt, as text or in base64.
const CHECKPOINT: Names = Names("DELAYLINE_CHECKPOINT", "DELAYLINE_CHECKPOINT_BASE64");

/// Gives a command the saved checkpoint, and a descriptor for its own saves. Returns the other end.
///
/// # Errors
///
/// The process has no descriptor left.
pub(super) fn prepare(command: &mut Command, job: &Delivery) -> std::io::Result<Receiver> {
    variables::set(command, CHECKPOINT, job.saved_bytes().map(AsRef::as_ref));
    let (reader, writer) = std::io::pipe()?;
    let mapping = FdMapping { parent_fd: OwnedFd::from(writer), child_fd: CHILD_FD };
    command.fd_mappings(vec![mapping]).map_err(std::io::Error::other)?;
    command.env(SAVE_FD, CHILD_FD.to_string());
    Receiver::from_owned_fd(reader.into())
}

/// Saves what a command writes, line by line, until it has ended. A line that cannot be read is
/// skipped, and the first of them is logged.
pub(super) async fn take(job: &Delivery, from: Receiver) {
    let codec = AnyDelimiterCodec::new_with_max_length(b"\n".into(), b"\n".into(), MOST_LINE_BYTES);
    let mut lines = FramedRead::new(from, codec);
    let mut is_silent = false;
    let mut refused = |why: &str| {
        if !std::mem::replace(&mut is_silent, true) {
            tracing::warn!(id = %job.id(), "the command's save is ignored: {why}");
        }
    };
    loop {
        match lines.next().await {
            Some(Ok(line)) => {
                if let Err(why) = save(job, &line) {
                    refused(&why);
                }
            }
            Some(Err(AnyDelimiterCodecError::MaxChunkLengthExceeded)) => {
                refused(&format!("a line has more than {MOST_LINE_BYTES} bytes"));
                // It ends the stream once, and continues behind that line.
                let _ = lines.next().await;
            }
            Some(Err(AnyDelimiterCodecError::Io(_))) | None => break,
        }
    }
}

fn save(job: &Delivery, line: &[u8]) -> Result<(), String> {
    let saved = Saved::from_json(line)?;
    if let Some(progress) = saved.progress {
        job.progress(progress.done(), progress.text);
    }
    saved
        .checkpoint
        .map_or(Ok(()), |checkpoint| job.save_bytes(checkpoint))
        .map_err(|error| error.to_string())
}

/// Shells accept one digit in a redirection.
const CHILD_FD: i32 = 3;
/// A checkpoint of the largest size fits also if each of its bytes is escaped.
const MOST_LINE_BYTES: usize = 32 * 1_024;
