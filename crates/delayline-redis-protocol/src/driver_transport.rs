//! [`DriverTransport`], which a driver crate exports.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use delayline_core::Error;

use crate::info::field;
use crate::link::Link;
use crate::link::connection_name::ConnectionName;
use crate::link::driver::Driver;
use crate::options::{CONNECT_TIMEOUT, RESPONSE_TIMEOUT};
use crate::route::{Router, scan, survey, wrong_mode};
use crate::runtime::runtime;
use crate::workers::Listed;
use crate::{
    CallError, ConnectOptions, QueueList, ScriptCall, Survey, Topology, Transport, Value,
    WorkerList, WorkerProcess,
};

/// A [`Transport`] over any [`Driver`].
///
/// For each server:
///
/// - One connection carries all calls. It is opened on first use. It is replaced when it is lost,
///   when a reply does not arrive within the response timeout, and after a reply of `READONLY` or
///   `NOAUTH`: after a failover, the same address leads to another server.
/// - Connection attempts are 0, 50, 100 ms and so on up to 2 s apart, each pause randomly shortened
///   by up to half. Calls in between fail at once with the error of the last attempt; only one
///   attempt runs at a time.
/// - At most [`MAX_CALLS_IN_FLIGHT`](crate::MAX_CALLS_IN_FLIGHT) calls wait for a reply.
/// - A call whose future is dropped may still be executed. Its connection is then checked with a
///   `PING`. So callers with a timeout shorter than the response timeout do not keep using a silent
///   connection.
/// - All waits share a separate connection, with one blocking command for all their lists; in a
///   cluster, there is one for each hash slot. For a few seconds there can be two, after a list was
///   added. A wait that is dropped leaves the command where it is: if it pops a hint without a
///   waiter, the bell is rung again.
///
/// In a cluster and behind sentinels:
///
/// - A call goes to the server of its first key, and to another one only after `MOVED`. With this
///   reply, a server refuses a call without executing it.
/// - When a server turns out to have been replaced, calls in progress on it end at once with
///   [`ConnectionLost`](delayline_core::ErrorKind::ConnectionLost), because the writes of such a
///   server may be lost.
/// - The topology is refreshed every 30 s (from sentinels every second), and up to five times a
///   second after a sign of a change.
/// - A server named by another one gets the same login, over TLS if the URL says so.
///
/// A call with a [`fence`](ScriptCall::fence) is confirmed over an additional connection to its
/// server, opened with the first such call. It has at most one `WAIT` in progress, for all calls
/// together (G27).
///
/// Once a process with workers has [introduced](Transport::introduce) itself, the connections that
/// carry calls have its name. A server that refuses the name is used without it.
///
/// Nothing is ever sent twice. Everything runs on the tokio runtime of the callers, which needs I/O
/// and time enabled. A call outside of a runtime fails with
/// [`Unsupported`](delayline_core::ErrorKind::Unsupported), and nothing is sent.
pub struct DriverTransport<D: Driver> {
    servers: Servers<D>,
    /// The name of the connections of calls.
    name: ConnectionName,
    /// Distinguishes the transports of a process in that name.
    number: u32,
}

enum Servers<D: Driver> {
    Single(Box<Link<D>>),
    Routed(Router<D>),
}

impl<D: Driver> DriverTransport<D> {
    /// Connects to a Redis server and logs in, or discovers the servers of a cluster or of
    /// sentinels.
    ///
    /// One server must reply within [`connect_timeout`](ConnectOptions::connect_timeout); each node
    /// of a cluster and each sentinel has one second.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes any connection it has opened.
    ///
    /// # Errors
    ///
    /// [`Invalid`](delayline_core::ErrorKind::Invalid) if a time limit is outside its bounds.
    /// [`Unreachable`](delayline_core::ErrorKind::Unreachable) if there is no such host or no
    /// server. `Tls` if the TLS session cannot be set up. `Authentication` if the server refuses
    /// the user name or password. `Unsupported` if the server has no database with that number or
    /// no RESP3, or is not part of a cluster. Also if a sentinel does not know the service, if this
    /// build has no TLS, or outside of a tokio runtime. `Busy` and `Overloaded` if it cannot serve
    /// now.
    pub async fn connect(options: &ConnectOptions) -> Result<Self, Error> {
        runtime()?;
        options.validate()?;
        let name = ConnectionName::default();
        let servers = match &options.topology {
            Topology::Single(address) => {
                let link = Link::of(address, options, &name, None)?;
                link.connect().await?;
                Servers::Single(Box::new(link))
            }
            Topology::Cluster { .. } | Topology::Sentinel { .. } => {
                Servers::Routed(Router::connect(options, &name).await?)
            }
        };
        Ok(Self::new(servers, name))
    }

    /// Connects with an existing driver and the timeouts of [`ConnectOptions::new`].
    ///
    /// A driver reaches one server. For a cluster, or a primary behind sentinels, use
    /// [`connect`](Self::connect) with their addresses.
    ///
    /// # Cancel safety
    ///
    /// Like [`connect`](Self::connect).
    ///
    /// # Errors
    ///
    /// Like [`connect`](Self::connect).
    pub async fn over(driver: D) -> Result<Self, Error> {
        runtime()?;
        let name = ConnectionName::default();
        let link = Link::new(driver, CONNECT_TIMEOUT, RESPONSE_TIMEOUT, &name, None);
        link.connect().await?;
        Ok(Self::new(Servers::Single(Box::new(link)), name))
    }

    fn new(servers: Servers<D>, name: ConnectionName) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        Self { servers, name, number: NEXT.fetch_add(1, Ordering::Relaxed) }
    }

    /// Reports the state of every server that holds queues, of every replica that could take over,
    /// and of every sentinel. Changes nothing.
    ///
    /// A server that is unreachable or refuses a command is reported as such. Each server gets a
    /// separate connection, with the login and the encryption that calls use. Replicas of a server
    /// behind a unix socket are not asked, because they cannot be reached in that way.
    ///
    /// # Cancel safety
    ///
    /// This call changes nothing; its future can be dropped.
    ///
    /// # Errors
    ///
    /// Like [`connect`](Self::connect), if none of the addresses that name the servers can be
    /// reached.
    pub async fn survey(options: &ConnectOptions) -> Result<Survey, Error> {
        runtime()?;
        options.validate()?;
        survey::<D>(options).await
    }
}

#[async_trait]
impl<D: Driver> Transport for DriverTransport<D> {
    async fn call(&self, call: ScriptCall<'_>) -> Result<Value, CallError> {
        runtime()?;
        match &self.servers {
            Servers::Single(link) => link.call(call).await,
            Servers::Routed(router) => router.call(call).await,
        }
    }

    async fn wait(&self, bell: &Bytes, timeout: Duration) -> Result<bool, CallError> {
        runtime()?;
        match &self.servers {
            Servers::Single(link) => link.wait(bell, timeout).await,
            Servers::Routed(router) => router.wait(bell, timeout).await,
        }
    }

    async fn info(&self, key: &Bytes) -> Result<String, CallError> {
        runtime()?;
        match &self.servers {
            Servers::Single(link) => {
                let info = link.info().await?;
                not_alone(&info).map_or(Ok(info), |error| Err(error.into()))
            }
            Servers::Routed(router) => router.info(key).await,
        }
    }

    async fn introduce(&self, process: Option<&WorkerProcess>) {
        if runtime().is_err() {
            return;
        }
        // Workers that start together are introduced together, by the first of them.
        if !self.name.set(process.map(|process| process.name(self.number))) {
            return;
        }
        match &self.servers {
            Servers::Single(link) => link.rename().await,
            Servers::Routed(router) => router.rename().await,
        }
    }

    async fn workers(&self) -> Result<WorkerList, Error> {
        runtime()?;
        match &self.servers {
            Servers::Single(link) => {
                let mut listed = Listed::default();
                let (text, database) = link.clients().await.map_err(CallError::into_error)?;
                listed.read(&text, database);
                Ok(listed.into_list(None))
            }
            Servers::Routed(router) => router.workers().await,
        }
    }

    async fn queues(&self, most_keys: u64) -> Result<QueueList, Error> {
        runtime()?;
        match &self.servers {
            Servers::Single(link) => {
                // If the user may not run `INFO`, the calls below report what else is missing.
                if let Ok(info) = link.info().await
                    && let Some(error) = not_alone(&info)
                {
                    return Err(error);
                }
                let mut found = QueueList::default();
                found.complete = scan(link, most_keys, &mut found.names).await?;
                Ok(found)
            }
            Servers::Routed(router) => router.queues(most_keys).await,
        }
    }
}

/// Shows addresses only.
impl<D: Driver> fmt::Debug for DriverTransport<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.servers {
            Servers::Single(link) => link.fmt(f),
            Servers::Routed(router) => router.fmt(f),
        }
    }
}

/// Refuses a single node of a cluster, which has only some of the queues, and not always the same
/// ones; and a sentinel, which has none.
fn not_alone(info: &str) -> Option<Error> {
    wrong_mode(field(info, "redis_mode")?)
}
