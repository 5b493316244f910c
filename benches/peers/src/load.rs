//! The load that every peer gets: a number of messages of one size, from a number of tasks.

use std::future::Future;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use delayline_benches::PAYLOAD_BYTES;
use delayline_test_server::Server;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client};
use tokio::task::JoinSet;

/// Tasks that send, and handlers that may run, at once.
pub(crate) const TASKS: usize = 256;

/// How long a reply may take. redis-rs gives up after 500 ms, which ends a round on a machine that
/// stands still for that long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Messages that a bulk call gets.
pub(crate) const BULK: usize = 1_000;

/// A payload of text.
pub(crate) fn payload() -> String {
    "p".repeat(PAYLOAD_BYTES)
}

/// A payload that begins with its own number, for queues that identify messages by content.
pub(crate) fn numbered_payload(number: usize) -> String {
    format!("{number:p<PAYLOAD_BYTES$}")
}

/// Connects to a server for calls that take at most [`PATIENCE`].
pub(crate) async fn connect(server: &Server) -> Result<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
    let client = Client::open(server.url())?;
    Ok(client.get_multiplexed_async_connection_with_config(&config).await?)
}

/// Runs `step` for each number below `messages`, [`TASKS`] at a time.
pub(crate) async fn in_tasks<S, F>(messages: usize, step: S) -> Result<()>
where
    S: Fn(usize) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<()>> + Send,
{
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let step = step.clone();
        tasks.spawn(async move {
            for number in (task..messages).step_by(TASKS) {
                step(number).await?;
            }
            Ok(())
        });
    }
    all(tasks).await
}

/// The first error of the tasks, if there is one.
pub(crate) async fn all(mut tasks: JoinSet<Result<()>>) -> Result<()> {
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}

/// What the tasks have counted, or their first error.
pub(crate) async fn sum(mut tasks: JoinSet<Result<usize>>) -> Result<usize> {
    let mut sum = 0;
    while let Some(ended) = tasks.join_next().await {
        sum += ended??;
    }
    Ok(sum)
}

/// Splits `messages` into calls of at most [`BULK`]: the first number and the length of each.
pub(crate) fn bulks(messages: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..messages).step_by(BULK).map(move |first| (first, BULK.min(messages - first)))
}

/// This process's clock in milliseconds, for queues that go by it.
pub(crate) fn client_millis() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
