//! The worker of one queue.

use std::fmt;
use std::future::{Future, pending};
use std::num::NonZeroU16;
use std::sync::Arc;

use super::config::Config;
use super::run::{Lane, Run};
use super::stop::Stop;
use super::{HandlerError, Job, Outcome, Summary, WorkerHandle, handler};
use crate::Queue;
use crate::codec::{Decode, Json};

/// Handles the messages of one queue; use [`Workers`](crate::Workers) for several.
///
/// It claims no more messages than it has free slots, and wakes up when the next one is due. It
/// renews the leases of running handlers, and settles each message with its handler's result. A
/// panic, a timeout or an undecodable payload affects only its own message. While the backend fails
/// or refuses calls, the worker keeps trying, at least every two seconds, and recovers
/// automatically ([G21](crate::guarantees#g21)): a missing permission may still be granted. It logs
/// a persistent failure once a minute and calls [`on_refusal`](super::WorkerBuilder::on_refusal).
/// Only a worker with [`until_empty`](super::WorkerBuilder::until_empty) ends when it is refused,
/// because it cannot learn whether the queue is empty.
///
/// A message is handled at least once. To write elsewhere only as the latest holder of the message,
/// use [`Job::epoch`] as a fencing token, with
/// [`claim_durability`](super::WorkerBuilder::claim_durability) if the server can fail over.
///
/// Dropping the future of [`run`](Self::run) drops all handlers, and their messages are redelivered
/// when their leases expire, as after a crash. [`WorkerHandle::stop`] stops gracefully.
///
/// ```
/// # use std::time::Duration;
/// # use delayline::{Job, Outcome, Queue, Worker};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), delayline::Error> {
/// # let queue: Queue<u64> = delayline::connect("memory:").await?.queue("numbers").await?;
/// # queue.send(&7).await?;
/// let worker = Worker::builder(queue).concurrency(16).until_empty(true).build()?;
/// let summary = worker
///     .run(|job: Job<u64>| async move {
///         match job.payload() {
///             0 => return Ok(Outcome::reject("there is nothing to do for 0")),
///             1..=9 => Ok(Outcome::Ack),
///             _ => Err("too big; try again later"),
///         }
///     })
///     .await;
/// assert_eq!(summary.acked, 1);
/// # Ok(())
/// # }
/// ```
#[doc(alias = "consumer")]
pub struct Worker<T, C = Json> {
    queue: Queue<T, C>,
    config: Config,
    stop: Stop,
}

impl<T, C> Worker<T, C> {
    pub(crate) fn new(queue: Queue<T, C>, config: Config) -> Self {
        Self { queue, config, stop: Stop::default() }
    }

    /// Returns a handle that stops this worker from another task.
    #[must_use]
    pub fn handle(&self) -> WorkerHandle {
        self.stop.handle()
    }
}

impl<T: Send + 'static, C: Decode<T>> Worker<T, C> {
    /// Handles messages until a [`WorkerHandle`] stops it, and returns a summary.
    ///
    /// The result of `handler` settles its message. `Ok(())` or [`Outcome::Ack`] acks it. An error
    /// is a failure, after which the message is retried according to the retry policy. The error is
    /// stored with its causes: see [`HandlerError`]. [`Outcome`] has the other results. Needs a
    /// tokio runtime with time enabled.
    ///
    /// # Shared state
    ///
    /// Calls of `handler` overlap, so each call needs a clone of the state that it uses.
    /// [`with_state`](crate::with_state) passes it one:
    ///
    /// ```
    /// use delayline::{Job, Queue, Worker, with_state};
    ///
    /// # #[derive(Clone)]
    /// # struct Shop;
    /// # impl Shop {
    /// #     async fn close(&self, _: u64) -> Result<(), std::io::Error> { Ok(()) }
    /// # }
    /// # async fn example(queue: Queue<u64>, shop: Shop) -> Result<(), delayline::Error> {
    /// let worker = Worker::builder(queue).build()?;
    /// let handler = with_state(shop, |shop, job: Job<u64>| async move {
    ///     shop.close(*job.payload()).await
    /// });
    /// worker.run(handler).await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// An async closure that uses captured state, such as `async move |job| sum.fetch_add(1)`, does
    /// not compile ("async closure does not implement `Fn` because it captures state from its
    /// environment"). Its futures would borrow from the closure, but each of them runs in its own
    /// task.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops all running handlers. Their messages are redelivered when their
    /// leases expire, which counts as a crash. Use a [`WorkerHandle`] or
    /// [`run_until`](Self::run_until) to stop without that, for example on `SIGTERM`.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime, or in one without timers.
    pub async fn run<H, F, O, E, K>(self, handler: H) -> Summary
    where
        H: Fn(Job<T>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<O, E>> + Send + 'static,
        O: Into<Outcome> + 'static,
        E: HandlerError<K> + 'static,
    {
        self.run_until(pending(), handler).await
    }

    /// Handles messages until `shutdown` completes or a [`WorkerHandle`] stops it, and then stops
    /// within [`stop_grace`](super::WorkerBuilder::stop_grace). Returns a summary.
    ///
    /// # Cancel safety
    ///
    /// Like [`run`](Self::run).
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime, or in one without timers.
    pub async fn run_until<S, H, F, O, E, K>(self, shutdown: S, handler: H) -> Summary
    where
        S: Future<Output = ()>,
        H: Fn(Job<T>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<O, E>> + Send + 'static,
        O: Into<Outcome> + 'static,
        E: HandlerError<K> + 'static,
    {
        let slots = self.config.concurrency;
        let stop = self.stop.clone();
        let lane = self.into_lane(NonZeroU16::MIN, handler);
        Run::new(slots, vec![lane]).until(shutdown, stop).await
    }

    /// The worker's part of a run.
    pub(super) fn into_lane<H, F, O, E, K>(self, weight: NonZeroU16, handler: H) -> Lane
    where
        H: Fn(Job<T>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<O, E>> + Send + 'static,
        O: Into<Outcome> + 'static,
        E: HandlerError<K> + 'static,
    {
        let codec = Arc::clone(self.queue.encoding());
        let label = self.queue.client().label().clone();
        let start = handler::starter(codec, handler, self.config.rules, label);
        Lane { client: self.queue.client().clone(), config: self.config, weight, start }
    }
}

impl<T, C> fmt::Debug for Worker<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("queue", &self.queue)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
