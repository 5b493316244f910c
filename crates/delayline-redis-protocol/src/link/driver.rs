//! What differs between drivers: opening a connection, and one request over it.

use std::fmt::Debug;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use delayline_core::{Error, ErrorKind};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinError, JoinHandle, unconstrained};

use crate::{Address, CallError, ConnectOptions, Value};

/// Opens connections to one server with one Redis library.
/// [`DriverTransport`](crate::DriverTransport) does everything else.
///
/// `Debug` shows the address, but neither user name nor password.
#[async_trait]
pub trait Driver: Debug + Send + Sync + Sized + 'static {
    /// The connections of this driver.
    type Connection: Connection;

    /// Creates a driver for the server at `address`, with the login, the database, the protocol and
    /// the certificate authorities of `options`. Does not connect yet.
    ///
    /// # Errors
    ///
    /// If this driver or this build does not support an option, or the authorities cannot be read.
    fn new(address: &Address, options: &ConnectOptions) -> Result<Self, Error>;

    /// Returns the number of the database that the connections select, 0 by default. The workers of
    /// other databases are not listed.
    fn database(&self) -> u32;

    /// Opens one connection and logs in. The caller sets a time limit.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future must close the connection.
    ///
    /// # Errors
    ///
    /// Why it failed. No operation was sent, so an error of
    /// [`ErrorClass::Ambiguous`](delayline_core::ErrorClass::Ambiguous) is treated as
    /// [`ErrorKind::Unreachable`](delayline_core::ErrorKind::Unreachable).
    async fn connect(&self) -> Result<Self::Connection, Error>;
}

/// One connection, shared by many tasks. Dropping it closes it.
#[async_trait]
pub trait Connection: Send + Sync + 'static {
    /// Sends one command at most once and returns its reply. It has no time limit of its own,
    /// because blocking commands use it too.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the command may or may not be executed. The connection must stay
    /// usable.
    ///
    /// # Errors
    ///
    /// [`CallError::Reply`] with the server's error line. [`CallError::Failed`] otherwise, with an
    /// error of [`ErrorClass::NotExecuted`](delayline_core::ErrorClass::NotExecuted) only if the
    /// command was certainly not sent.
    async fn request(&self, command: &'static str, args: Vec<Bytes>) -> Result<Value, CallError>;

    /// Whether the connection is known to be lost, so that nothing more should be sent.
    fn is_closed(&self) -> bool;
}

/// The task of a driver that reads and writes for one connection. Dropping this aborts the task,
/// and so closes the socket even while a request waits for a reply that will never come
/// (redis-rs#1236).
#[derive(Debug)]
pub struct DriverTask {
    abort: AbortHandle,
    /// Changes once, when the task has ended, to the error for requests without a reply.
    end: watch::Receiver<Option<Error>>,
}

impl DriverTask {
    /// Watches a task. When it ends, `failure` returns the error for the requests that it has not
    /// answered.
    ///
    /// Needs a tokio runtime, and runs on it.
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

    /// Returns the reply to a request, unless the task ends without giving one.
    ///
    /// A request that arrives just as the task ends can remain in its queue, neither sent nor
    /// refused: the queue lives as long as the request, which waits for its reply.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `reply`; the task continues.
    ///
    /// # Errors
    ///
    /// The error from `failure`, if the task has ended and has not answered the request.
    pub async fn unless_ended<T>(&self, reply: impl Future<Output = T>) -> Result<T, Error> {
        let mut end = self.end.clone();
        let mut reply = pin!(reply);
        let failure = tokio::select! {
            biased;
            reply = &mut reply => return Ok(reply),
            ended = end.wait_for(Option::is_some) => ended.ok().and_then(|failure| failure.clone()),
        };
        // The task answers before it ends, but on another thread it can do both between the polls
        // of `reply` and `end`. Unconstrained, because without a budget every reply looks pending.
        let last_look = poll_fn(|cx| Poll::Ready(reply.as_mut().poll(cx)));
        match unconstrained(last_look).await {
            Poll::Ready(reply) => Ok(reply),
            // There is no failure if the runtime has ended.
            Poll::Pending => Err(failure.unwrap_or_else(|| Error::new(ErrorKind::ConnectionLost))),
        }
    }

    /// Whether the task has ended, so that nothing more should be sent.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        // The sender is also gone if the runtime has ended.
        self.end.has_changed().unwrap_or(true)
    }
}

impl Drop for DriverTask {
    fn drop(&mut self) {
        self.abort.abort();
    }
}

/// The TCP settings of all drivers' connections. `TCP_NODELAY` is set as well: a call is one small
/// packet, and delaying it halves the throughput (redis-rs#2195).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct TcpUpkeep {
    /// An idle connection is probed after this time, so that firewalls and address translators do
    /// not forget it.
    pub keepalive_idle: Duration,
    /// The time between two probes.
    pub keepalive_interval: Duration,
    /// The number of unanswered probes after which the connection is closed.
    pub keepalive_probes: u32,
    /// How long sent bytes may stay unacknowledged before the connection is closed (Linux).
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
    use std::pin::Pin;

    use tokio::sync::oneshot;
    use tokio::task::consume_budget;

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
    async fn the_end_hides_no_reply_that_came_before_it() {
        // More than tokio lets a task do at once, after which it finds everything pending.
        for steps in 0..150 {
            tokio::spawn(ends_between_two_looks(steps)).await.unwrap();
        }
    }

    /// The task answers and ends after its reply was found pending and before its end is looked at.
    async fn ends_between_two_looks(steps: usize) {
        let (end, ended) = watch::channel(None);
        let abort = tokio::spawn(pending::<()>()).abort_handle();
        let task = DriverTask { abort, end: ended };
        let (answer, mut reply) = oneshot::channel();
        let mut answer = Some(answer);
        let reply = poll_fn(|cx| {
            let seen = Pin::new(&mut reply).poll(cx);
            if let Some(answer) = answer.take() {
                answer.send(7).unwrap();
                end.send_replace(Some(Error::new(ErrorKind::Unreachable)));
            }
            seen
        });
        for _ in 0..steps {
            consume_budget().await;
        }
        assert_eq!(task.unless_ended(reply).await.unwrap(), Ok(7), "after {steps} steps");
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
