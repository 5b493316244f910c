//! A dashboard for [`delayline`] queues and an HTTP API, as one router.
//!
//! [`Dashboard`] makes a [`Router`] of axum's, which is a [`tower`] service as well. Mount it
//! anywhere: all of its links are relative.
//!
//! ```
//! use axum::Router;
//! use delayline::codec::Raw;
//! use delayline::{Bytes, Queue};
//! use delayline_web::{Access, Dashboard, Role};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Or "redis://127.0.0.1:6379".
//! let connection = delayline::connect("memory:").await?;
//! let orders: Queue<Bytes, Raw> = connection.queue("orders").await?.codec(Raw);
//!
//! let dashboard = Dashboard::new(Access::everyone(Role::Operator)).queue(orders).router()?;
//! let app: Router = Router::new().nest("/admin/q", dashboard);
//! # drop(app);
//! # Ok(())
//! # }
//! ```
//!
//! The pages are drawn by the server and work without JavaScript. With it, they keep up with the
//! queue by server-sent events.
//!
//! # Security
//!
//! - [`Access`] authenticates visitors. Each visitor has [`Rights`]: the rights of one [`Role`] or
//!   of several, for all queues or for some ([`Visitor::only_queues`]). What a visitor may not do
//!   is not offered, and refused if asked for.
//! - Requests that change something and come from another site are refused, by the headers
//!   `Sec-Fetch-Site` and `Origin`.
//! - The content security policy permits no script and no style but the two files that are served
//!   here. Text from a queue is escaped and shown up to a limit.
//! - Headers such as `X-Forwarded-For` are never looked at. A proxy that changes the `Host` header
//!   makes old browsers, which send no `Sec-Fetch-Site`, fail the check above.
//! - Each action except sending leaves a line of level `INFO` under the target
//!   `delayline_web::audit`. Its fields are `visitor`, `action`, `queue`, `messages` and `outcome`,
//!   and `id` if it is about one message. A job leaves one when it starts, one when a visitor stops
//!   it, and one when it ends, with its id as `job`; the first has its filter, rate and limit.
//!   Sends are logged at `DEBUG`.
//! - A request that is refused for want of a role, or because it comes from another site, leaves a
//!   line of level `WARN` there. So does a login with a wrong secret. After ten of these, an
//!   address has one try a second for each user, and more are answered with 429. The server sets
//!   [`ClientAddress`].
//! - Only operators see the details of errors of the server, since these name addresses.
//!
//! # Costs
//!
//! The list of queues has the added queues. With [`Dashboard::discover`] it also has the queues
//! that a search through the names of the server's keys finds. A search runs on request, at most
//! once a minute. It reads up to 1,000,000 keys of each primary and finds up to 200 queues. Pages
//! show when the list was read and whether it is complete.
//!
//! With [`Dashboard::server`], a page examines the servers: one connection and a few commands for
//! each of them, at most once in five seconds for all visitors together.
//!
//! Each page costs the server a few bounded calls: a list has at most 50 messages, a check or
//! repair examines 10,000 per click, and a filter of dead letters 1,000 per page. Longer work is a
//! job, one for each queue: it counts, redrives or purges matching dead letters in the background,
//! one call at a time. It ends when it is stopped or the router is dropped. A call that fails is
//! repeated for two seconds; then the page says why.

/// The example of the read-me compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

mod access;
mod action;
mod api;
mod asked;
mod assets;
mod audited;
mod body;
mod brake;
mod bulk;
mod content;
mod context;
mod dashboard;
mod directory;
mod examiner;
mod failure;
mod guard;
mod ids;
mod latest;
mod live;
mod metrics;
mod pages;
mod params;
mod pull;
mod rights;
mod schedules;
mod served;
mod shared;
mod when;

pub use axum::Router;

pub use self::access::{Access, ClientAddress, Credential, Visitor};
pub use self::dashboard::{BuildError, Dashboard};
pub use self::rights::{Rights, Role};
