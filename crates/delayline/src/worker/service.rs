//! `tower` services as handlers.

use std::future::poll_fn;
use std::sync::{Mutex, PoisonError};

use futures_util::future::BoxFuture;
use tower_service::Service;

use super::{Job, Outcome};

/// Makes a handler for [`Worker::run`](super::Worker::run) from a `tower` service, for example a
/// function wrapped in `tower` layers for limits, timeouts, load shedding or logging. Needs the
/// feature `tower`.
///
/// Each job gets a clone of the service, waits until the clone is ready, and calls it once.
///
/// - **Readiness.** A job whose service is not ready holds its slot, and its lease is renewed like
///   that of a running handler. The time counts towards
///   [`handler_timeout`](super::WorkerBuilder::handler_timeout) and
///   [`on_stuck`](super::WorkerBuilder::on_stuck). The job's token fires if the worker stops or the
///   message should be cancelled. Then the message is released unstarted, and nothing is counted
///   ([`Outcome::Release`]).
/// - **Errors** of the service, including those of becoming ready, are failures of the message. If
///   an error is not the message's fault, such as shed load, let an outer layer turn it into an
///   [`Outcome::Snooze`].
/// - **Panics** affect only their own message, as with any handler.
/// - A layer that drops the inner future, such as a timeout, does not fire the job's token. So it
///   does not stop tasks that the handler has spawned.
///
/// A service that cannot be cloned, such as `tower`'s rate limit, can be wrapped in its `Buffer`.
/// Layers that repeat a request cannot be used, because a [`Job`] is not `Clone`: the queue itself
/// retries.
///
/// ```
/// use std::time::Duration;
///
/// use delayline::worker::service_handler;
/// use delayline::{Job, Queue, Worker};
/// use tower::{ServiceBuilder, service_fn};
///
/// async fn invoice(job: Job<u64>) -> Result<(), std::io::Error> {
///     println!("invoice {}", job.payload());
///     Ok(())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), delayline::Error> {
/// # let queue: Queue<u64> = delayline::connect("memory:").await?.queue("numbers").await?;
/// # queue.send(&7).await?;
/// let service = ServiceBuilder::new()
///     .concurrency_limit(4)
///     .timeout(Duration::from_secs(30))
///     .service(service_fn(invoice));
///
/// let worker = Worker::builder(queue).concurrency(100).until_empty(true).build()?;
/// let summary = worker.run(service_handler(service)).await;
/// assert_eq!(summary.acked, 1);
/// # Ok(())
/// # }
/// ```
pub fn service_handler<T, S>(
    service: S,
) -> impl Fn(Job<T>) -> BoxFuture<'static, Result<Outcome, S::Error>> + Send + Sync + 'static
where
    T: Send + 'static,
    S: Service<Job<T>, Response: Into<Outcome>, Future: Send> + Clone + Send + 'static,
{
    // Many services are `Send` but not `Sync`.
    let service = Mutex::new(service);
    move |job| {
        // Poisoned if a clone panicked, which has changed nothing.
        let service = service.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Box::pin(handle(service, job))
    }
}

async fn handle<T, S>(mut service: S, job: Job<T>) -> Result<Outcome, S::Error>
where
    S: Service<Job<T>, Response: Into<Outcome>>,
{
    tokio::select! {
        biased;
        ready = poll_fn(|context| service.poll_ready(context)) => ready?,
        () = job.cancellation().cancelled() => return Ok(Outcome::Release),
    }
    let response = service.call(job);
    // The service is no longer needed, and may hold a permit that other jobs wait for.
    drop(service);
    response.await.map(Into::into)
}
