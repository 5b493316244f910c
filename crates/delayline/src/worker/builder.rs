//! How a worker is to work.

use std::fmt;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use delayline_core::limits::{MAX_BATCH, MAX_CONSUMER_BYTES};
use delayline_core::worker::QueuePlan;
use delayline_core::{Claim, ClaimId, ConsumerName, Millis, Op, RetryPolicy, Violation};
use uuid::Uuid;

use super::hook::Hook;
use super::retry::Retry;
use super::{Stuck, Worker};
use crate::{Error, Json, Queue};

/// Configures a [`Worker`].
#[must_use = "a builder does nothing until `build`"]
pub struct WorkerBuilder<T, C = Json> {
    queue: Queue<T, C>,
    concurrency: Option<usize>,
    lease: Duration,
    max_lease_age: Option<Duration>,
    retry: Retry,
    handler_timeout: Option<Duration>,
    on_stuck: Option<(Duration, Hook<Stuck>)>,
    on_refusal: Option<Hook<Error>>,
    stop_grace: Duration,
    until_empty: bool,
    consumer: String,
}

/// What a worker needs to know.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// The most handlers at once.
    pub(super) concurrency: usize,
    pub(super) lease: Millis,
    pub(super) max_lease_age: Option<Duration>,
    pub(super) retry: Retry,
    pub(super) handler_timeout: Option<Duration>,
    pub(super) stuck_after: Option<Duration>,
    pub(super) on_stuck: Option<Hook<Stuck>>,
    pub(super) on_refusal: Option<Hook<Error>>,
    pub(super) stop_grace: Duration,
    pub(super) until_empty: bool,
    pub(super) consumer: ConsumerName,
}

impl<T, C> WorkerBuilder<T, C> {
    pub(super) fn new(queue: Queue<T, C>) -> Self {
        Self {
            queue,
            concurrency: None,
            lease: Duration::from_secs(30),
            max_lease_age: None,
            retry: Retry::Policy(RetryPolicy::default()),
            handler_timeout: None,
            on_stuck: None,
            on_refusal: None,
            stop_grace: Duration::from_secs(20),
            until_empty: false,
            consumer: String::new(),
        }
    }

    /// How many handlers run at once: 1 to 1000, 10 by default; among [`Workers`](super::Workers),
    /// as many as there are slots.
    pub const fn concurrency(mut self, handlers: usize) -> Self {
        self.concurrency = Some(handlers);
        self
    }

    /// How long a message stays with this worker without a sign of life: 1 ms to one day, 30 s by
    /// default. A third of it after the last one the worker gives the next, so a handler may take
    /// as long as it likes; after a crash the message comes back when the lease has run out.
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How long a failed message waits, if its handler names no delay: by default exponentially
    /// longer with full jitter, from 1 s up to one hour.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = Retry::Policy(policy);
        self
    }

    /// The same by a function of the number of failures, this one included, and of its error text.
    /// It runs on the worker's own task and must not block.
    pub fn retry_with(
        mut self,
        delay: impl Fn(u32, &str) -> Duration + Send + Sync + 'static,
    ) -> Self {
        self.retry = Retry::Custom(Arc::new(delay));
        self
    }

    /// How long a lease is prolonged at the most, counted from the claim: without this call, as
    /// long as the handler runs. Then the handler's token fires
    /// ([`CancelReason::LeaseTooOld`](super::CancelReason::LeaseTooOld)); when the lease runs out,
    /// the message comes back as after a crash. So a handler that hangs does not keep its message
    /// for ever.
    pub const fn max_lease_age(mut self, age: Duration) -> Self {
        self.max_lease_age = Some(age);
        self
    }

    /// Calls `hook` once for every handler that runs longer than `after`. It runs on the worker's
    /// own task and must not block. A handler that blocks its thread is reported as well, if the
    /// runtime has another thread.
    pub fn on_stuck(
        mut self,
        after: Duration,
        hook: impl Fn(&Stuck) + Send + Sync + 'static,
    ) -> Self {
        self.on_stuck = Some((after, Hook::new(hook)));
        self
    }

    /// Calls `hook` when the backend refuses what the worker asks of it
    /// ([`Class::Rejected`](crate::Class::Rejected)), such as for want of a permission: the first
    /// time, and once a minute while it lasts. It runs on the worker's own task and must not block.
    pub fn on_refusal(mut self, hook: impl Fn(&Error) + Send + Sync + 'static) -> Self {
        self.on_refusal = Some(Hook::new(hook));
        self
    }

    /// How long a handler may run before it is dropped, which counts as a failure. Without this
    /// call, for ever.
    pub const fn handler_timeout(mut self, timeout: Duration) -> Self {
        self.handler_timeout = Some(timeout);
        self
    }

    /// How long handlers may go on when [`Worker::run_until`] is told to stop: 20 s by default. See
    /// [`WorkerHandle::stop`](super::WorkerHandle::stop) for what follows.
    pub const fn stop_grace(mut self, grace: Duration) -> Self {
        self.stop_grace = grace;
        self
    }

    /// Whether to end when no message is scheduled, ready or leased any more: off by default. Such a
    /// worker also stops when the backend refuses what it asks; see
    /// [`on_refusal`](Self::on_refusal).
    pub const fn until_empty(mut self, until_empty: bool) -> Self {
        self.until_empty = until_empty;
        self
    }

    /// A name for this worker in the queue's journal of claims: up to 31 bytes, empty by default.
    /// An id unique to the instance is added to it (G16).
    pub fn consumer(mut self, name: impl Into<String>) -> Self {
        self.consumer = name.into();
        self
    }

    /// The worker.
    ///
    /// # Errors
    ///
    /// [`Error::Backend`] if concurrency, lease or name is outside of its range.
    pub fn build(self) -> Result<Worker<T, C>, Error> {
        self.build_for(DEFAULT_CONCURRENCY)
    }

    /// The worker, with so many handlers at once unless told.
    pub(super) fn build_for(self, concurrency: usize) -> Result<Worker<T, C>, Error> {
        let unique = Uuid::new_v4().simple().to_string();
        let limit = MAX_CONSUMER_BYTES.saturating_sub(unique.len() + 1);
        if self.consumer.len() > limit {
            let (what, unit, actual) = ("the consumer name", "bytes", self.consumer.len());
            return Err(Violation::TooLong { what, unit, actual, limit }.into());
        }
        let name =
            if self.consumer.is_empty() { unique } else { format!("{}-{unique}", self.consumer) };
        let (stuck_after, on_stuck) = self.on_stuck.unzip();
        let config = Config {
            concurrency: self.concurrency.unwrap_or(concurrency),
            lease: Millis::try_from(self.lease)?,
            max_lease_age: self.max_lease_age,
            retry: self.retry,
            handler_timeout: self.handler_timeout,
            stuck_after,
            on_stuck,
            on_refusal: self.on_refusal,
            stop_grace: self.stop_grace,
            until_empty: self.until_empty,
            consumer: ConsumerName::new(name)?,
        };
        config.validate()?;
        Ok(Worker::new(self.queue, config))
    }
}

impl<T, C> fmt::Debug for WorkerBuilder<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerBuilder").field("queue", &self.queue).finish_non_exhaustive()
    }
}

impl Config {
    pub(super) fn queue_plan(&self, weight: NonZeroU16) -> QueuePlan {
        QueuePlan {
            consumer: self.consumer.clone(),
            lease: self.lease,
            weight,
            most: self.concurrency,
            max_lease_age: self.max_lease_age,
            stuck_after: self.stuck_after,
        }
    }

    /// A claim for all slots says by itself what else is outside of a limit.
    fn validate(&self) -> Result<(), Violation> {
        if self.concurrency == 0 || self.concurrency > MAX_BATCH {
            return Err(out_of_range("the concurrency", self.concurrency, MAX_BATCH));
        }
        let claim = Claim {
            consumer: self.consumer.clone(),
            claim_id: ClaimId::from_bytes([0; 16]),
            max: self.concurrency,
            lease: self.lease,
        };
        Op::Claim(claim).validate()
    }
}

/// A number of handlers or a weight that is not from 1 to `most`.
pub(super) fn out_of_range(what: &'static str, actual: usize, most: usize) -> Violation {
    let number = |number| u64::try_from(number).unwrap_or(u64::MAX);
    Violation::OutOfRange { what, actual: number(actual), least: 1, most: number(most) }
}

const DEFAULT_CONCURRENCY: usize = 10;
