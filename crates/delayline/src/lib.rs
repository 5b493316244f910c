//! An exact delay queue: messages are delivered at the instant they are due, never early, at least
//! once, to one live worker at a time.
//!
//! ```
//! use std::time::Duration;
//!
//! use delayline::{Job, Queue, Worker};
//!
//! #[tokio::main]
//! async fn main() -> Result<(), delayline::Error> {
//!     // Or "redis://127.0.0.1:6379".
//!     let connection = delayline::connect("memory:").await?;
//!     let orders: Queue<String> = connection.queue("orders").await?;
//!     orders.send_in(&"close the unpaid order".to_owned(), Duration::from_millis(100)).await?;
//!
//!     let worker = Worker::builder(orders).until_empty(true).build()?;
//!     let summary = worker
//!         .run(|job: Job<String>| async move {
//!             println!("{}, {:?} late", job.payload(), job.lateness());
//!             Ok::<(), std::io::Error>(())
//!         })
//!         .await;
//!     assert_eq!(summary.acked, 1);
//!     Ok(())
//! }
//! ```
//!
//! - [`connect`] leads to a [`Connection`], on a Redis server or in this process, which opens queues
//!   by name. [`Connect`] has its options.
//! - [`Queue`] sends messages, cancels and reschedules them by id, and looks after dead letters.
//! - [`Queue::durability`] answers when replicas or a disk have what was sent.
//! - [`Worker`] runs an async function on each message that is due; [`Workers`] share their slots
//!   among several queues. With the feature `tower` a worker also runs a service in layers of that
//!   crate (`service_handler`).
//! - The feature `testing` has a queue for tests, with a clock to be moved by hand.
//!
//! What the queue promises is the contract of [`delayline_core`], whose types appear here under
//! their own names. Every call may be repeated after an error: an id makes a second send harmless,
//! and a lease lets only its owner settle a message.

/// The examples of the read-me run too.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

mod batches;
mod client;
mod codec;
mod connect;
mod connection;
mod error;
mod events;
mod merge;
mod pause;
mod queue;
pub mod telemetry;
#[cfg(feature = "testing")]
pub mod testing;
mod worker;

pub use bytes::Bytes;
pub use delayline_core::{
    At, Backend, Backoff, Cancelled, Class, DeathReason, Durability, Enqueued, ErrorKind, Finding,
    FinishedIds, Found, Headers, Jitter, Lease, Message, MessageId, MessageInfo, MessageState,
    Millis, NewMessage, Op, Position, Priority, Purged, QueueName, Queueing, Redriven, Reply,
    Rescheduled, RetryPolicy, Schedule, Stats, Status, Timestamp, Violation, Wakeup, is_printable,
    limits,
};
#[cfg(any(feature = "redis", feature = "fred"))]
pub use delayline_redis_protocol::{
    Denial, Inspection, Role, SentinelReport, SentinelView, ServerReport, Survey, TopologyKind,
};
pub use tokio_util::sync::CancellationToken;

pub use self::codec::{Codec, CodecError, Json, Raw};
pub use self::connect::{Connect, Driver};
pub use self::connection::{Connection, connect};
pub use self::error::Error;
pub use self::events::{Event, EventKind, Events};
pub use self::queue::{Audit, Draft, Listing, Queue, Sent};
pub use self::telemetry::TraceContext;
#[cfg(feature = "tower")]
pub use self::worker::service_handler;
pub use self::worker::{
    CancelReason, Job, Outcome, Stuck, Summary, Worker, WorkerBuilder, WorkerHandle, Workers,
};
