//! Delayline over [fred]: [`FredTransport`].
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use delayline_fred::FredTransport;
//!
//! let transport = FredTransport::connect(&"redis://localhost".parse()?).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! - `tls` (on by default): `rediss://`, with rustls and its `ring` provider.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod connection;
mod driver;
mod failure;
mod order;

pub use driver::FredDriver;

/// The [`Transport`](delayline_redis_protocol::Transport) over fred.
pub type FredTransport = delayline_redis_protocol::DriverTransport<FredDriver>;
