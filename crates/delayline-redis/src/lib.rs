//! Delayline over [redis-rs](redis): [`transport`] uses a client that a program has,
//! [`RedisTransport::connect`] connects to a URL.
//!
//! `delayline::Connect::over` takes such a transport.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = redis::Client::open("redis://localhost")?;
//! let transport = delayline_redis::transport(&client).await?;
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

use std::sync::Arc;

use delayline_core::Error;
#[cfg(doc)]
use delayline_core::ErrorKind;
#[cfg(doc)]
use delayline_redis_protocol::TCP_UPKEEP;
use delayline_redis_protocol::{DriverTransport, Transport};

pub use driver::RedisDriver;

/// The [`Transport`] over redis-rs.
pub type RedisTransport = DriverTransport<RedisDriver>;

/// Creates a transport with the address, the login, the TLS parameters (such as client
/// certificates) and the TCP settings of a client. It opens its own connections, with `TCP_NODELAY`
/// and RESP3. If the client has no keepalive or user timeout, they have those of [`TCP_UPKEEP`].
/// TLS depends on the features of redis-rs.
///
/// A client reaches one server. If that is a node of a cluster or a sentinel, opening a queue fails
/// with [`ErrorKind::Unsupported`]: connect with a URL that names the cluster or the service.
///
/// # Cancel safety
///
/// Dropping the future closes any connection it has opened.
///
/// # Errors
///
/// [`ErrorKind::Unsupported`] if redis-rs refuses the client's configuration. Otherwise like
/// [`RedisTransport::connect`].
pub async fn transport(client: &redis::Client) -> Result<Arc<dyn Transport>, Error> {
    Ok(Arc::new(RedisTransport::over(RedisDriver::from_client(client)?).await?))
}
