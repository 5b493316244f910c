//! A backend that fails on purpose, and a test that repeating is safe.

mod drops;
mod retries;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use delayline_core::{Applied, At, Backend, Durability, Error, ErrorKind, Op, QueueName, Wakeup};

pub(crate) use self::drops::dropped_operations_are_whole;
pub(crate) use self::retries::{retries_after_drops_are_safe, retries_are_safe};

/// A fault of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// None: the call goes through.
    None,
    /// The operation is not executed, and the error says so.
    Before,
    /// The operation is executed, and its reply is lost.
    After,
    /// The operation is executed twice, as by a driver that repeats calls; the second reply is
    /// returned.
    Twice,
    /// The future of the call is dropped after this many polls, unless it is ready by then. Whether
    /// the operation is executed is unknown, and the error says so.
    Dropped(u32),
}

/// Wraps a backend and injects faults according to a schedule.
///
/// With an empty schedule, it behaves like the inner backend and passes the same suite.
#[derive(Debug)]
pub struct Faulty<B> {
    inner: B,
    schedule: Mutex<VecDeque<Fault>>,
}

impl<B> Faulty<B> {
    /// Wraps `inner`. Each call takes the next fault of the schedule; after its end, none fails.
    pub fn new(inner: B, schedule: impl IntoIterator<Item = Fault>) -> Self {
        Self { inner, schedule: Mutex::new(schedule.into_iter().collect()) }
    }

    /// Returns the inner backend, which does not fail.
    pub const fn inner(&self) -> &B {
        &self.inner
    }

    fn next(&self) -> Fault {
        let mut schedule = self.schedule.lock().unwrap_or_else(PoisonError::into_inner);
        schedule.pop_front().unwrap_or(Fault::None)
    }
}

#[async_trait]
impl<B: Backend> Backend for Faulty<B> {
    fn queue_name(&self) -> Option<&QueueName> {
        self.inner.queue_name()
    }

    async fn apply(&self, at: At, op: &Op) -> Result<Applied, Error> {
        self.apply_durably(at, op, Durability::None).await
    }

    async fn apply_durably(
        &self,
        at: At,
        op: &Op,
        durability: Durability,
    ) -> Result<Applied, Error> {
        let call = || self.inner.apply_durably(at, op, durability);
        match self.next() {
            Fault::None => call().await,
            Fault::Before => Err(injected(ErrorKind::Unreachable)),
            Fault::After => {
                call().await?;
                Err(injected(ErrorKind::ConnectionLost))
            }
            Fault::Twice => {
                call().await?;
                call().await
            }
            Fault::Dropped(polls) => {
                let reply = polled(call(), polls).await;
                reply.unwrap_or_else(|| Err(injected(ErrorKind::ConnectionLost)))
            }
        }
    }
}

/// Polls a future at most this many times, whenever it wakes up, and then drops it. Returns `None`
/// if it is not ready by then.
pub(crate) async fn polled<T>(future: impl Future<Output = T>, polls: u32) -> Option<T> {
    let (mut future, mut left) = (pin!(future), polls);
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

#[async_trait]
impl<B: Wakeup> Wakeup for Faulty<B> {
    async fn wait(&self, timeout: Duration) -> Result<bool, Error> {
        self.inner.wait(timeout).await
    }

    async fn ring(&self) -> Result<(), Error> {
        self.inner.ring().await
    }
}

fn injected(kind: ErrorKind) -> Error {
    Error::with_detail(kind, "on purpose")
}
