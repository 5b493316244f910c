//! An exact delay queue: a message is delivered when it is due, never early, at least once, to one
//! live worker at a time.
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
//! - [`connect`] returns a [`Connection`] to a Redis server, or to queues in this process. It opens
//!   queues by name. [`Connect`] has its options.
//! - [`Queue`] sends messages, cancels and reschedules them by id, and manages dead letters.
//! - [`Queue::durability`] makes calls wait until replicas or a disk have the write.
//! - [`Worker`] runs an async function on each due message; [`Workers`] serves several queues with
//!   one set of slots. With the feature `tower`, a worker also runs a `tower` service
//!   (`service_handler`). [`batch_handler`] makes a handler of many messages at once.
//! - The feature `testing` adds a queue for tests, with a clock that the test moves.
//!
//! What a queue promises is the contract of [`delayline_core`], whose types are re-exported here.
//! Every call can be repeated after an error: its id makes a second send harmless, and only the
//! holder of a lease can settle the message.

/// Runs the examples of the README as tests.
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
    Applied, At, Backend, Backoff, Cancelled, Check, Checked, Claim, ClaimId, Claimed, DeathReason,
    Durability, Enqueued, ErrorClass, ErrorKind, Finding, FinishedIds, Forecast, Found, Headers,
    Jitter, Lease, List, Message, MessageId, MessageInfo, MessageState, Millis, NewMessage, Op,
    Page, Position, Priority, Purged, QueueBackend, QueueName, Redrive, Redriven, Reply,
    Reschedule, Rescheduled, RetryPolicy, Schedule, Stats, Status, Timestamp, Violation, Wakeup,
    is_printable, limits,
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
pub use self::queue::{Audit, Draft, Explanation, Listing, Queue, Sent};
pub use self::telemetry::TraceContext;
#[cfg(feature = "tower")]
pub use self::worker::service_handler;
pub use self::worker::{
    CancelReason, Job, Outcome, Outcomes, Stuck, Summary, Worker, WorkerBuilder, WorkerHandle,
    Workers, batch_handler,
};
