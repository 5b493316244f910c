//! Delayline over [fred]: [`transport`] uses a client that a program has,
//! [`FredTransport::connect`] connects to a URL.
//!
//! `delayline::Connect::over` takes such a transport.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use fred::types::Builder;
//! use fred::types::config::Config;
//!
//! let client = Builder::from_config(Config::from_url("redis://localhost")?).build()?;
//! let transport = delayline_fred::transport(&client).await?;
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

use std::sync::Arc;

use delayline_core::Error;
#[cfg(doc)]
use delayline_core::ErrorKind;
use delayline_redis_protocol::{DriverTransport, Transport};

pub use driver::FredDriver;

/// The [`Transport`] over fred.
pub type FredTransport = DriverTransport<FredDriver>;

/// Uses the address, the login, the TLS connector and the TCP settings of a client: all that its
/// own connections have, such as client certificates. The transport opens its own connections, with
/// `TCP_NODELAY`; the client is not changed and need not be connected.
///
/// A client for a cluster or for sentinels is refused, and so is a queue on one node of a cluster:
/// connect with a URL that names the cluster or the service.
///
/// # Cancel safety
///
/// Dropping the future closes any connection it has opened.
///
/// # Errors
///
/// [`ErrorKind::Unsupported`] if the client is for a cluster or for sentinels. Otherwise like
/// [`FredTransport::connect`].
pub async fn transport(client: &fred::clients::Client) -> Result<Arc<dyn Transport>, Error> {
    Ok(Arc::new(FredTransport::over(FredDriver::from_client(client)?).await?))
}
