//! Delayline over [redis-rs](redis): [`RedisTransport`].
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use delayline_redis::RedisTransport;
//!
//! let transport = RedisTransport::connect(&"redis://localhost".parse()?).await?;
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

pub use driver::RedisDriver;

/// The [`Transport`](delayline_redis_protocol::Transport) over redis-rs.
pub type RedisTransport = delayline_redis_protocol::DriverTransport<RedisDriver>;
