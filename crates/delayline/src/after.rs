//! Messages that wait for other messages.
//!
//! A draft with [`Draft::after`](crate::Draft::after) is delivered when all of its *members* have
//! ended: up to 10,000 messages of the same connection, sent earlier or later. Its handler gets
//! their ends and results from [`Job::members`](crate::Job::members).
//! [`Draft::send_with_members`](crate::Draft::send_with_members) sends the message and its members.
//!
//! ```
//! use delayline::{Error, Job, Queue, Worker, Workers};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Error> {
//! let connection = delayline::connect("memory:").await?;
//! let thumbs: Queue<u64> = connection.queue("thumbs").await?;
//! let galleries: Queue<u64> = connection.queue("galleries").await?;
//!
//! let members = (0..3).map(|image| thumbs.message(&image));
//! let sent = galleries.message(&17).id("gallery-17").send_with_members(members).await?;
//! assert!(sent.is_accepted());
//!
//! let thumbs = Worker::builder(thumbs).until_empty(true);
//! let galleries = Worker::builder(galleries).until_empty(true);
//! let summary = Workers::sharing(4)?
//!     .add(1, thumbs, async |_: Job<u64>| Ok::<(), Error>(()))?
//!     .add(1, galleries, async |job: Job<u64>| match job.members() {
//!         Some(members) if members.all_acked() => Ok(()),
//!         _ => Err("a thumbnail is missing"),
//!     })?
//!     .run()
//!     .await;
//! assert_eq!(summary.acked, 4);
//! # Ok(())
//! # }
//! ```
//!
//! The guide [Wait for several messages](crate::guides::wait_for_several_messages) has a program.

pub(crate) mod check;
pub(crate) mod gate;
mod member;
pub(crate) mod siblings;
mod waiting;
mod wakeups;
pub(crate) mod wire;

pub(crate) use self::member::Moved;
pub use self::member::{Ended, Member, Members, OnFailure, Waiting, Why};
pub use self::wire::{HEADERS, WAITS_FOR, WAKES, delivered, set_wakes, wakes};
pub use crate::queue::SentTogether;
