//! What a worker wants done.

use std::fmt;
use std::time::Duration;

use crate::{Delivery, MessageId, Millis, Op, Timestamp};

/// One handling of a message. No two of a worker are equal, whatever has ended between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    pub(super) queue: usize,
    pub(super) number: u64,
}

impl Slot {
    /// The queue that the message is from: its place in [`Plan::queues`](super::Plan::queues).
    #[must_use]
    pub const fn queue(self) -> usize {
        self.queue
    }
}

/// What the driver is to do next. Queues are told by their place in
/// [`Plan::queues`](super::Plan::queues).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Apply an operation to a queue, and report by
    /// [`handle_answer`](super::Machine::handle_answer) what came of it. A claim, a settlement, an
    /// extension and a count may be under way at once, never two of one kind.
    Send {
        /// The queue.
        queue: usize,
        /// The operation.
        op: Op,
    },
    /// Wait for a hint, and report by [`handle_waited`](super::Machine::handle_waited).
    Wait {
        /// The queue.
        queue: usize,
        /// For how long.
        timeout: Duration,
    },
    /// Hand a hint on, and report by [`handle_rung`](super::Machine::handle_rung).
    Ring {
        /// The queue.
        queue: usize,
    },
    /// Run the handler, and report by [`handle_finished`](super::Machine::handle_finished) how it
    /// ended, whether by itself, by a panic, or by being dropped.
    Start {
        /// What the handler is known by from now on.
        slot: Slot,
        /// The message and its lease.
        delivery: Box<Delivery>,
        /// From the due instant to the claim, both by the server's clock.
        lateness: Duration,
    },
    /// Warn that a claim was answered after the leases that it brought had run out. The messages
    /// are not started but given back, uncounted: with a lease shorter than a round trip nothing
    /// gets done.
    LateClaim {
        /// The queue.
        queue: usize,
        /// When the claim was executed, by the server's clock.
        at: Timestamp,
        /// The messages.
        ids: Vec<MessageId>,
        /// How long the leases lasted.
        lease: Millis,
        /// From sending the claim to its answer.
        round_trip: Duration,
    },
    /// Fire the handler's token.
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
    /// Report that the handler runs for too long. Once for each.
    Stuck {
        /// The handler.
        slot: Slot,
        /// For how long it has been running.
        running: Duration,
    },
}

/// Why a handler's cancellation token fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CancelReason {
    /// The lease has been lost or has run out: another worker may have the message.
    LeaseLost,
    /// The lease has reached its highest age and is prolonged no more: when it runs out, another
    /// worker may have the message. Until then the handler's answer counts.
    LeaseTooOld,
    /// Somebody cancelled the message (G13). Unless the handler acks, the message is finished.
    Requested,
    /// The worker stops and waits no longer.
    Stopping,
    /// The handler ran longer than its timeout and has been dropped; only what it spawned can see
    /// this.
    TimedOut,
}

/// The second half of a sentence: "killed, because the worker stops".
impl fmt::Display for CancelReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LeaseLost => "the lease is lost",
            Self::LeaseTooOld => "the lease has reached its highest age",
            Self::Requested => "the message is cancelled",
            Self::Stopping => "the worker stops",
            Self::TimedOut => "the handler ran for too long",
        })
    }
}
