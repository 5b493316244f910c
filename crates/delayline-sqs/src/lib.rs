//! An Amazon SQS endpoint for [`delayline`] queues, as one router.
//!
//! [`Sqs`] creates an axum [`Router`] that speaks both protocols of SQS, JSON 1.0 and Query. So
//! programs use Delayline through the AWS SDK of their language.
//!
//! ```
//! use axum::Router;
//! use delayline_sqs::{Access, AccessKey, Sqs};
//! use delayline_web::Role;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Or "redis://127.0.0.1:6379".
//! let connection = delayline::connect("memory:").await?;
//! let key = AccessKey::new("shop", "a long secret", Role::Operator | Role::Worker);
//! let app: Router = Sqs::new(connection, Access::keys([key])).router().await?;
//! # drop(app);
//! # Ok(())
//! # }
//! ```
//!
//! # How SQS maps to Delayline
//!
//! - A queue of SQS is the queue of the same name. Its attributes and tags are a message of one
//!   queue of settings, [`SETTINGS_QUEUE`]. A queue without such a message, because only programs
//!   with the library use it, has the default attributes.
//! - The visibility timeout is the lease, the receive count the number of claims. Messages are sent
//!   with the highest limits of failures and crashes, so only a redrive policy makes them dead
//!   letters.
//! - A redrive policy moves a message when it is received once more than permitted: it is sent to
//!   the other queue under the same id, and then acked. If the server fails in between, the move is
//!   repeated, and the id makes sure that there is one message.
//! - A message move task is a message of one more queue, `sqs-settings-moves`, of which each server
//!   is a worker. So tasks continue if a server ends.
//! - A deleted queue no longer exists for clients. Each server is a worker of the queue of
//!   settings, so the removal of its messages continues if a server ends.
//! - Message attributes are headers. Message groups are groups: on a FIFO queue in order, one
//!   message of each group at a time; on a standard queue in turn.
//! - A deduplication id becomes the id of the message, throttled for five minutes.
//!
//! # Security
//!
//! - [`Access`] checks the signature of each request, and compares it in constant time. Signatures
//!   are valid for 15 minutes, or in the query of a presigned request for as long as it says, up to
//!   seven days. Wrong ones are slowed down.
//! - Sending, and creating, changing or deleting queues needs [`Role::Operator`]; receiving needs
//!   [`Role::Worker`]; reading attributes needs any role.
//! - Each action that changes a queue leaves a line of level `INFO` under the target
//!   `delayline_sqs::audit`, with `visitor`, `action` and `queue`; sends, receives and reads leave
//!   one of level `DEBUG`. Missing roles and wrong signatures leave a line of level `WARN`. No line
//!   has a body, an attribute or a secret.
//! - Requests that a browser sends for another site are refused.
//!
//! [`Role::Operator`]: delayline_web::Role::Operator
//! [`Role::Worker`]: delayline_web::Role::Worker

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

mod access;
mod actions;
mod attributes;
mod bodies;
mod call;
mod deletions;
mod digest;
mod error;
mod leases;
mod moves;
mod names;
mod query;
mod queues;
mod receipt;
mod settings;
mod shared;
mod signature;
mod sqs;
mod wire;
mod xml;

pub use axum::Router;

pub use self::access::{Access, AccessKey};
pub use self::sqs::{SETTINGS_QUEUE, Sqs};
