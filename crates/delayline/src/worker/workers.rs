//! Several queues that share the slots of one worker.

use std::fmt;
use std::future::{Future, pending};
use std::num::NonZeroU16;

use delayline_core::limits::MAX_BATCH;

use super::config::out_of_range;
use super::run::{Lane, Run};
use super::stop::Stop;
use super::{HandlerError, Job, Outcome, Summary, WorkerBuilder, WorkerHandle};
use crate::Error;
use crate::codec::Decode;

/// Handles the messages of several queues with a shared number of concurrent handlers.
///
/// Each queue has its own handler, lease, retry policy, timeout and so on, like a
/// [`Worker`](super::Worker). While several queues have more messages than there are free slots,
/// each gets a share by its weight; the others use what one leaves over. A queue whose builder sets
/// a [`concurrency`](WorkerBuilder::concurrency) never runs more handlers than that, so that slow
/// work leaves room for the rest. If a queue's server does not reply, the other queues use its
/// slots after 150 ms, or after four times its usual response time. Messages that it returns later,
/// beyond the free slots, are released ([G10](crate::guarantees#g10)).
///
/// An idle process costs its server less this way than with a worker for each queue. It listens for
/// hints of up to 64 queues of one connection in a single blocking wait. With more than two queues
/// it polls each less often than every 5 s: in total it sends half a command per second
/// ([G22](crate::guarantees#g22)).
///
/// ```
/// # use delayline::{Job, Queue, Worker, Workers};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), delayline::Error> {
/// // Or "redis://127.0.0.1:6379".
/// let connection = delayline::connect("memory:").await?;
/// let orders: Queue<u64> = connection.queue("orders").await?;
/// let reports: Queue<String> = connection.queue("reports").await?;
/// # orders.send(&7).await?;
/// # reports.send(&"sales".to_owned()).await?;
/// let orders = Worker::builder(orders).until_empty(true);
/// let reports = Worker::builder(reports).concurrency(2).until_empty(true);
/// let summary = Workers::sharing(16)?
///     .add(3, orders, |job: Job<u64>| async move {
///         println!("closing order {}", job.payload());
///         Ok::<(), &str>(())
///     })?
///     .add(1, reports, |job: Job<String>| async move {
///         println!("reporting {}", job.payload());
///         Ok::<(), &str>(())
///     })?
///     .run()
///     .await;
/// assert_eq!(summary.acked, 2);
/// # Ok(())
/// # }
/// ```
#[must_use = "workers do nothing until `run`"]
pub struct Workers {
    slots: usize,
    lanes: Vec<Lane>,
    stop: Stop,
}

impl Workers {
    /// Creates workers that run up to `handlers` handlers at once in total: 1 to 1000.
    ///
    /// # Errors
    ///
    /// If the number is out of range.
    pub fn sharing(handlers: usize) -> Result<Self, Error> {
        if handlers == 0 || handlers > MAX_BATCH {
            return Err(out_of_range("the number of handlers", handlers, MAX_BATCH).into());
        }
        Ok(Self { slots: handlers, lanes: Vec::new(), stop: Stop::default() })
    }

    /// Adds a queue with a weight of 1 to 65535 and a handler like that of
    /// [`Worker::run`](super::Worker::run).
    ///
    /// The run ends on empty queues only if every builder sets
    /// [`until_empty`](WorkerBuilder::until_empty). Its grace is the longest
    /// [`stop_grace`](WorkerBuilder::stop_grace) of all.
    ///
    /// # Errors
    ///
    /// Like [`WorkerBuilder::build`], or if the weight is out of range.
    pub fn add<T, C, H, F, O, E, K>(
        mut self,
        weight: u16,
        worker: WorkerBuilder<T, C>,
        handler: H,
    ) -> Result<Self, Error>
    where
        T: Send + 'static,
        C: Decode<T>,
        H: Fn(Job<T>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<O, E>> + Send + 'static,
        O: Into<Outcome> + 'static,
        E: HandlerError<K> + 'static,
    {
        let Some(weight) = NonZeroU16::new(weight) else {
            return Err(out_of_range("the weight", 0, u16::MAX.into()).into());
        };
        self.lanes.push(worker.build_for(self.slots)?.into_lane(weight, handler));
        Ok(self)
    }

    /// Returns a handle that stops all of them from elsewhere.
    #[must_use]
    pub fn handle(&self) -> WorkerHandle {
        self.stop.handle()
    }

    /// Handles messages until a [`WorkerHandle`] stops it, and returns a summary. Without a queue
    /// it returns at once.
    ///
    /// # Cancel safety
    ///
    /// Like [`Worker::run`](super::Worker::run).
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime, or in one without timers.
    pub async fn run(self) -> Summary {
        self.run_until(pending()).await
    }

    /// Handles messages until `shutdown` completes or a [`WorkerHandle`] stops it. Returns a
    /// summary.
    ///
    /// # Cancel safety
    ///
    /// Like [`Worker::run`](super::Worker::run).
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime, or in one without timers.
    pub async fn run_until(self, shutdown: impl Future<Output = ()>) -> Summary {
        if self.lanes.is_empty() {
            return Summary::default();
        }
        Run::new(self.slots, self.lanes).until(shutdown, self.stop).await
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queues: Vec<_> = self.lanes.iter().map(|lane| lane.client.label().as_str()).collect();
        f.debug_struct("Workers")
            .field("slots", &self.slots)
            .field("queues", &queues)
            .finish_non_exhaustive()
    }
}
