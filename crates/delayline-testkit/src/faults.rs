//! A backend that fails on purpose, and a test that repeating is safe.

mod retries;

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use delayline_core::{Applied, At, Backend, Durability, Error, ErrorKind, Op, QueueName, Wakeup};

pub(crate) use self::retries::retries_are_safe;

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
        }
    }
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
