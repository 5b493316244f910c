//! [`FredTransport`]: a link with fred at its end.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use delayline_core::Error;
use delayline_redis_protocol::{
    Address, CallError, ConnectOptions, Link, ScriptCall, Transport, Value,
};
use fred::clients::Client;

use crate::driver::FredDriver;

/// A [`Transport`] over fred.
///
/// How it connects, reconnects and limits calls is said at [`Link`]; what fred would do of this by
/// itself is switched off, because it sends commands again. It needs a tokio runtime with I/O and
/// time enabled, now and at each call.
pub struct FredTransport(Link<FredDriver>);

impl FredTransport {
    /// Connects to one Redis server, logs in and waits for the answer to a `PING`.
    ///
    /// # Errors
    ///
    /// After [`connect_timeout`](ConnectOptions::connect_timeout) at the latest:
    /// [`ErrorKind::Unreachable`](delayline_core::ErrorKind::Unreachable) where there is no such
    /// host or no server, `Tls` where the TLS session can't be set up, `Authentication` where the
    /// server refuses the user name or password, `Unsupported` where it has no database of that
    /// number or no RESP3, or this build no TLS, or where the database number is above 255, which
    /// fred can't say; `Busy` and `Overloaded` where it can't serve now. A password for a server
    /// that wants none is no error: fred takes the server's answer for a success.
    pub async fn connect(options: &ConnectOptions) -> Result<Self, Error> {
        Self::connected(FredDriver::from_options(options)?, options).await
    }

    /// Connects like the client: with its address, login, TLS connector and TCP settings.
    ///
    /// For what [`ConnectOptions`] can't say, client certificates for example. The transport makes
    /// connections of its own, with the timeouts of [`ConnectOptions::new`], and switches
    /// `TCP_NODELAY` on; the client itself is left as it is and need not be connected.
    ///
    /// # Errors
    ///
    /// Like [`connect`](Self::connect), and `Unsupported` if the client is for a cluster or for
    /// sentinels.
    pub async fn from_client(client: &Client) -> Result<Self, Error> {
        // Only the timeouts of these are used.
        let defaults = ConnectOptions::new(Address::Unix("".into()));
        Self::connected(FredDriver::from_client(client)?, &defaults).await
    }

    async fn connected(driver: FredDriver, options: &ConnectOptions) -> Result<Self, Error> {
        let link = Link::new(driver, options.connect_timeout, options.response_timeout);
        link.connect().await?;
        Ok(Self(link))
    }
}

#[async_trait]
impl Transport for FredTransport {
    async fn call(&self, call: ScriptCall<'_>) -> Result<Value, CallError> {
        self.0.call(call).await
    }

    async fn wait(&self, bell: &Bytes, timeout: Duration) -> Result<bool, CallError> {
        self.0.wait(bell, timeout).await
    }

    async fn info(&self) -> Result<String, CallError> {
        self.0.info().await
    }
}

/// Shows the address only.
impl fmt::Debug for FredTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FredTransport").field(&self.0).finish()
    }
}
