//! The traits that a backend implements.

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;

use crate::{Applied, At, Durability, Error, ErrorKind, Op, QueueName};

/// One queue, wherever it is stored.
///
/// # Implementing
///
/// - `apply` returns what [`State::apply`](crate::State::apply) returns for the same history. The
///   suite in `delayline-testkit` checks this.
/// - Operations are atomic: each takes effect at one instant between call and reply, completely or
///   not at all (G3), even if the future is dropped.
/// - Operations that violate a limit are refused by [`Op::validate`] before anything is sent.
/// - With [`At::Server`], all clients of the queue share one clock; client clocks decide nothing
///   (G4).
/// - An `Err` of class [`ErrorClass::NotExecuted`](crate::ErrorClass::NotExecuted) or
///   [`ErrorClass::Rejected`](crate::ErrorClass::Rejected) means that nothing was changed. If that
///   is not certain, the class is [`ErrorClass::Ambiguous`](crate::ErrorClass::Ambiguous).
/// - Every call returns within a bounded time, and the backend recovers automatically after a
///   fault.
/// - A missing capability is reported as [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported),
///   never ignored. Only durabilities are optional: the suite needs every operation.
///
/// Wrappers (metrics, fault injection) implement this trait too and pass the same suite.
#[async_trait]
pub trait Backend: Debug + Send + Sync {
    /// Executes `op` atomically. If the future is dropped, it may still be executed.
    ///
    /// # Errors
    ///
    /// The [`class`](Error::class) of the [`Error`] says whether the operation may be repeated.
    async fn apply(&self, at: At, op: &Op) -> Result<Applied, Error>;

    /// Returns the queue's name for spans, metrics and logs, or `None` if it has none.
    fn queue_name(&self) -> Option<&QueueName> {
        None
    }

    /// Executes `op` like [`apply`](Self::apply), and returns once its effect is as safe as
    /// `durability` requires (G25). This includes repeated operations: the earlier attempt may not
    /// have been confirmed yet. With [`Durability::None`], a backend that makes everything durable
    /// may return from a claim earlier, as long as no later lease of a message has the same epoch.
    /// The default refuses everything but [`Durability::None`].
    ///
    /// # Errors
    ///
    /// Like `apply`. [`ErrorKind::Unconfirmed`](crate::ErrorKind::Unconfirmed) if the operation was
    /// executed but not confirmed in time; it may be repeated.
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported), before anything is sent, if this
    /// backend cannot confirm it.
    async fn apply_durably(
        &self,
        at: At,
        op: &Op,
        durability: Durability,
    ) -> Result<Applied, Error> {
        match durability {
            Durability::None => self.apply(at, op).await,
            Durability::Replicas(_) | Durability::Disk => {
                durability.validate()?;
                let detail = format!("{durability}: this backend keeps messages in one place only");
                Err(Error::with_detail(ErrorKind::Unsupported("durability"), detail))
            }
        }
    }
}

/// Hints that a message may have become claimable, to wake sleeping workers early.
///
/// Hints may be lost, late or wrong; correctness never depends on one (G22). Every sleeper also
/// wakes up by its own timer.
#[async_trait]
pub trait Wakeup: Debug + Send + Sync {
    /// Waits up to `timeout` for a hint, and returns whether one arrived. It may return `false`
    /// earlier if several waits share a connection. A hint that arrives without a waiter is kept
    /// for the next caller; several are kept as one. Dropping the future loses at most one hint.
    /// Waits run at the same time: a long one delays another by a few seconds at most.
    ///
    /// # Errors
    ///
    /// [`Error`] if hints are unavailable at the moment; the caller then relies on its own timer.
    async fn wait(&self, timeout: Duration) -> Result<bool, Error>;

    /// Passes a hint to one waiter, or to the next one to arrive: a process that is woken without a
    /// free slot passes its hint on. The default does nothing, for backends without hints; wrappers
    /// should forward the call.
    ///
    /// # Errors
    ///
    /// [`Error`] if the hint could not be passed on; waiters still wake up by their own timers.
    async fn ring(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// A backend that also gives hints, as workers need it. Implemented for every type that is both.
pub trait QueueBackend: Backend + Wakeup {}

impl<B: Backend + Wakeup + ?Sized> QueueBackend for B {}

#[async_trait]
impl<B: Backend + ?Sized> Backend for std::sync::Arc<B> {
    async fn apply(&self, at: At, op: &Op) -> Result<Applied, Error> {
        (**self).apply(at, op).await
    }

    fn queue_name(&self) -> Option<&QueueName> {
        (**self).queue_name()
    }

    async fn apply_durably(
        &self,
        at: At,
        op: &Op,
        durability: Durability,
    ) -> Result<Applied, Error> {
        (**self).apply_durably(at, op, durability).await
    }
}

#[async_trait]
impl<W: Wakeup + ?Sized> Wakeup for std::sync::Arc<W> {
    async fn wait(&self, timeout: Duration) -> Result<bool, Error> {
        (**self).wait(timeout).await
    }

    async fn ring(&self) -> Result<(), Error> {
        (**self).ring().await
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// Counts hints; a wait reports a hint if there has been one.
    #[derive(Debug, Default)]
    struct Bell(AtomicUsize);

    #[async_trait]
    impl Wakeup for Bell {
        async fn wait(&self, _: Duration) -> Result<bool, Error> {
            Ok(self.0.load(Ordering::Relaxed) > 0)
        }

        async fn ring(&self) -> Result<(), Error> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    }

    fn ready<T>(future: impl Future<Output = T>) -> T {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => value,
            Poll::Pending => panic!("it waits"),
        }
    }

    #[test]
    fn a_shared_bell_is_the_bell() {
        let bell = Arc::new(Bell::default());
        // This calls the impl for `Arc`, not that of the inner value.
        assert!(!ready(Wakeup::wait(&bell, Duration::ZERO)).unwrap());
        ready(Wakeup::ring(&bell)).unwrap();
        assert_eq!(bell.0.load(Ordering::Relaxed), 1);
        assert!(ready(Wakeup::wait(&bell, Duration::ZERO)).unwrap());
    }
}
