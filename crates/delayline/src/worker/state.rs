//! Handlers that share state.

/// Makes a handler from a function that also takes the program's state. Each call gets a clone of
/// the state, so cloning should be cheap: a connection pool, an [`Arc`](std::sync::Arc), or a tuple
/// of these.
///
/// The result works wherever a handler does: [`Worker::run`](super::Worker::run),
/// [`Workers::add`](crate::Workers::add), [`Jobs::on`](crate::Jobs::on),
/// [`batch_handler`](super::batch_handler), and tests.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// use delayline::{Job, Queue, Worker, with_state};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), delayline::Error> {
/// # let queue: Queue<u64> = delayline::connect("memory:").await?.queue("numbers").await?;
/// # queue.send(&7).await?;
/// let sum = Arc::new(AtomicU64::new(0));
/// let worker = Worker::builder(queue).until_empty(true).build()?;
/// let handler = with_state(Arc::clone(&sum), |sum, job: Job<u64>| async move {
///     sum.fetch_add(*job.payload(), Ordering::Relaxed);
///     Ok::<(), std::io::Error>(())
/// });
/// worker.run(handler).await;
/// assert_eq!(sum.load(Ordering::Relaxed), 7);
/// # Ok(())
/// # }
/// ```
///
/// Plain functions work as well: `with_state(pool, close)` with `async fn close(pool: Pool, job:
/// Job<u64>) -> Result<(), sqlx::Error>`.
pub fn with_state<S, J, H, F>(state: S, handler: H) -> impl Fn(J) -> F
where
    S: Clone,
    H: Fn(S, J) -> F,
{
    move |job| handler(state.clone(), job)
}
