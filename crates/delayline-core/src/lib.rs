//! The contract of the Delayline delay queue: its operations ([`Op`]), their results ([`Reply`]),
//! and the state machine in between ([`State::apply`]).
//!
//! Nothing here does I/O, reads a clock or generates random numbers: time, ids, tokens and jitter
//! are passed in. So [`State`] is the specification, the in-memory backend, and the oracle for
//! testing every other [`Backend`], all at once.
//!
//! ```
//! use delayline_core::{Claim, ClaimId, ConsumerName, MessageId, Millis, NewMessage};
//! use delayline_core::{Op, Reply, Schedule, State, Timestamp};
//!
//! let mut queue = State::new();
//! let mut order = NewMessage::new(MessageId::try_from("order-1")?, "close it");
//! order.schedule = Schedule::In(Millis::new(30 * 60_000)?);
//! let noon = Timestamp::from_ms(1_800_000_000_000)?;
//! queue.apply(noon, &Op::Enqueue(vec![order]));
//!
//! let claim = Op::Claim(Claim {
//!     consumer: ConsumerName::new("worker-1")?,
//!     claim_id: ClaimId::from_bytes([7; 16]),
//!     max: 10,
//!     lease: Millis::new(30_000)?,
//! });
//! let Reply::Claim(early) = queue.apply(noon, &claim).reply else { unreachable!() };
//! assert!(early.deliveries.is_empty());
//! let due = early.next.expect("the order is waiting");
//! let Reply::Claim(claimed) = queue.apply(due, &claim).reply else { unreachable!() };
//! assert_eq!(claimed.deliveries[0].message.payload, "close it");
//! # Ok::<(), delayline_core::Violation>(())
//! ```

/// Runs the example of the README as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

mod backend;
mod durability;
mod error;
mod generations;
mod hand_off;
mod headers;
mod history;
mod known;
pub mod limits;
mod message;
mod names;
mod op;
mod relay;
mod reply;
mod retry;
mod state;
mod time;
mod totals;
mod turn;
pub mod worker;

pub use backend::{Backend, QueueBackend, Wakeup};
pub use durability::Durability;
pub use error::{Error, ErrorClass, ErrorKind, Violation};
pub use hand_off::{HandOff, HandedOff};
pub use headers::Headers;
pub use history::{History, HistoryPoint, Resolution};
pub use known::{Follower, Known, Update, UpdateContent, UpdateDue, UpdateToken};
pub use message::{
    DeathReason, Delivery, FinishedIds, Message, MessageInfo, MessageState, NewMessage, Priority,
    Status,
};
pub use names::{ClaimId, ConsumerName, Lease, MessageId, QueueName, is_printable};
pub use op::{Check, Claim, Extend, List, Op, Outcome, Position, Redrive, Reschedule, Settlement};
pub use relay::{Backlog, Destination, DestinationKey, Element, GroupName, Relay};
pub use reply::{
    Applied, Cancelled, Checked, Claimed, Death, Enqueued, Extended, Finding, Forecast, Found,
    Page, Purged, Redriven, Relayed, Reply, Rescheduled, Settled, Stats,
};
pub use retry::{Jitter, RetryPolicy};
pub use state::State;
pub use time::{At, Millis, Schedule, Timestamp};
pub use totals::Totals;
pub use turn::{Turn, Turned};
