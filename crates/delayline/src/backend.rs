//! The contract behind a queue, for your own backends and for raw operations.
//!
//! These are the names of [`delayline_core`]: every operation ([`Op`]) and what it is made of,
//! every [`Reply`], the traits [`Backend`] and [`Wakeup`], and [`State`], which says what an
//! operation does. A name that this crate also has elsewhere is the same type, but for four:
//! [`Error`], [`Found`], [`Message`] and [`UpdateDue`] are the contract's, with payloads as bytes
//! and times as [`Millis`], and a [`Settlement`] has the contract's [`Outcome`].
//!
//! [`Queue::apply`](crate::Queue::apply) sends an operation for which a queue has no method:
//!
//! ```
//! use delayline::backend::{Extend, Extended, Lease, Millis, Op, Reply};
//! use delayline::{MessageId, Queue};
//!
//! /// Gives the holder of a lease another minute; false if the lease has ended.
//! async fn one_more_minute(
//!     queue: &Queue<String>,
//!     id: MessageId,
//!     lease: Lease,
//! ) -> Result<bool, delayline::Error> {
//!     let op = Op::Extend(Extend::new(vec![(id, lease)], Millis::new(60_000)?));
//!     let reply = queue.apply(&op).await?.reply;
//!     Ok(matches!(reply, Reply::Extend(items) if matches!(items[..], [Extended::Done { .. }])))
//! }
//! ```
//!
//! A [`Transport`] carries the scripts of all queues on Redis servers:
//! [`Connect::over`](crate::Connect::over) takes one.
//!
//! [`Queue::new`](crate::Queue::new) and the suite in `delayline-testkit` take any
//! [`QueueBackend`].

pub use async_trait::async_trait;
#[doc(no_inline)]
pub use delayline_core::{
    Applied, At, Attempt, AttemptOutcome, Backend, Backlog, Backoff, Cancelled, Change, Check,
    Checked, Claim, ClaimId, Claimed, Completion, ConsumerName, Death, DeathReason, Delivery,
    Destination, DestinationKey, Durability, Element, Enqueued, Error, ErrorClass, ErrorKind,
    Extend, Extended, Finding, FinishedIds, Follower, Forecast, Found, GroupName, HandOff,
    HandedOff, Headers, History, HistoryPoint, Hold, Jitter, Known, Lease, Limits, List, Message,
    MessageId, MessageInfo, MessageState, Millis, NewMessage, NewResult, Op, Outcome, Page,
    Position, Priority, Purged, QueueBackend, QueueName, Rate, Redrive, Redriven, Relay, Relayed,
    Reply, Reschedule, Rescheduled, Resolution, RetryPolicy, Save, Schedule, SetLimits, Settled,
    Settlement, State, Stats, Status, Timestamp, Totals, Update, UpdateContent, UpdateDue,
    UpdateToken, Violation, Wakeup, is_printable,
};
#[doc(no_inline)]
pub use delayline_redis_protocol::Transport;

pub use crate::timer::{hint_until, sleep_until};
