//! Calls that block their thread.

/// Runs a function that blocks while it waits for servers, without holding up the load.
pub(crate) fn blocking<T>(act: impl FnOnce() -> T) -> T {
    tokio::task::block_in_place(act)
}
