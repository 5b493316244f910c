//! A `tower` service in the place of a handler.

use std::future::poll_fn;
use std::sync::{Mutex, PoisonError};

use futures_util::future::BoxFuture;
use tower_service::Service;

use super::{Job, Outcome};

/// Makes a handler for [`Worker::run`](super::Worker::run) of a `tower` service, and so of a
/// function in `tower`'s layers: limits, timeouts, load shedding, logging of one's own. Needs the
/// feature `tower`.
///
/// Each job has a clone of the service, which is waited for until it is ready and called once.
///
/// - **Readiness.** A job whose service is not ready holds its slot, and its lease is kept like that
///   of a running handler; the time counts for
///   [`handler_timeout`](super::WorkerBuilder::handler_timeout) and for
///   [`on_stuck`](super::WorkerBuilder::on_stuck). If the job's token fires meanwhile, because the
///   worker stops or the message is to be cancelled, the message is given back unstarted, and
///   nothing is counted: [`Outcome::Release`].
/// - **Errors** of the service, of becoming ready as well, are failures of the message. Whatever is
///   none, such as a refusal by a layer that sheds load, is best made an [`Outcome::Snooze`] by an
///   outer layer.
/// - **Panics** concern their own message only, as with any handler.
/// - A layer that drops the inner future, such as a timeout, does not fire the job's token, so it
///   stops nothing that the handler has spawned.
///
/// A service that cannot be cloned, such as `tower`'s rate limit, becomes one by its `Buffer`.
/// Layers that repeat a request cannot be used, because a [`Job`] is no `Clone`: repeating is what
/// the queue does.
///
/// ```
/// use std::time::Duration;
///
/// use delayline::{Job, Queue, Worker, service_handler};
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
    // Many services may be sent to another thread, but not used by two.
    let service = Mutex::new(service);
    move |job| {
        // Poisoned by a clone that panicked, which has changed nothing.
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
    // It has done its part, and may hold a place that others wait for.
    drop(service);
    response.await.map(Into::into)
}
