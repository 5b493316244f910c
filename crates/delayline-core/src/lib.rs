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
//! let (worker, token) = (ConsumerName::new("worker-1")?, ClaimId::from_bytes([7; 16]));
//! let claim = Op::Claim(Claim::new(worker, token, 10, Millis::new(30_000)?));
//! let Reply::Claim(early) = queue.apply(noon, &claim).reply else { unreachable!() };
//! assert!(early.deliveries.is_empty());
//! let due = early.next.expect("the order is waiting");
//! let Reply::Claim(claimed) = queue.apply(due, &claim).reply else { unreachable!() };
//! assert_eq!(claimed.deliveries[0].message.payload, "close it");
//! # Ok::<(), delayline_core::Violation>(())
//! ```
//!
//! # Features
//!
//! `serde`, off by default: `Serialize` and `Deserialize` for [`Op`] and all that it is made of.
//! Values are checked as in their constructors, and unknown fields are refused. Bytes are text, in
//! which `%` and everything but printable ASCII is written as `%` and two hexadecimal digits.
//! Defaults are left out, so the format must be self-describing, like JSON. In a binary format,
//! bytes are bytes.
//!
//! Replies ([`Applied`] and its parts) are serialized in the same way, and may gain fields.
//!
//! [`State`] can be serialized too, for backends that store it, but its form may change in any
//! version.
//!
//! # What later versions may add
//!
//! Types that may grow are `#[non_exhaustive]`: fields of requests, replies and reports, and
//! variants of [`Op`], [`Reply`], the results in it and other enums. Create such a struct with
//! `new`, or with `default` if it has no `new`, and then set its other fields. A backend refuses an
//! unknown operation or variant with [`ErrorKind::Unsupported`]. Complete types stay exhaustive,
//! such as a [`Lease`] or a [`Schedule`], and a variant never gets more fields.

/// Runs the example of the README as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

mod applied;
mod attempt;
mod backend;
mod backoff;
mod durability;
mod error;
#[cfg(feature = "serde")]
mod form;
mod generations;
mod group;
mod hand_off;
mod headers;
mod history;
mod known;
pub mod limits;
mod message;
mod names;
mod op;
mod queue_limits;
mod relay;
mod reply;
mod results;
mod retry;
mod save;
mod settlement;
mod state;
mod status;
mod time;
mod totals;
mod validate;
pub mod worker;

pub use applied::Applied;
pub use attempt::{Attempt, AttemptOutcome};
pub use backend::{Backend, QueueBackend, Wakeup};
pub use backoff::Backoff;
pub use durability::Durability;
pub use error::{Error, ErrorClass, ErrorKind, Violation};
pub use group::Group;
pub use hand_off::HandOff;
pub use headers::Headers;
pub use history::{History, HistoryPoint, Resolution};
pub use known::{Known, Update, UpdateContent, UpdateDue, UpdateToken};
pub use message::{Delivery, FinishedIds, Follower, Message, MessageInfo, NewMessage, Priority};
pub use names::{ClaimId, ConsumerName, Lease, MessageId, ProcessId, QueueName, is_printable};
pub use op::{Check, Claim, Extend, List, Op, Position, Redrive, Reschedule};
pub use queue_limits::{Change, Limits, Rate, SetLimits};
pub use relay::{Backlog, Destination, DestinationKey, Element, GroupName, Relay};
pub use reply::{
    Cancelled, Checked, Claimed, Death, Enqueued, Extended, Finding, Forecast, Found, HandedOff,
    Page, Purged, Redriven, Relayed, Reply, Rescheduled, Settled, Stats,
};
pub use results::{Completion, NewResult};
pub use retry::{Jitter, RetryPolicy};
pub use save::{Progress, Save};
pub use settlement::{Hold, Outcome, Settlement};
pub use state::{Held, State};
pub use status::{DeathReason, MessageState, Status};
pub use time::{At, Millis, Schedule, Timestamp};
pub use totals::Totals;
