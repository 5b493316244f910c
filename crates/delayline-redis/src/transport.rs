//! [`RedisTransport`]: a link with redis-rs at its end.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use delayline_core::Error;
use delayline_redis_protocol::{
    Address, CallError, ConnectOptions, Link, ScriptCall, Transport, Value,
};
use redis::Client;

use crate::driver::RedisDriver;

/// A [`Transport`] over redis-rs.
///
/// How it connects, reconnects and limits calls is said at [`Link`]. It needs a tokio runtime with
/// I/O and time enabled, now and at each call.
pub struct RedisTransport(Link<RedisDriver>);

impl RedisTransport {
    /// Connects to one Redis server, logs in and waits for the answer to a `PING`.
    ///
    /// # Errors
    ///
    /// After [`connect_timeout`](ConnectOptions::connect_timeout) at the latest:
    /// [`ErrorKind::Unreachable`](delayline_core::ErrorKind::Unreachable) where there is no such
    /// host or no server, `Tls` where the TLS session can't be set up, `Authentication` where the
    /// server refuses the user name or password, `Unsupported` where it has no database of that
    /// number or no RESP3, or this build no TLS; `Busy` and `Overloaded` where it can't serve now.
    pub async fn connect(options: &ConnectOptions) -> Result<Self, Error> {
        Self::connected(RedisDriver::from_options(options)?, options).await
    }

    /// Connects like the client: with its address, login, TLS parameters and TCP settings.
    ///
    /// For what [`ConnectOptions`] can't say, client certificates for example; TLS then comes from
    /// the client's build of redis-rs. The transport makes connections of its own, with the
    /// timeouts of [`ConnectOptions::new`], and switches `TCP_NODELAY` on.
    ///
    /// Unlike with [`connect`](Self::connect), a connection that the server closed while nothing
    /// was on its way is noticed only by the next call, which fails with
    /// [`ErrorKind::ConnectionLost`](delayline_core::ErrorKind::ConnectionLost).
    ///
    /// # Errors
    ///
    /// Like [`connect`](Self::connect).
    pub async fn from_client(client: &Client) -> Result<Self, Error> {
        // Only the timeouts of these are used.
        let defaults = ConnectOptions::new(Address::Unix("".into()));
        Self::connected(RedisDriver::from_client(client)?, &defaults).await
    }

    async fn connected(driver: RedisDriver, options: &ConnectOptions) -> Result<Self, Error> {
        let link = Link::new(driver, options.connect_timeout, options.response_timeout);
        link.connect().await?;
        Ok(Self(link))
    }
}

#[async_trait]
impl Transport for RedisTransport {
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
impl fmt::Debug for RedisTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedisTransport").field(&self.0).finish()
    }
}
