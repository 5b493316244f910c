//! What is different from driver to driver: making a connection, and one request over it.

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use delayline_core::Error;

use crate::{CallError, Value};

/// Makes connections with one Redis driver. [`Link`](crate::Link) does everything else.
#[async_trait]
pub trait Driver: Debug + Send + Sync + 'static {
    /// A connection of this driver.
    type Connection: Connection;

    /// Makes one connection and logs in. It has no time limit of its own.
    ///
    /// # Errors
    ///
    /// What failed. No operation was sent, so a
    /// [`Class::Ambiguous`](delayline_core::Class::Ambiguous) error counts as
    /// [`ErrorKind::Unreachable`](delayline_core::ErrorKind::Unreachable).
    async fn connect(&self) -> Result<Self::Connection, Error>;
}

/// One connection, used by many tasks at once. Dropping it closes it.
#[async_trait]
pub trait Connection: Send + Sync + 'static {
    /// Sends one command at most once and returns its reply. It has no time limit of its own:
    /// blocking commands use it too.
    ///
    /// # Errors
    ///
    /// [`CallError::Reply`] with the server's error line. [`CallError::Failed`] otherwise, with an
    /// error of [`Class::NotExecuted`](delayline_core::Class::NotExecuted) only where the command
    /// was certainly not sent.
    async fn request(&self, command: &'static str, args: Vec<Bytes>) -> Result<Value, CallError>;

    /// Whether the connection is known to be lost, so that nothing should be sent over it.
    fn is_closed(&self) -> bool;
}

/// How the system watches over a TCP connection, the same for all drivers. `TCP_NODELAY` belongs
/// to it too: a call is one small packet, and waiting for more halves the throughput
/// (redis-rs#2195).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct TcpUpkeep {
    /// An idle connection is probed after this time, so that firewalls and address translators
    /// don't forget it.
    pub keepalive_idle: Duration,
    /// The time between two probes.
    pub keepalive_interval: Duration,
    /// So many unanswered probes end the connection.
    pub keepalive_probes: u32,
    /// How long sent bytes may stay unacknowledged before the connection ends (Linux).
    pub user_timeout: Duration,
}

/// What every driver sets on its TCP connections.
pub const TCP_UPKEEP: TcpUpkeep = TcpUpkeep {
    keepalive_idle: Duration::from_secs(10),
    keepalive_interval: Duration::from_secs(5),
    keepalive_probes: 3,
    user_timeout: Duration::from_secs(15),
};
