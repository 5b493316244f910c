//! What a handler is given.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use delayline_core::{Headers, Lease, MessageId, MessageInfo, Timestamp};
use tokio_util::sync::CancellationToken;

use super::CancelReason;
use super::control::Control;

/// A delivered message, decoded.
///
/// Its payload is not in its `Debug` output.
pub struct Job<T> {
    payload: T,
    info: MessageInfo,
    headers: Headers,
    lease: Lease,
    lateness: Duration,
    control: Arc<Control>,
}

impl<T> Job<T> {
    pub(super) const fn new(
        payload: T,
        info: MessageInfo,
        headers: Headers,
        lease: Lease,
        lateness: Duration,
        control: Arc<Control>,
    ) -> Self {
        Self { payload, info, headers, lease, lateness, control }
    }

    /// The payload.
    pub const fn payload(&self) -> &T {
        &self.payload
    }

    /// The payload, to keep.
    pub fn into_payload(self) -> T {
        self.payload
    }

    /// The message's id.
    pub const fn id(&self) -> &MessageId {
        &self.info.id
    }

    /// The headers that travel with the payload.
    pub const fn headers(&self) -> &Headers {
        &self.headers
    }

    /// How often the message has been claimed, this time included. It rises with every claim, and
    /// so is the fencing number for conditional writes elsewhere: whoever has seen a higher one
    /// refuses this one (G6).
    pub const fn epoch(&self) -> u64 {
        self.lease.epoch
    }

    /// How often a handler has failed on it.
    pub const fn failures(&self) -> u32 {
        self.info.failures
    }

    /// How often a lease of it has run out: workers that crashed or hung, and claims whose reply
    /// was lost.
    pub const fn crashes(&self) -> u32 {
        self.info.crashes
    }

    /// Which attempt this is, from 1: failures and crashes so far, and one.
    pub const fn attempt(&self) -> u32 {
        self.info.failures.saturating_add(self.info.crashes).saturating_add(1)
    }

    /// When it was due, by the server's clock; after a retry, when the retry was due.
    pub const fn due(&self) -> Timestamp {
        self.info.due
    }

    /// From the due instant to the claim, both by the server's clock.
    pub const fn lateness(&self) -> Duration {
        self.lateness
    }

    /// All there is to know about the message but its content.
    pub const fn info(&self) -> &MessageInfo {
        &self.info
    }

    /// The lease, to settle or extend the message by [`Op`](crate::Op)s of your own.
    pub const fn lease(&self) -> Lease {
        self.lease
    }

    /// A token that fires when it is of no use to go on: see [`CancelReason`]. Nothing forces the
    /// handler; what it answers still counts if the lease still holds.
    pub fn cancellation(&self) -> &CancellationToken {
        &self.control.token
    }

    /// Why the token has fired; `None` if it has not.
    pub fn cancel_reason(&self) -> Option<CancelReason> {
        self.control.reason()
    }
}

impl<T> fmt::Debug for Job<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("info", &self.info)
            .field("headers", &self.headers)
            .field("lateness", &self.lateness)
            .finish_non_exhaustive()
    }
}
