//! `rsmq_async`: visibility timeouts on a sorted set and a hash.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, ensure};
use delayline_test_server::Server;
use rsmq_async::{Rsmq, RsmqConnection, RsmqMessage};
use tokio::task::JoinSet;

use crate::load::{TASKS, all, bulks, connect, in_tasks, payload};
use crate::measure::Peer;

/// Each task receives up to `BATCH` messages at once.
pub(crate) struct RsmqAsync<const BATCH: u32>(Rsmq);

/// As in the crate's own example of receiving in batches.
pub(crate) type InBatches = RsmqAsync<100>;

/// As in the crate's first example.
pub(crate) type Singly = RsmqAsync<1>;

const QUEUE: &str = "bench";

impl<const BATCH: u32> Peer for RsmqAsync<BATCH> {
    type Store = Server;

    async fn open(server: &Server) -> Result<Self> {
        let mut queue = Rsmq::new_with_connection(connect(server).await?, false, None).await?;
        queue.create_queue(QUEUE, None, None, None).await?;
        Ok(Self(queue))
    }

    async fn send(&mut self, messages: usize) -> Result<()> {
        let queue = self.0.clone();
        in_tasks(messages, move |_| {
            let mut queue = queue.clone();
            async move {
                queue.send_message(QUEUE, payload(), None).await?;
                Ok(())
            }
        })
        .await
    }

    async fn send_in_bulk(&mut self, messages: usize) -> Result<bool> {
        for (_, length) in bulks(messages) {
            self.0.send_message_batch(QUEUE, vec![payload(); length], None).await?;
        }
        Ok(true)
    }

    async fn work(&mut self, _: usize) -> Result<usize> {
        let handled = Arc::new(AtomicUsize::new(0));
        let mut tasks = JoinSet::new();
        for _ in 0..TASKS {
            let (mut queue, handled) = (self.0.clone(), Arc::clone(&handled));
            tasks.spawn(async move {
                loop {
                    let batch: Vec<RsmqMessage> = if BATCH == 1 {
                        queue.receive_message(QUEUE, None).await?.into_iter().collect()
                    } else {
                        queue.receive_message_batch(QUEUE, None, BATCH).await?
                    };
                    if batch.is_empty() {
                        return Ok(());
                    }
                    for message in batch {
                        let deleted = queue.delete_message(QUEUE, &message.id).await?;
                        ensure!(deleted, "a message was deleted by another worker");
                        handled.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        all(tasks).await?;
        Ok(handled.load(Ordering::Relaxed))
    }

    async fn unfinished(&mut self) -> Result<usize> {
        Ok(usize::try_from(self.0.get_queue_attributes(QUEUE).await?.msgs)?)
    }
}
