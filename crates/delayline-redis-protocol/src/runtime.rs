//! The tokio runtime that calls need.

use delayline_core::{Error, ErrorKind};
use tokio::runtime::Handle;

/// Returns the runtime of the caller. A call that needs timers or tasks checks this first, because
/// tokio panics without a runtime.
///
/// # Errors
///
/// [`ErrorKind::Unsupported`] if the caller runs outside of a tokio runtime; nothing was sent.
pub fn runtime() -> Result<Handle, Error> {
    Handle::try_current().map_err(|_| {
        let detail =
            "call it in a runtime with I/O and time enabled, as `#[tokio::main]` starts one";
        Error::with_detail(ErrorKind::Unsupported("a call outside of a tokio runtime"), detail)
    })
}
