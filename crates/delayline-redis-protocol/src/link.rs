//! Manages the connections of one driver to one server.

mod backoff;
mod bell_listeners;
mod blocking_pool;
mod channel;
pub(crate) mod connection_name;
mod dial;
pub(crate) mod driver;
mod durability;
mod facts;
mod fence;
mod health;
pub(crate) mod suspicion;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use delayline_core::{Error, ErrorKind};
use tokio::sync::Semaphore;

use self::bell_listeners::BellListeners;
use self::blocking_pool::BlockingPool;
use self::channel::Channel;
use self::connection_name::ConnectionName;
use self::dial::{Dial, set_name};
use self::driver::Driver;
use self::fence::Fences;
use self::health::unexpected;
use self::suspicion::Suspicion;
use crate::{Address, CallError, ConnectOptions, Fence, ScriptCall, ScriptName, Value};

/// Maximum number of calls that wait for replies at once. Further calls fail with
/// [`ErrorKind::Overloaded`](delayline_core::ErrorKind::Overloaded). So a stalled server takes up a
/// limited amount of memory.
pub const MAX_CALLS_IN_FLIGHT: usize = 10_000;
/// Maximum time of a single wait; a longer wait ends early. The command of a dropped wait stays on
/// the server for at most this time.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The connections to one server. [`DriverTransport`](crate::DriverTransport) documents their
/// guarantees.
pub(crate) struct Link<D: Driver> {
    calls: Channel<D>,
    bell_listeners: BellListeners<D>,
    fences: Fences<D>,
    permits: Semaphore,
    response_timeout: Duration,
    dial: Arc<Dial<D>>,
    name: ConnectionName,
}

impl<D: Driver> Link<D> {
    /// Creates a link to the server at `address`.
    ///
    /// # Errors
    ///
    /// If the driver does not support an option.
    pub(crate) fn of(
        address: &Address,
        options: &ConnectOptions,
        name: &ConnectionName,
        suspicion: Option<&Suspicion>,
    ) -> Result<Self, Error> {
        let driver = D::new(address, options)?;
        Ok(Self::new(driver, options.connect_timeout, options.response_timeout, name, suspicion))
    }

    /// Creates a link that connects on first use. An attempt to connect fails after
    /// `connect_timeout`, and a call if its reply takes longer than `response_timeout`. A call that
    /// has to connect first can take both. A server that is slow to reply raises `suspicion`. The
    /// connection of calls gets this name.
    pub(crate) fn new(
        driver: D,
        connect_timeout: Duration,
        response_timeout: Duration,
        name: &ConnectionName,
        suspicion: Option<&Suspicion>,
    ) -> Self {
        let dial = Arc::new(Dial::new(driver, connect_timeout));
        Self {
            calls: Channel::new(Arc::clone(&dial), name.clone(), suspicion.cloned()),
            bell_listeners: BellListeners::new(BlockingPool::new(Arc::clone(&dial))),
            fences: Fences::new(
                Channel::new(Arc::clone(&dial), ConnectionName::default(), suspicion.cloned()),
                response_timeout,
            ),
            permits: Semaphore::new(MAX_CALLS_IN_FLIGHT),
            response_timeout,
            dial,
            name: name.clone(),
        }
    }

    /// Adapts the link to a node of a cluster, where a command can name keys of one slot only.
    pub(crate) fn sharded(mut self) -> Self {
        self.bell_listeners = self.bell_listeners.sharded();
        self
    }

    /// Returns whether the connection of calls is open.
    pub(crate) fn is_connected(&self) -> bool {
        self.calls.is_connected()
    }

    /// Connects now rather than with the first call.
    ///
    /// # Errors
    ///
    /// The error of the driver's [`connect`](Driver::connect), or of the server's reply to a
    /// `PING`. Never of [`ErrorClass::Ambiguous`](delayline_core::ErrorClass::Ambiguous).
    pub(crate) async fn connect(&self) -> Result<(), Error> {
        self.calls.get().await.map(drop)
    }

    /// Sends one command at most once.
    ///
    /// # Errors
    ///
    /// The server's refusal, or the failure of the connection.
    pub(crate) async fn request(
        &self,
        command: &'static str,
        args: Vec<Bytes>,
    ) -> Result<Value, CallError> {
        let Ok(_permit) = self.permits.try_acquire() else {
            return Err(overloaded().into());
        };
        let request = async {
            let held = self.calls.get().await?;
            self.calls.request(&held, self.response_timeout, command, args).await
        };
        request.await.map_err(|error| self.named(error))
    }

    /// Like [`request`](Self::request), but returns once the fence's durability is confirmed.
    ///
    /// The connection of the fence is opened before the command is sent, so a restart or a failover
    /// of the server ends both connections.
    ///
    /// # Errors
    ///
    /// [`CallError::Failed`] with [`ErrorKind::Unconfirmed`] if it was executed but is not
    /// confirmed; `Unsupported` or `PermissionDenied` if it cannot be confirmed, and nothing was
    /// sent.
    async fn fenced(
        &self,
        command: &'static str,
        args: Vec<Bytes>,
        fence: Fence<'_>,
    ) -> Result<Value, CallError> {
        let Ok(_permit) = self.permits.try_acquire() else {
            return Err(overloaded().into());
        };
        let held = self.calls.get().await?;
        let prepared = self.fences.prepare(&self.calls, &held, fence.durability).await?;
        let reply = self.calls.request(&held, self.response_timeout, command, args).await?;
        if let Some(prepared) = prepared {
            self.fences.passed(&prepared, fence.key).await?;
        }
        Ok(reply)
    }

    /// Implements [`Transport::call`](crate::Transport::call).
    pub(crate) async fn call(&self, call: ScriptCall<'_>) -> Result<Value, CallError> {
        let (command, script) = match call.script {
            ScriptName::Sha1(sha1) => ("EVALSHA", sha1),
            ScriptName::Source(source) => ("EVAL", source),
        };
        let mut args = Vec::with_capacity(2 + call.keys.len() + call.args.len());
        args.push(Bytes::copy_from_slice(script.as_bytes()));
        args.push(call.keys.len().to_string().into());
        args.extend_from_slice(call.keys);
        args.extend_from_slice(call.args);
        match call.fence {
            None => self.request(command, args).await,
            Some(fence) => {
                self.fenced(command, args, fence).await.map_err(|error| self.named(error))
            }
        }
    }

    /// Implements [`Transport::wait`](crate::Transport::wait).
    pub(crate) async fn wait(&self, bell: &Bytes, limit: Duration) -> Result<bool, CallError> {
        let wait = self.bell_listeners.wait(bell, limit.min(LONGEST_WAIT)).await;
        wait.map_err(|error| self.named(error))
    }

    /// Adds the address of the server to a failure.
    fn named(&self, error: CallError) -> CallError {
        match error {
            CallError::Failed(error) => self.dial.named(error).into(),
            refusal @ CallError::Reply(_) => refusal,
        }
    }

    /// Renames the connection of calls after the name has changed. If there is none, the next one
    /// gets the name.
    pub(crate) async fn rename(&self) {
        if self.calls.is_empty() {
            return;
        }
        // Waits for an attempt under way, which may have begun with the old name.
        let Ok(held) = self.calls.get().await else { return };
        let name = set_name(self.name.get().unwrap_or_default());
        // A refusal changes nothing: names are for operators only.
        let _ = self.calls.request(&held, self.response_timeout, "CLIENT", name).await;
    }

    /// Returns the connections of the server, the text of `CLIENT LIST`, and the number of our
    /// database.
    pub(crate) async fn clients(&self) -> Result<(String, u32), CallError> {
        let reply = self.request("CLIENT", vec![Bytes::from_static(b"LIST")]).await?;
        Ok((text_of("CLIENT LIST", reply)?, self.dial.driver().database()))
    }

    /// Implements [`Transport::info`](crate::Transport::info).
    pub(crate) async fn info(&self) -> Result<String, CallError> {
        text_of("INFO", self.request("INFO", Vec::new()).await?)
    }
}

fn text_of(command: &'static str, reply: Value) -> Result<String, CallError> {
    match reply {
        Value::Bytes(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
        Value::Nil | Value::Int(_) | Value::Array(_) => Err(unexpected(command).into()),
    }
}

impl<D: Driver> fmt::Debug for Link<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Link").field(self.dial.driver()).finish()
    }
}

fn overloaded() -> Error {
    let detail = format!("{MAX_CALLS_IN_FLIGHT} calls wait for replies");
    Error::with_detail(ErrorKind::Overloaded, detail)
}
