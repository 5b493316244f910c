//! What a worker has done.

/// What a worker has done, counted by the settlements that the queue has confirmed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Messages handled and finished.
    pub acked: u64,
    /// Failures: errors, panics, timeouts.
    pub failed: u64,
    /// Messages rejected, by handlers or because they could not be decoded.
    pub rejected: u64,
    /// Of the failures and rejections, how many made a dead letter.
    pub dead: u64,
    /// Messages put off by handlers.
    pub snoozed: u64,
    /// Messages given back, by handlers or because the worker stopped before they started.
    pub released: u64,
    /// Settlements that came too late: the message belongs to another worker, or is gone.
    pub lost: u64,
    /// Messages that were not settled when the worker gave up; they come back when their leases run
    /// out.
    pub unsettled: u64,
}
