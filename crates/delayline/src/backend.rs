//! The contract behind a queue, for backends of your own and for raw operations.
//!
//! This is all of [`delayline_core`]: every operation ([`Op`]) and what it is made of, every
//! [`Reply`], the traits [`Backend`] and [`Wakeup`], and [`State`], which says what an operation
//! does. A name that is also in the crate root is the same type, with one exception: handlers
//! return [`delayline::Outcome`](crate::Outcome), and [`Settlement`] has the core's [`Outcome`].
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
//! [`Queue::new`](crate::Queue::new) and the suite in `delayline-testkit` take any [`QueueBackend`].

pub use async_trait::async_trait;
#[doc(no_inline)]
pub use delayline_core::*;
