//! What programs do with a queue: send in bulk, send one by one, and work.

use anyhow::Result;
use delayline::codec::Raw;
use delayline::{Bytes, Error, Job, Queue, Worker};
use tokio::task::JoinSet;

use crate::PAYLOAD_BYTES;

/// Drafts that are handed over at once.
const BULK: usize = 10_000;

/// Every message's.
#[must_use]
pub fn payload() -> Bytes {
    Bytes::from_static(&[b'p'; PAYLOAD_BYTES])
}

/// Sends messages that are due at once, thousands at a time.
///
/// # Errors
///
/// One of them was not sent.
pub async fn send_in_bulk(queue: &Queue<Bytes, Raw>, messages: usize) -> Result<()> {
    for first in (0..messages).step_by(BULK) {
        let drafts = (first..messages.min(first + BULK)).map(|_| queue.message(&payload()));
        for sent in queue.send_many(drafts).await {
            let _created = sent?;
        }
    }
    Ok(())
}

/// Sends messages one by one from a number of tasks.
///
/// # Errors
///
/// One of them was not sent.
pub async fn send_singly(queue: &Queue<Bytes, Raw>, messages: usize, tasks: usize) -> Result<()> {
    let mut senders = JoinSet::new();
    for task in 0..tasks {
        let queue = queue.clone();
        senders.spawn(async move {
            for _ in (task..messages).step_by(tasks) {
                queue.send(&payload()).await?;
            }
            Ok::<_, Error>(())
        });
    }
    while let Some(sent) = senders.join_next().await {
        sent??;
    }
    Ok(())
}

/// Handles messages with an empty handler until none are left. Returns the number of acks.
///
/// # Errors
///
/// The worker cannot be built with this concurrency.
pub async fn work(queue: &Queue<Bytes, Raw>, concurrency: usize) -> Result<u64> {
    let worker = Worker::builder(queue.clone()).concurrency(concurrency).until_empty(true);
    Ok(worker.build()?.run(|_: Job<Bytes>| async { Ok::<(), &str>(()) }).await.acked)
}
