//! A dashboard for [`delayline`] queues and an HTTP API, as one router.
//!
//! [`Dashboard`] creates an axum [`Router`], which is also a [`tower`] service. Mount it anywhere:
//! all its links are relative.
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
//! The server renders the pages, which work without JavaScript. With JavaScript, they update
//! themselves through server-sent events.
//!
//! # Security
//!
//! - [`Access`] authenticates visitors. Each visitor has [`Rights`]: those of one or several
//!   [`Role`]s, for all queues or for some ([`Visitor::only_queues`]). Pages do not offer actions
//!   that the visitor may not perform, and requests for them are refused.
//! - Requests from another site that change something are refused, based on the headers
//!   `Sec-Fetch-Site` and `Origin`.
//! - The content security policy permits only the script and the style that are served here. Text
//!   from a queue is escaped and shown up to a limit.
//! - Headers such as `X-Forwarded-For` are ignored. Behind a proxy that changes the `Host` header,
//!   old browsers, which send no `Sec-Fetch-Site`, fail the check above.
//! - Each action of an operator leaves a line of level `INFO` under the target
//!   `delayline_web::audit`. Its fields are `visitor`, `action`, `queue`, `messages` and `outcome`,
//!   and `id` for a single message. A job leaves a line when it starts, when a visitor stops it,
//!   and when it ends, with its id as `job`. The first has its filter, rate and limit. Sends,
//!   claims and settlements are logged at `DEBUG`, and extensions of leases not at all.
//! - A request that is refused because of a missing role, or because it comes from another site,
//!   leaves a line of level `WARN`. So does a login with a wrong secret. After ten of these, an
//!   address has one attempt per second for each user; further attempts wait for up to 5 s, or are
//!   answered with 429. The server sets [`ClientAddress`].
//! - Only operators see the details of server errors, because they contain addresses.
//!
//! # Costs
//!
//! The list of queues contains the added queues. With [`Dashboard::discover`], it also contains the
//! queues found by searching the names of the server's keys. A search runs on request, at most once
//! a minute. It reads up to 1,000,000 keys of each primary and finds up to 1,000 queues. Pages
//! show when the list was read and whether it is complete.
//!
//! With [`Dashboard::server`], a page examines the servers: one connection and a few commands per
//! server, at most once every five seconds for all visitors together.
//!
//! With [`Dashboard::workers`], a page lists the processes with workers, with `CLIENT LIST` on each
//! primary at most once a second for all visitors together. Up to 100 leases of each queue are read
//! for it, at the same pace.
//!
//! A search through messages runs in the background, one call at a time. At most four run at once.
//! A search ends after 1,000,000 messages, 1 GiB of payloads, 5 minutes or 200 matches. It also
//! ends when its page was not open for 30 s.
//!
//! An open page of all queues reads each row that it shows at most twice in five seconds, for all
//! visitors together.
//!
//! Each page costs the server a few bounded calls: a list has at most 50 messages, a check or
//! repair examines 10,000 per click, and a filter of dead letters 1,000 per page. Longer work is a
//! job, one per queue, which counts, redrives or purges matching dead letters in the background,
//! one call at a time. It ends when it is stopped or the router is dropped. A failed call is
//! repeated for two seconds; after that, the page shows the reason.

/// Compiles the example of the README.
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
mod lock;
mod metrics;
mod origin;
mod pages;
mod params;
mod pull;
mod rights;
mod schedules;
mod searches;
mod served;
mod shared;
mod survey;
mod takes;
mod when;
mod worker_report;
mod workers;

/// Long polls, wrong secrets and the origins of messages, for the other endpoint of this workspace.
/// No stable interface.
#[doc(hidden)]
pub mod waiting {
    pub use crate::brake::Brake;
    pub use crate::origin::{SQS_HEADER, shown};
    pub use crate::pull::hold::{Claims, Hold};
    pub use crate::pull::polls::{Granted, Polls};
}

pub use axum::Router;

pub use self::access::{Access, ClientAddress, Credential, Visitor};
pub use self::dashboard::{BuildError, Dashboard};
pub use self::rights::{Rights, Role};
