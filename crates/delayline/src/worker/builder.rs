//! Configuration of a worker.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use delayline_core::limits::{MAX_CONSUMER_BYTES, MAX_LEASE_MS, MIN_LEASE_MS};
use delayline_core::{ConsumerName, Durability, RetryPolicy, Violation};
use uuid::Uuid;

use super::config::Config;
use super::handler::Rules;
use super::hook::Hook;
use super::retry::Retry;
use super::{Stuck, Undecodable, Worker};
use crate::codec::Json;
use crate::error::millis;
use crate::{Error, Queue};

/// Configures a [`Worker`]. [`build`](Self::build) checks the values.
#[must_use = "a builder does nothing until `build`"]
pub struct WorkerBuilder<T, C = Json> {
    queue: Queue<T, C>,
    concurrency: Option<usize>,
    lease: Duration,
    cancel_within: Option<Duration>,
    max_lease_age: Option<Duration>,
    retry: Retry,
    rules: Rules,
    on_stuck: Option<(Duration, Hook<Stuck>)>,
    on_refusal: Option<Hook<Error>>,
    stop_grace: Duration,
    until_empty: bool,
    consumer: String,
    claim_durability: Durability,
}

impl<T, C> Worker<T, C> {
    /// Configures a worker of this queue. It settles messages with the durability of the queue
    /// ([`Queue::durability`]), which may be lower than that of the sends.
    pub fn builder(queue: Queue<T, C>) -> WorkerBuilder<T, C> {
        WorkerBuilder::new(queue)
    }
}

impl<T, C> WorkerBuilder<T, C> {
    pub(super) fn new(queue: Queue<T, C>) -> Self {
        Self {
            queue,
            concurrency: None,
            lease: Duration::from_secs(30),
            cancel_within: None,
            max_lease_age: None,
            retry: Retry::Policy(RetryPolicy::default()),
            rules: Rules::default(),
            on_stuck: None,
            on_refusal: None,
            stop_grace: Duration::from_secs(20),
            until_empty: false,
            consumer: String::new(),
            claim_durability: Durability::None,
        }
    }

    /// Sets the maximum number of handlers that run at once: 1 to 1000. The default is 10, or all
    /// slots in [`Workers`](crate::Workers).
    #[doc(alias = "prefetch")]
    pub const fn concurrency(mut self, handlers: usize) -> Self {
        self.concurrency = Some(handlers);
        self
    }

    /// Sets the duration of leases: 1 ms to one day, 30 s by default. The worker renews a lease
    /// after every third of this time, so a handler may run as long as it needs. After a crash, the
    /// message is redelivered when the lease expires.
    #[doc(alias = "visibility timeout")]
    #[doc(alias = "heartbeat")]
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Sets the retry delay of failed messages whose handler returns no delay. The default is
    /// exponential backoff with full jitter, from 1 s to one hour.
    #[doc(alias = "backoff")]
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = Retry::Policy(policy);
        self
    }

    /// Like [`retry`](Self::retry), with a function of the number of failures, including this one,
    /// and the error text. It is not called for the last allowed failure, nor for a cancelled
    /// message. It runs on the worker's own task and must not block.
    #[doc(alias = "backoff")]
    pub fn retry_with(
        mut self,
        delay: impl Fn(u32, &str) -> Duration + Send + Sync + 'static,
    ) -> Self {
        self.retry = Retry::Custom(Arc::new(delay));
        self
    }

    /// Sets the maximum time, at least 10 ms, until a running handler learns that another process
    /// has cancelled its message. The worker then renews leases at least this often, with one call
    /// for all handlers of the queue, and a round trip is added. By default, the handler learns of
    /// it within a third of the lease, which is 10 s by default. A cancel through the same
    /// [`Connection`](crate::Connection) or a clone of the queue always reaches the handler after a
    /// round trip.
    pub const fn cancel_within(mut self, bound: Duration) -> Self {
        self.cancel_within = Some(bound);
        self
    }

    /// Sets the maximum age of a lease, counted from the claim. By default, a lease is renewed for
    /// as long as the handler runs. At the maximum age, the handler's token fires
    /// ([`CancelReason::LeaseTooOld`](super::CancelReason::LeaseTooOld)). When the lease expires,
    /// the message is redelivered as after a crash. So a hanging handler does not keep its message
    /// forever.
    pub const fn max_lease_age(mut self, age: Duration) -> Self {
        self.max_lease_age = Some(age);
        self
    }

    /// Calls `hook` once for every handler that runs longer than `after`. The hook runs on the
    /// worker's own task and must not block. A handler that blocks its thread is also reported, if
    /// the runtime has another thread.
    pub fn on_stuck(
        mut self,
        after: Duration,
        hook: impl Fn(&Stuck) + Send + Sync + 'static,
    ) -> Self {
        self.on_stuck = Some((after, Hook::new(hook)));
        self
    }

    /// Calls `hook` when the backend refuses an operation of the worker
    /// ([`ErrorClass::Rejected`](crate::ErrorClass::Rejected)), for example because a permission is
    /// missing: at once, and then once a minute while that lasts. It runs on the worker's own task
    /// and must not block.
    pub fn on_refusal(mut self, hook: impl Fn(&Error) + Send + Sync + 'static) -> Self {
        self.on_refusal = Some(Hook::new(hook));
        self
    }

    /// Sets how long a handler may run before it is dropped, which counts as a failure. No limit by
    /// default.
    pub const fn handler_timeout(mut self, timeout: Duration) -> Self {
        self.rules.limit = Some(timeout);
        self
    }

    /// Sets what happens to a message whose payload cannot be decoded: by default, a failure is
    /// counted and the message is retried ([`Undecodable::Retry`]). So a worker that does not know
    /// a new format leaves the message to newer workers. If the message's failures are used up, the
    /// reason of its death is
    /// [`DeathReason::Undecodable`](crate::message::DeathReason::Undecodable).
    pub const fn on_undecodable(mut self, undecodable: Undecodable) -> Self {
        self.rules.undecodable = undecodable;
        self
    }

    /// Sets how long handlers may continue after `shutdown` of [`Worker::run_until`] completes: 20
    /// s by default; with zero, their tokens fire at once.
    /// [`WorkerHandle::stop`](super::WorkerHandle::stop) describes what happens then.
    pub const fn stop_grace(mut self, grace: Duration) -> Self {
        self.stop_grace = grace;
        self
    }

    /// Sets whether the worker ends when no message is scheduled, ready or leased. The default is
    /// `false`. If another worker acks the last message, this worker ends at its next poll: within
    /// 5 s, or within 50 s with many queues. It also ends when the backend refuses an operation;
    /// see [`on_refusal`](Self::on_refusal).
    pub const fn until_empty(mut self, until_empty: bool) -> Self {
        self.until_empty = until_empty;
        self
    }

    /// Sets the name of this worker in the queue's journal of claims: up to 31 bytes, empty by
    /// default. An id that is unique to the instance is appended ([G16](crate::guarantees#g16)).
    pub fn consumer(mut self, name: impl Into<String>) -> Self {
        self.consumer = name.into();
        self
    }

    /// Confirms each claim before its handlers start. The default is [`Durability::None`], whatever
    /// [`Queue::durability`] is.
    ///
    /// Use this if [`Job::epoch`](super::Job::epoch) is your fencing token and the server can fail
    /// over: a failover that loses a claim repeats its epoch. If a claim is confirmed, no later
    /// handler gets the same epoch, as far as the confirmation reaches
    /// ([G25](crate::guarantees#g25)).
    ///
    /// In a directory (`file:`), epochs rise in any case. Use [`Durability::Disk`] there if a
    /// handler can bring down the whole machine at once: otherwise, that may not be counted as a
    /// crash.
    ///
    /// Each claim then takes one more round trip to the replicas, or one sync of the disk. A claim
    /// that is not confirmed is repeated, and starts no handler.
    pub const fn claim_durability(mut self, durability: Durability) -> Self {
        self.claim_durability = durability;
        self
    }

    /// Builds the worker.
    ///
    /// # Errors
    ///
    /// If the concurrency, lease, name, durability or
    /// [`cancel_within`](Self::cancel_within) is outside its limits, or if
    /// [`handler_timeout`](Self::handler_timeout), [`max_lease_age`](Self::max_lease_age) or the
    /// time of [`on_stuck`](Self::on_stuck) is zero.
    pub fn build(self) -> Result<Worker<T, C>, Error> {
        self.build_for(DEFAULT_CONCURRENCY)
    }

    /// Builds the worker, with this concurrency by default.
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
            lease: millis("the lease in ms", self.lease, MIN_LEASE_MS..=MAX_LEASE_MS)?,
            cancel_within: self.cancel_within,
            max_lease_age: self.max_lease_age,
            retry: self.retry,
            rules: self.rules,
            stuck_after,
            on_stuck,
            on_refusal: self.on_refusal,
            stop_grace: self.stop_grace,
            until_empty: self.until_empty,
            consumer: ConsumerName::new(name)?,
            claim_durability: self.claim_durability,
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

const DEFAULT_CONCURRENCY: usize = 10;
