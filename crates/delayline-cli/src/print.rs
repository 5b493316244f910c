//! Text that others wrote, on its way to a terminal.

mod table;

use std::io;
use std::ops::ControlFlow;

pub(crate) use self::table::{Table, columns};
use delayline_json::harmless_json;
use rustix::fs::{OFlags, fcntl_getfl, fstat};

use crate::failure::Failure;

/// Writes to stdout. A reader that has closed the pipe has seen enough.
pub(crate) fn write(text: &str) -> Result<(), Failure> {
    write_on(text).map(drop)
}

/// Writes to stdout. Returns `Break` if stdout is closed.
pub(crate) fn write_on(text: &str) -> Result<ControlFlow<()>, Failure> {
    write_bytes(text.as_bytes())
}

/// Like [`write_on`], for bytes as they are.
pub(crate) fn write_bytes(bytes: &[u8]) -> Result<ControlFlow<()>, Failure> {
    use io::Write as _;
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(ControlFlow::Continue(())),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ControlFlow::Break(())),
        Err(error) => Err(Failure::other("the output could not be written", &error)),
    }
}

/// Runs a function that writes, in another thread: a reader that pauses must not hold up signals.
pub(crate) async fn aside<T: Send + 'static>(
    writes: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    match tokio::task::spawn_blocking(writes).await {
        Ok(written) => written,
        Err(error) => Err(Failure::other("the output could not be written", &error)),
    }
}

/// Whether stdout was closed when the program began. The standard library then opens `/dev/null`
/// for reading and writing in its place, as some programs do for the programs that they start.
pub(crate) fn is_closed() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let is_for_both = fcntl_getfl(io::stdout()).is_ok_and(|flags| flags.contains(OFlags::RDWR));
    is_for_both
        && std::fs::metadata("/dev/null")
            .is_ok_and(|null| fstat(io::stdout()).is_ok_and(|stdout| stdout.st_rdev == null.rdev()))
}

/// A JSON value on one line.
pub(crate) fn json_line(value: &serde_json::Value) -> String {
    harmless_json(value.to_string()) + "\n"
}
