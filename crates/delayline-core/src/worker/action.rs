//! What the driver of a worker has to do.

use std::fmt;
use std::time::Duration;

use crate::{Delivery, Lease, MessageId, Millis, Op, Timestamp};

/// One run of a handler. Slots are unique within a worker, even after a handler has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    pub(super) queue: usize,
    pub(super) number: u64,
}

impl Slot {
    /// Returns the index of the message's queue in [`Plan::queues`](super::Plan::queues).
    #[must_use]
    pub const fn queue(self) -> usize {
        self.queue
    }
}

/// What the driver must do next. Queues are identified by index in
/// [`Plan::queues`](super::Plan::queues).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Apply an operation to a queue, and report the result with
    /// [`handle_answer`](super::Machine::handle_answer). A claim, a settlement, a hand-off, an
    /// extension and a count may be in progress at once, but never two of one kind.
    Send {
        /// The queue.
        queue: usize,
        /// The operation.
        op: Op,
    },
    /// Wait for a hint, and report to [`handle_waited`](super::Machine::handle_waited).
    Wait {
        /// The queue.
        queue: usize,
        /// How long to wait.
        timeout: Duration,
    },
    /// Hand a hint on, and report to [`handle_rung`](super::Machine::handle_rung).
    Ring {
        /// The queue.
        queue: usize,
    },
    /// Run the handler, and report to [`handle_finished`](super::Machine::handle_finished) how it
    /// ended, whether by returning, by a panic, or by being dropped.
    Start {
        /// Identifies the handler from now on.
        slot: Slot,
        /// The message and its lease.
        delivery: Box<Delivery>,
        /// The time from due to claimed, both by the server's clock.
        lateness: Duration,
    },
    /// Warn that a claim returned only after its leases had expired. The messages are not started
    /// but released, uncounted: nothing gets done if leases are shorter than a round trip.
    LateClaim {
        /// The queue.
        queue: usize,
        /// When the claim was executed, by the server's clock.
        at: Timestamp,
        /// The messages.
        ids: Vec<MessageId>,
        /// The duration of the leases.
        lease: Millis,
        /// The time from sending the claim to its reply.
        round_trip: Duration,
    },
    /// Report that a settlement came when its lease was no longer the current one.
    SettledLate {
        /// The queue.
        queue: usize,
        /// The message.
        id: MessageId,
        /// The lease.
        lease: Lease,
        /// Whether the reply to an earlier attempt was lost, which may have been executed in time.
        perhaps_done: bool,
    },
    /// Fire the handler's cancellation token.
    Cancel {
        /// The handler.
        slot: Slot,
        /// Why.
        reason: CancelReason,
    },
    /// Drop the handler.
    Abort {
        /// The handler.
        slot: Slot,
    },
    /// Report that the handler has been running for too long. Once per handler.
    Stuck {
        /// The handler.
        slot: Slot,
        /// How long it has been running.
        running: Duration,
    },
}

/// Why a handler's cancellation token fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CancelReason {
    /// The lease was lost or has expired: another worker may have the message.
    LeaseLost,
    /// The lease has reached its maximum age and is no longer extended: when it expires, another
    /// worker may get the message. Until then, the handler's result counts.
    LeaseTooOld,
    /// The message was cancelled (G13). Unless the handler acks, the message is finished.
    Requested,
    /// The worker is stopping, and no longer waits for the handler.
    Stopping,
    /// The handler exceeded its timeout and was dropped; only tasks that it spawned can see this.
    TimedOut,
}

/// Completes a sentence such as "killed, because the worker is stopping".
impl fmt::Display for CancelReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LeaseLost => "the lease is lost",
            Self::LeaseTooOld => "the lease has reached its maximum age",
            Self::Requested => "the message is cancelled",
            Self::Stopping => "the worker is stopping",
            Self::TimedOut => "the handler ran for too long",
        })
    }
}
