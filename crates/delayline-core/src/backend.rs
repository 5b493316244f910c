//! What a backend is.

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;

use crate::{Applied, At, Durability, Error, ErrorKind, Op, QueueName};

/// One queue, wherever it is kept.
///
/// # To ensure correctness
///
/// - `apply` answers what [`State::apply`](crate::State::apply) answers, given the same history.
///   The suite in `delayline-testkit` checks that.
/// - An operation is atomic: it takes place at one instant between call and answer, wholly or not
///   at all (G3), also if the future is dropped.
/// - An operation that violates a limit is refused by [`Op::validate`] before anything is sent.
/// - With [`At::Server`] the clock is one that all clients of the queue share; no client's clock
///   decides anything (G4).
/// - An `Err` of [`Class::NotExecuted`](crate::Class::NotExecuted) or
///   [`Class::Rejected`](crate::Class::Rejected) means that nothing was changed. Whatever cannot
///   be ruled out is [`Class::Ambiguous`](crate::Class::Ambiguous).
/// - Every call answers or fails within a bound, and works again by itself when the fault is gone.
/// - What the backend lacks is [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported), never
///   silence.
///
/// Wrappers (metrics, faults) implement this trait too and pass the same suite.
#[async_trait]
pub trait Backend: Debug + Send + Sync {
    /// Executes `op` atomically.
    ///
    /// # Errors
    ///
    /// [`Error`] says by its [`class`](Error::class) whether the operation may be sent again.
    async fn apply(&self, at: At, op: &Op) -> Result<Applied, Error>;

    /// The queue's name, for spans, metrics and logs; `None` if it has none.
    fn queue_name(&self) -> Option<&QueueName> {
        None
    }

    /// Executes `op` like [`apply`](Self::apply), and answers when its effect is as safe as
    /// `durability` demands (G25). That goes for a repeated operation as well: what it finds done may
    /// not have been confirmed yet. The default refuses all but [`Durability::None`].
    ///
    /// # Errors
    ///
    /// Like `apply`. [`ErrorKind::Unconfirmed`](crate::ErrorKind::Unconfirmed) if it was executed and
    /// not confirmed in time: the same operation may be sent again.
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported), before anything was sent, if this
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

/// Hints that something may have become claimable, to wake whoever sleeps until a later instant.
///
/// Hints may be lost, late or wrong: correctness never depends on one (G22). Who waits also comes
/// back by a timer of its own.
#[async_trait]
pub trait Wakeup: Debug + Send + Sync {
    /// Waits for a hint, for at most `timeout`. Answers whether one came. A hint that came while
    /// nobody waited is kept for the next one who does.
    ///
    /// # Errors
    ///
    /// [`Error`] if no hints can be had at the moment; the caller waits by its own timer then.
    async fn wait(&self, timeout: Duration) -> Result<bool, Error>;

    /// Gives a hint to one who waits, or to the next one who will: a process that was woken and has
    /// no free slot hands its hint on. The default does nothing, for backends that give no hints; a
    /// wrapper passes it through.
    ///
    /// # Errors
    ///
    /// [`Error`] if it cannot be given; whoever waits comes back by its own timer.
    async fn ring(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// A backend that gives hints as well: what a worker needs. Implemented for all that are both.
pub trait Queueing: Backend + Wakeup {}

impl<B: Backend + Wakeup + ?Sized> Queueing for B {}

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

    /// Counts the hints given, and answers that there is one if there is.
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
        // By the trait for `Arc`, not by what the `Arc` points to.
        assert!(!ready(Wakeup::wait(&bell, Duration::ZERO)).unwrap());
        ready(Wakeup::ring(&bell)).unwrap();
        assert_eq!(bell.0.load(Ordering::Relaxed), 1);
        assert!(ready(Wakeup::wait(&bell, Duration::ZERO)).unwrap());
    }
}
