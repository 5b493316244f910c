//! The load that every peer gets: a number of messages of one size, from a number of tasks.

use std::future::Future;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use delayline_benches::PAYLOAD_BYTES;
use tokio::task::JoinSet;

/// Tasks that send, and handlers that may run, at once.
pub(crate) const TASKS: usize = 256;

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
