//! What is different from driver to driver: making a connection, and one request over it.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use delayline_core::{Error, ErrorKind};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinError, JoinHandle};

use crate::{Address, CallError, ConnectOptions, Value};

/// Makes connections to one server with one Redis library.
/// [`DriverTransport`](crate::DriverTransport) does everything else.
///
/// `Debug` shows the address, and neither user name nor password.
#[async_trait]
pub trait Driver: Debug + Send + Sync + Sized + 'static {
    /// A connection of this driver.
    type Connection: Connection;

    /// For connections to the server at `address`, with the login, the database, the protocol and
    /// the authorities of `options`. Connects nothing yet.
    ///
    /// # Errors
    ///
    /// What this driver or this build cannot do of it, or authorities that cannot be read.
    fn new(address: &Address, options: &ConnectOptions) -> Result<Self, Error>;

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

/// The task of a driver that reads and writes for one connection. Dropping this ends it, and so
/// closes the socket also where a reply is awaited that will never come (redis-rs#1236).
#[derive(Debug)]
pub struct DriverTask {
    abort: AbortHandle,
    /// Changes once, when the task has ended: what is to be said to requests without a reply.
    end: watch::Receiver<Option<Error>>,
}

impl DriverTask {
    /// Watches over a task. `failure` tells from its end how requests fail that it has not answered.
    ///
    /// Needs a tokio runtime, and lives on it.
    pub fn watch<T: Send + 'static>(
        task: JoinHandle<T>,
        failure: impl FnOnce(Result<T, JoinError>) -> Error + Send + 'static,
    ) -> Self {
        let abort = task.abort_handle();
        let (sender, end) = watch::channel(None);
        tokio::spawn(async move {
            let error = failure(task.await);
            sender.send_replace(Some(error));
        });
        Self { abort, end }
    }

    /// The reply to a request, if it comes before the task ends.
    ///
    /// A request that comes in just while the task ends can be left in its queue, neither read nor
    /// refused: the queue lives as long as the request, and the request waits for its reply.
    ///
    /// # Errors
    ///
    /// The task has ended: its `failure`.
    pub async fn unless_ended<T>(&self, reply: impl Future<Output = T>) -> Result<T, Error> {
        let mut end = self.end.clone();
        tokio::select! {
            biased;
            reply = reply => Ok(reply),
            ended = end.wait_for(Option::is_some) => {
                let failure = ended.ok().and_then(|failure| failure.clone());
                // Nobody tells when the runtime has ended.
                Err(failure.unwrap_or_else(|| Error::new(ErrorKind::ConnectionLost)))
            }
        }
    }

    /// Whether the task has ended, so that nothing should be sent any more.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        // It has ended without a word when its runtime has.
        self.end.has_changed().unwrap_or(true)
    }
}

impl Drop for DriverTask {
    fn drop(&mut self) {
        self.abort.abort();
    }
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

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::sync::oneshot;

    use super::*;

    fn lost<T>(_: Result<T, JoinError>) -> Error {
        Error::new(ErrorKind::ConnectionLost)
    }

    #[tokio::test]
    async fn a_request_ends_with_the_task_that_was_to_answer_it() {
        let (end, ended) = oneshot::channel::<()>();
        let task = DriverTask::watch(tokio::spawn(ended), lost);
        assert_eq!(task.unless_ended(async { 7 }).await.unwrap(), 7);
        assert!(!task.has_ended());
        let request = tokio::spawn(async move {
            let failure = task.unless_ended(pending::<()>()).await.unwrap_err();
            assert_eq!(failure.kind(), &ErrorKind::ConnectionLost);
            assert!(task.has_ended());
            assert_eq!(task.unless_ended(async { 8 }).await.unwrap(), 8, "what is there counts");
        });
        end.send(()).unwrap();
        request.await.unwrap();
    }

    #[tokio::test]
    async fn a_task_ends_when_nobody_holds_it() {
        let (held, released) = oneshot::channel::<()>();
        let driver = tokio::spawn(async move {
            let _held = held;
            pending::<()>().await;
        });
        drop(DriverTask::watch(driver, lost));
        assert!(released.await.is_err());
    }
}
