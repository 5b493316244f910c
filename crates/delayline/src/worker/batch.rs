//! Handlers of many messages at once.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::handler::panic_text;
use super::linger::{joined, linger};
use super::{HandlerError, Job, Outcome};

/// Makes a handler for [`Worker::run`](super::Worker::run) from a function that takes many jobs,
/// for work that is cheaper in bulk: one insert of a hundred rows, one request for fifty users.
///
/// A batch has at most `max` jobs (0 counts as 1), and never more than the worker's
/// [`concurrency`](super::WorkerBuilder::concurrency). It starts as soon as it is full, or `linger`
/// after its first job arrived. Several batches can run at once, if there are free slots.
///
/// - **Outcomes.** `Ok(())` acks all messages. [`Outcomes`] contains one outcome for all messages,
///   or one for each. An error is a failure of every message, as is a wrong number of outcomes.
/// - **Leases.** Each message has its own lease, which the worker renews while the batch waits and
///   runs. If a job's lease is lost, or its message is cancelled, its [token](Job::cancellation)
///   fires.
/// - **Tests.** In the drains of the module `testing`, a batch has up to `max` messages that are
///   due at the same instant. `linger` takes no time.
/// - **Spans.** The function runs in the span of the batch's first message.
/// - **Panics** and dropped batches are failures of every message. If a message exceeds the
///   worker's [`handler_timeout`](super::WorkerBuilder::handler_timeout), which includes its wait,
///   the whole batch is dropped. So no message is handled twice at once.
///
/// ```
/// use std::time::Duration;
///
/// use delayline::worker::batch_handler;
/// use delayline::{Job, Queue, Worker};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), delayline::Error> {
/// # let queue: Queue<u64> = delayline::connect("memory:").await?.queue("numbers").await?;
/// # for number in 0..3 { queue.send(&number).await?; }
/// let handler = batch_handler(100, Duration::from_millis(50), |jobs: Vec<Job<u64>>| async move {
///     let numbers: Vec<_> = jobs.iter().map(Job::payload).collect();
///     println!("insert {numbers:?} in one statement");
///     Ok::<(), std::io::Error>(())
/// });
/// let worker = Worker::builder(queue).concurrency(100).until_empty(true).build()?;
/// let summary = worker.run(handler).await;
/// assert_eq!(summary.acked, 3);
/// # Ok(())
/// # }
/// ```
#[doc(alias = "bulk")]
#[doc(alias = "chunk")]
pub fn batch_handler<T, H, F, O, E, K>(
    max: usize,
    linger: Duration,
    handler: H,
) -> impl Fn(Job<T>) -> BoxFuture<'static, Result<Outcome, Outcome>> + Send + Sync + 'static
where
    T: Send + 'static,
    H: Fn(Vec<Job<T>>) -> F + Send + Sync + 'static,
    F: Future<Output = Result<O, E>> + Send + 'static,
    O: Into<Outcomes> + 'static,
    E: HandlerError<K> + 'static,
{
    let handler = move |jobs| {
        let work = handler(jobs);
        async move { work.await.map_err(HandlerError::into_outcome) }
    };
    let batcher = Arc::new(Batcher { max: max.max(1), linger, handler, open: Mutex::default() });
    move |job| Arc::clone(&batcher).handle(job).boxed()
}

/// How the handling of a batch ended, in the order of its jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcomes {
    /// The same outcome for all messages.
    All(Outcome),
    /// One outcome for each message.
    Each(Vec<Outcome>),
}

impl From<()> for Outcomes {
    fn from((): ()) -> Self {
        Self::All(Outcome::Ack)
    }
}

impl From<Outcome> for Outcomes {
    fn from(outcome: Outcome) -> Self {
        Self::All(outcome)
    }
}

impl From<Vec<Outcome>> for Outcomes {
    fn from(outcomes: Vec<Outcome>) -> Self {
        Self::Each(outcomes)
    }
}

struct Batcher<T, H> {
    max: usize,
    linger: Duration,
    handler: H,
    open: Mutex<Option<Open<T>>>,
}

/// A batch that further jobs may still join.
struct Open<T> {
    batch: Batch<T>,
    /// Passes the batch to its first job once it is full.
    full: oneshot::Sender<Batch<T>>,
}

struct Batch<T> {
    jobs: Vec<Job<T>>,
    results: Vec<oneshot::Sender<Result<Outcome, Outcome>>>,
    /// Fires if one of the jobs is dropped; also distinguishes batches.
    dropped: Arc<CancellationToken>,
}

/// A slot in a batch.
struct Member<T> {
    result: oneshot::Receiver<Result<Outcome, Outcome>>,
    dropped: Arc<CancellationToken>,
    /// The first job waits for the others, and runs the handler.
    lead: Option<oneshot::Receiver<Batch<T>>>,
}

impl<T, H, F, O> Batcher<T, H>
where
    T: Send + 'static,
    H: Fn(Vec<Job<T>>) -> F + Send + Sync + 'static,
    F: Future<Output = Result<O, Outcome>> + Send + 'static,
    O: Into<Outcomes> + 'static,
{
    async fn handle(self: Arc<Self>, job: Job<T>) -> Result<Outcome, Outcome> {
        let Member { result, dropped, lead } = self.join(job);
        let guard = CancellationToken::clone(&dropped).drop_guard();
        if let Some(full) = lead
            && let Some(batch) = self.gathered(full, &dropped).await
        {
            self.run(batch).await;
        }
        let result = tokio::select! {
            biased;
            result = result => result.ok(),
            () = dropped.cancelled() => None,
        };
        guard.disarm();
        result.unwrap_or_else(|| Err(Outcome::retry(DROPPED)))
    }

    fn join(&self, job: Job<T>) -> Member<T> {
        let (sender, result) = oneshot::channel();
        let mut place = self.open();
        // A batch that has lost a job never starts.
        let opened = place.take().filter(|open| !open.batch.dropped.is_cancelled());
        let (mut open, lead) = match opened {
            Some(open) => (open, None),
            None => {
                let (full, lead) = oneshot::channel();
                let dropped = Arc::default();
                let batch = Batch { jobs: Vec::new(), results: Vec::new(), dropped };
                (Open { batch, full }, Some(lead))
            }
        };
        open.batch.jobs.push(job);
        open.batch.results.push(sender);
        let dropped = Arc::clone(&open.batch.dropped);
        let is_full = open.batch.jobs.len() >= self.max;
        joined(open.batch.jobs.len(), is_full);
        if is_full {
            // If the first job is gone, so is the batch.
            let _ = open.full.send(open.batch);
        } else {
            *place = Some(open);
        }
        Member { result, dropped, lead }
    }

    /// The batch, once it is full or has waited long enough; `None` if one of its jobs was dropped.
    async fn gathered(
        &self,
        mut full: oneshot::Receiver<Batch<T>>,
        dropped: &Arc<CancellationToken>,
    ) -> Option<Batch<T>> {
        // Messages that were claimed together are started together.
        tokio::task::yield_now().await;
        tokio::select! {
            biased;
            batch = &mut full => return batch.ok(),
            () = dropped.cancelled() => {}
            () = linger(self.linger) => {}
        }
        let mine = self.open().take_if(|open| Arc::ptr_eq(&open.batch.dropped, dropped));
        let batch = match mine {
            Some(open) => Some(open.batch),
            None => full.await.ok(),
        };
        batch.filter(|batch| !batch.dropped.is_cancelled())
    }

    async fn run(&self, batch: Batch<T>) {
        let Batch { jobs, results, dropped } = batch;
        let count = jobs.len();
        let work = AssertUnwindSafe(async { (self.handler)(jobs).await }).catch_unwind();
        let ended = tokio::select! {
            biased;
            () = dropped.cancelled() => return,
            ended = work => ended,
        };
        let outcomes = each(count, ended);
        for (result, outcome) in results.into_iter().zip(outcomes) {
            // A dropped job already has its outcome.
            let _ = result.send(outcome);
        }
    }

    fn open(&self) -> MutexGuard<'_, Option<Open<T>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The result of each of `count` jobs.
fn each<O: Into<Outcomes>>(
    count: usize,
    ended: Result<Result<O, Outcome>, Box<dyn Any + Send>>,
) -> Vec<Result<Outcome, Outcome>> {
    let all = |outcome: Outcome| vec![Err(outcome); count];
    match ended {
        Ok(Ok(outcomes)) => match outcomes.into() {
            Outcomes::All(outcome) => vec![Ok(outcome); count],
            Outcomes::Each(outcomes) if outcomes.len() == count => {
                outcomes.into_iter().map(Ok).collect()
            }
            Outcomes::Each(outcomes) => all(Outcome::retry(format!(
                "the handler returned {} outcomes for {count} messages",
                outcomes.len()
            ))),
        },
        Ok(Err(error)) => all(error),
        Err(panic) => all(Outcome::retry(panic_text(panic))),
    }
}

const DROPPED: &str = "the batch was dropped because one of its messages was";
