//! [`DriverTransport`]: what a driver crate exports.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use delayline_core::{Error, ErrorKind};

use crate::info::field;
use crate::link::Link;
use crate::link::driver::Driver;
use crate::options::{CONNECT_TIMEOUT, RESPONSE_TIMEOUT};
use crate::route::{Router, survey};
use crate::{CallError, ConnectOptions, ScriptCall, Survey, Topology, Transport, Value};

/// A [`Transport`] over any [`Driver`].
///
/// For each server:
///
/// - One connection carries all calls. It is made on first use, and anew after it was lost, after
///   a reply that did not come within the response timeout, and after a reply of `READONLY` or
///   `NOAUTH`: after a failover the same address leads to another server.
/// - Attempts to connect are spaced by 0, 50, 100 ms and so on up to 2 s, each pause shortened by up
///   to half by chance. Calls in between fail at once with the error of the last attempt; no call
///   starts a second attempt while one runs.
/// - At most [`MAX_CALLS_IN_FLIGHT`](crate::MAX_CALLS_IN_FLIGHT) calls wait for a reply.
/// - A call that is dropped may still be executed. Its connection has to answer a `PING` then, so
///   that callers who give up sooner than the response timeout don't stay with a silent one.
/// - All waits share one connection of their own, with one blocking command over all their lists; in
///   a cluster each hash slot has one. For some seconds there can be two, when a list is added. When
///   nobody waits for a list any more, the connection that could still pop from it is closed.
///
/// In a cluster and behind sentinels:
///
/// - A call goes to the server that its first key belongs to, and on to another one only after
///   `MOVED`, with which a server refuses what it has not executed.
/// - A call under way to a server that is found to have been replaced ends at once, with
///   [`ErrorKind::ConnectionLost`]: what such a server answers may be lost.
/// - Who serves what is asked every 30 s (of sentinels every second), and up to five times a second
///   after a sign of a change.
/// - A server that another one names gets the same login, over TLS where the URL says so.
///
/// A call with a [`fence`](ScriptCall::fence) is confirmed over one more connection to its server, which
/// is made with the first of them. It has one `WAIT` under way at most, for all calls together.
///
/// Nothing is ever sent twice. Everything runs on the tokio runtime of the callers, which has I/O and
/// time enabled.
pub struct DriverTransport<D: Driver>(Way<D>);

enum Way<D: Driver> {
    Single(Link<D>),
    Routed(Router<D>),
}

impl<D: Driver> DriverTransport<D> {
    /// Connects to a Redis server and logs in, or asks a cluster or sentinels for their servers.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unreachable`] where there is no such host or no server, `Tls` where the TLS
    /// session cannot be set up, `Authentication` where the server refuses the user name or password,
    /// `Unsupported` where it has no database of that number or no RESP3, is in no cluster, is a
    /// sentinel that does not know the service, or where this build has no TLS; `Busy` and
    /// `Overloaded` where it cannot serve now.
    ///
    /// One server answers within [`connect_timeout`](ConnectOptions::connect_timeout); of a cluster
    /// and of sentinels each has a second.
    pub async fn connect(options: &ConnectOptions) -> Result<Self, Error> {
        let way = match &options.topology {
            Topology::Single(address) => {
                let link = Link::of(address, options)?;
                link.connect().await?;
                Way::Single(link)
            }
            Topology::Cluster { .. } | Topology::Sentinel { .. } => {
                Way::Routed(Router::connect(options).await?)
            }
        };
        Ok(Self(way))
    }

    /// Connects with a driver that is ready, with the timeouts of [`ConnectOptions::new`].
    ///
    /// # Errors
    ///
    /// Like [`connect`](Self::connect).
    pub async fn over(driver: D) -> Result<Self, Error> {
        let link = Link::new(driver, CONNECT_TIMEOUT, RESPONSE_TIMEOUT);
        link.connect().await?;
        Ok(Self(Way::Single(link)))
    }

    /// Asks every server that holds queues, or that may take the place of one that does, what it says
    /// of itself, and every sentinel what it knows: for reports to operators. Changes nothing.
    ///
    /// Whoever cannot be reached, or refuses a command, is reported as such. Each is asked over a
    /// connection of its own, with the login and the encryption that calls would have; replicas of a
    /// server behind a unix socket are not asked, because the way to them is another one.
    ///
    /// # Errors
    ///
    /// Like [`connect`](Self::connect), if there is nobody who names the servers.
    pub async fn survey(options: &ConnectOptions) -> Result<Survey, Error> {
        survey::<D>(options).await
    }
}

#[async_trait]
impl<D: Driver> Transport for DriverTransport<D> {
    async fn call(&self, call: ScriptCall<'_>) -> Result<Value, CallError> {
        match &self.0 {
            Way::Single(link) => link.call(call).await,
            Way::Routed(router) => router.call(call).await,
        }
    }

    async fn wait(&self, bell: &Bytes, timeout: Duration) -> Result<bool, CallError> {
        match &self.0 {
            Way::Single(link) => link.wait(bell, timeout).await,
            Way::Routed(router) => router.wait(bell, timeout).await,
        }
    }

    async fn info(&self, key: &Bytes) -> Result<String, CallError> {
        match &self.0 {
            Way::Single(link) => {
                let info = link.info().await?;
                not_alone(&info).map_or(Ok(info), |error| Err(error.into()))
            }
            Way::Routed(router) => router.info(key).await,
        }
    }
}

/// Shows addresses only.
impl<D: Driver> fmt::Debug for DriverTransport<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Way::Single(link) => link.fmt(f),
            Way::Routed(router) => router.fmt(f),
        }
    }
}

/// Refuses one node of a cluster, which has a part of the queues only, and not for ever the same part;
/// and a sentinel, which has none.
fn not_alone(info: &str) -> Option<Error> {
    wrong_mode(field(info, "redis_mode")?)
}

/// Why a server of that `redis_mode` is not to be used by itself.
pub(crate) fn wrong_mode(mode: &str) -> Option<Error> {
    let (what, advice) = match mode {
        "cluster" => (
            "one node of a cluster",
            "a cluster's URL begins with redis-cluster:// or rediss-cluster://",
        ),
        "sentinel" => (
            "a sentinel in the place of a server",
            "its URL begins with redis-sentinel:// or rediss-sentinel:// and ends with the service",
        ),
        _ => return None,
    };
    Some(Error::with_detail(ErrorKind::Unsupported(what), advice))
}
