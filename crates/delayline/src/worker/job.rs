//! What a handler receives.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use delayline_core::{Headers, Lease, MessageId, MessageInfo, Timestamp};
use tokio_util::sync::CancellationToken;

use super::CancelReason;
use super::control::Control;

/// A delivered message, decoded: what a handler receives.
///
/// Its `Debug` output does not contain the payload.
#[doc(alias = "delivery")]
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

    /// Takes the payload out of the job.
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

    /// How often the message has been claimed, including this time. It increases with every claim,
    /// so use it as a fencing token for conditional writes elsewhere: a store that has seen a
    /// higher epoch refuses this one (G6).
    #[doc(alias = "fencing token")]
    pub const fn epoch(&self) -> u64 {
        self.lease.epoch
    }

    /// How often a handler has failed on this message.
    pub const fn failures(&self) -> u32 {
        self.info.failures
    }

    /// How often a lease of this message has expired: workers that crashed or hung, and claims
    /// whose reply was lost.
    pub const fn crashes(&self) -> u32 {
        self.info.crashes
    }

    /// The number of this attempt, from 1: failures and crashes so far, plus one.
    pub const fn attempt(&self) -> u32 {
        self.info.failures.saturating_add(self.info.crashes).saturating_add(1)
    }

    /// When the message was due, by the server's clock; after a retry, when the retry was due.
    pub const fn due(&self) -> Timestamp {
        self.info.due
    }

    /// The time from the due time to the claim, both by the server's clock.
    pub const fn lateness(&self) -> Duration {
        self.lateness
    }

    /// Everything about the message except headers and payload.
    pub const fn info(&self) -> &MessageInfo {
        &self.info
    }

    /// The lease, to settle or extend the message with [`Op`](crate::Op)s of your own.
    pub const fn lease(&self) -> Lease {
        self.lease
    }

    /// A token that fires when it is no longer useful to continue: see [`CancelReason`]. The
    /// handler is not forced to end; its result counts as long as the lease is valid.
    pub fn cancellation(&self) -> &CancellationToken {
        &self.control.token
    }

    /// Why the token has fired; `None` if it has not.
    #[must_use]
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
