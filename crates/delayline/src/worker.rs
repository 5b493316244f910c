//! Handling messages: a worker claims them, runs a handler on each, and settles them.

#[cfg(feature = "testing")]
mod alone;
mod builder;
mod complaints;
mod control;
mod handler;
mod hook;
mod job;
mod outcome;
mod retry;
mod run;
#[cfg(feature = "tower")]
mod service;
mod stop;
mod stuck;
mod workers;

use std::fmt;
use std::future::{Future, pending};
use std::num::NonZeroU16;
use std::sync::Arc;

pub use delayline_core::worker::{CancelReason, Summary};

#[cfg(feature = "testing")]
pub(crate) use self::alone::Alone;
use self::builder::Config;
pub use self::builder::WorkerBuilder;
pub use self::job::Job;
pub use self::outcome::Outcome;
#[cfg(feature = "testing")]
pub(crate) use self::retry::Retry;
use self::run::{Lane, Run};
#[cfg(feature = "tower")]
pub use self::service::service_handler;
use self::stop::Stop;
pub use self::stop::WorkerHandle;
pub use self::stuck::Stuck;
pub use self::workers::Workers;
use crate::{Codec, Json, Queue};

/// Handles the messages of one queue; [`Workers`] are for several.
///
/// It claims no more messages than it has free slots, wakes up when the next one is due, prolongs
/// the leases of running handlers, and settles each message by what its handler answers. A panic, a
/// timeout or a payload that cannot be read concerns its own message only. While the backend fails
/// the worker goes on trying, every two seconds at most, and resumes by itself (G21), also if it is
/// refused: somebody may grant the permission that is missing. It logs a failure that lasts once a
/// minute, and tells [`WorkerBuilder::on_refusal`]. Only a worker that is to end on an
/// empty queue ends when it is refused, because it cannot learn whether the queue is empty.
///
/// A message is handled at least once. A handler that must know whether it is the latest to hold
/// the message compares [`Job::epoch`].
///
/// Dropping the future of [`run`](Self::run) drops all handlers, and their messages come back when
/// their leases have run out, as after a crash. [`WorkerHandle::stop`] is the gentle way.
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
pub struct Worker<T, C = Json> {
    queue: Queue<T, C>,
    config: Config,
    stop: Stop,
}

impl<T, C> Worker<T, C> {
    /// A worker of this queue, to be configured. What it settles is as safe as the queue wants it
    /// ([`Queue::durability`]); the queue can be given a smaller durability here than where it is sent to.
    pub fn builder(queue: Queue<T, C>) -> WorkerBuilder<T, C> {
        WorkerBuilder::new(queue)
    }

    pub(crate) fn new(queue: Queue<T, C>, config: Config) -> Self {
        Self { queue, config, stop: Stop::default() }
    }

    /// A handle that stops this worker from elsewhere.
    #[must_use]
    pub fn handle(&self) -> WorkerHandle {
        self.stop.handle()
    }
}

impl<T: Send + 'static, C: Codec<T>> Worker<T, C> {
    /// Handles messages until a [`WorkerHandle`] stops it.
    ///
    /// What `handler` answers settles its message: `Ok(())` or [`Outcome::Ack`] finishes it, an
    /// error of any printable kind is a failure, after which it is tried again as the retry policy
    /// says, and [`Outcome`] has more. Needs a tokio runtime with time enabled.
    pub async fn run<H, F, O, E>(self, handler: H) -> Summary
    where
        H: Fn(Job<T>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<O, E>> + Send + 'static,
        O: Into<Outcome> + 'static,
        E: fmt::Display + 'static,
    {
        self.run_until(pending(), handler).await
    }

    /// Handles messages until `shutdown` is over or a [`WorkerHandle`] stops it; then it ends as
    /// [`WorkerBuilder::stop_grace`] says.
    pub async fn run_until<S, H, F, O, E>(self, shutdown: S, handler: H) -> Summary
    where
        S: Future<Output = ()>,
        H: Fn(Job<T>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<O, E>> + Send + 'static,
        O: Into<Outcome> + 'static,
        E: fmt::Display + 'static,
    {
        let slots = self.config.concurrency;
        let stop = self.stop.clone();
        let lane = self.into_lane(NonZeroU16::MIN, handler);
        Run::new(slots, vec![lane]).until(shutdown, stop).await
    }

    /// Its part of a run.
    fn into_lane<H, F, O, E>(self, weight: NonZeroU16, handler: H) -> Lane
    where
        H: Fn(Job<T>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<O, E>> + Send + 'static,
        O: Into<Outcome> + 'static,
        E: fmt::Display + 'static,
    {
        let codec = Arc::clone(self.queue.codec());
        let start = handler::starter(codec, handler, self.config.handler_timeout);
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
