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
//!     // In this process: its messages are gone when it ends. In production: "redis://HOST:6379".
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
//! # Install
//!
//! ```sh
//! cargo add delayline
//! cargo add tokio --features full
//! ```
//!
//! Payloads are values of any type that implements the traits of `serde`; another
//! [`Codec`](crate::codec::Codec) changes that.
//!
//! # Open a queue
//!
//! [`connect`] returns a [`Connection`] to a Redis server, a cluster or the primary behind
//! sentinels. It also opens queues in a directory on the local disk (`file:DIR`, feature `file`),
//! or in this process (`memory:`). Messages in `memory:` are gone when the process ends.
//! [`Connect`] has the options, lists the URLs, and can use the Redis client you already have. A
//! connection opens queues by name. Clones of a [`Queue`] are cheap.
//!
//! The [guides] show common tasks, each with its code and what happens when things go wrong.
//!
//! # Send, cancel, reschedule
//!
//! ```
//! # use std::time::Duration;
//! # use delayline::{Cancelled, Queue};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), delayline::Error> {
//! # let connection = delayline::connect("memory:").await?;
//! let reminders: Queue<String> = connection.queue("reminders").await?;
//! let text = "your cart is waiting".to_owned();
//! let id = reminders.send_in(&text, Duration::from_secs(3600)).await?;
//!
//! // With an id of your own, a repeated send is harmless, and others can cancel it.
//! let draft = reminders.message(&text).id("cart-7").due_in(Duration::from_secs(3600));
//! assert!(draft.send().await?.is_accepted());
//! reminders.reschedule_in("cart-7", Duration::from_secs(7200)).await?;
//! assert_eq!(reminders.cancel("cart-7").await?, Cancelled::Cancelled);
//! # assert_eq!(reminders.cancel(id).await?, Cancelled::Cancelled);
//! # Ok(())
//! # }
//! ```
//!
//! [`Draft`] has group, priority, headers, limits and expiry. [`Queue::durability`] makes calls
//! wait until replicas or a disk have the write.
//!
//! # Work
//!
//! [`Worker`] runs an async function on each due message; [`Workers`] serves several queues with
//! one set of slots; [`batch_handler`](crate::worker::batch_handler) passes many messages to one
//! call. With the feature `tower`, a worker also runs a `tower` service (`service_handler`). A
//! handler that returns `Ok(())` acks the message; [`Outcome`] has all other results. Leases are
//! renewed while a handler runs. [`Worker::run_until`] stops gracefully, for example on Ctrl-C and
//! `SIGTERM`: `worker.run_until(delayline::shutdown_signal(), handler)`.
//!
//! [`with_state`] shares the program's state with its handlers. [`Jobs`] sends and handles several
//! types of payloads in one queue.
//!
//! # Chains
//!
//! [`Outcome::then`] sends messages and settles the handled one in a single atomic step, so each
//! step of a chain can send the next. [`Job::hand_over`] sends a message to another queue.
//!
//! [`Draft::after`] lets a message wait for many others: see [`after`].
//!
//! # Results
//!
//! If the sender asks for a result with [`Draft::keep_result`], a handler returns it with
//! [`Outcome::AckWith`]. [`Queue::wait_for`] waits until a message has ended.
//!
//! # Relay
//!
//! [`Queue::relay`] moves due messages to a Redis list or stream, for consumers in any language.
//!
//! # Retries and dead letters
//!
//! An error or a panic is a failure: the message is retried according to the [`RetryPolicy`], and
//! becomes a dead letter after its last allowed failure. [`Queue::dead_letters`] lists them,
//! [`Queue::redrive`] revives them, [`Queue::purge`] deletes them.
//!
//! # Observe
//!
//! [`Queue::stats`] counts messages, [`Queue::history`] returns the past, and [`Queue::forecast`]
//! counts what falls due. [`Queue::explain`] says why a message is not delivered, and
//! [`Queue::events`] reports what calls of this process do. Calls and handlers have `tracing`
//! spans; the feature `metrics` adds counters and histograms: see [`telemetry`].
//!
//! # Test
//!
//! The feature `testing` adds queues for tests, with a clock that the test controls.
//!
//! # Features
//!
//! | feature | on by default | what it adds |
//! |---|---|---|
//! | `redis` | yes | Redis and Valkey servers, through the `redis` crate |
//! | `fred` | no | the same through the `fred` crate; both can be on |
//! | `tls` | yes | `rediss://` URLs |
//! | `file` | no | `file:DIR` URLs: durable queues in a directory, without a server |
//! | `json` | yes | [`Json`](crate::codec::Json), the default codec |
//! | `signal` | yes | `shutdown_signal`, to stop on Ctrl-C and `SIGTERM` |
//! | `metrics` | no | metrics through the `metrics` crate |
//! | `metrics-otel` | no | durations under the names of OpenTelemetry as well |
//! | `schedules` | no | the module `schedules`: recurring jobs by cron line or interval |
//! | `tower` | no | `service_handler` |
//! | `testing` | no | the module `testing` |
//!
//! # What it promises
//!
//! [Guarantees](guarantees) lists the promises. This documentation cites them by number, such as
//! [G8](guarantees#g8). [`State`](backend::State) defines their meaning, and [`backend`] the
//! contract behind a queue. Every call can be repeated after an error: the id makes a second send
//! harmless, and only the holder of a lease can settle the message. Nothing is delivered early.
//! After a crash, a message is delivered again, so handlers should be idempotent: [`Job::epoch`] is
//! a fencing token if claims are [confirmed](crate::worker::WorkerBuilder::claim_durability).

#![cfg_attr(docsrs, feature(doc_cfg))]
// So that no example warns of an unused result in the program of a reader who copies it.
#![doc(test(attr(deny(unused_must_use))))]

/// Runs the examples of the README as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

pub mod admin;
pub mod after;
pub mod backend;
mod batches;
mod cancels;
mod client;
pub mod codec;
mod connect;
mod connection;
mod directory_status;
mod driver;
mod error;
pub mod events;
#[cfg(feature = "file")]
mod file;
mod jobs;
// The examples of these pages need more than this crate does; `delayline-examples` compiles them.
#[cfg(all(doc, not(doctest)))]
#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/guarantees.md")]
pub mod guarantees {}
#[cfg(all(doc, not(doctest)))]
pub mod guides;
mod local;
pub mod message;
mod queue;
mod registry;
pub mod relay;
mod relayer;
#[cfg(feature = "schedules")]
pub mod schedules;
mod server;
mod shards;
#[cfg(feature = "signal")]
mod shutdown;
mod store;
pub mod telemetry;
#[cfg(feature = "testing")]
pub mod testing;
mod timer;
pub mod update;
mod waiters;
pub mod worker;

pub use bytes::Bytes;
pub use delayline_core::{
    Cancelled, Completion, Durability, Enqueued, ErrorClass, ErrorKind, MessageId, Rescheduled,
    RetryPolicy, Timestamp, Violation, limits,
};

pub use self::connect::{Connect, connect};
pub use self::connection::{Connection, Opening};
pub use self::driver::RedisClient;
pub use self::error::Error;
pub use self::jobs::{Jobs, Kind};
pub use self::queue::{Draft, Found, Queue};
#[cfg(feature = "signal")]
pub use self::shutdown::shutdown_signal;
pub use self::worker::job::Job;
pub use self::worker::one::Worker;
pub use self::worker::outcome::Outcome;
pub use self::worker::state::with_state;
pub use self::worker::workers::Workers;
