//! `bullmq-official`: BullMQ's scripts, called from Rust.

use std::sync::Arc;

use anyhow::{Result, bail};
use bullmq::options::RedisConnectionOptions;
use bullmq::types::RemoveOnFinish;
use bullmq::worker::WorkerEvent;
use bullmq::{BulkJob, Queue, QueueOptions, Worker, WorkerOptions};
use delayline_test_server::Server;
use serde_json::Value;

use crate::load::{TASKS, bulks, in_tasks, payload};
use crate::measure::Peer;

pub(crate) struct BullmqOfficial {
    queue: Arc<Queue>,
    connection: RedisConnectionOptions,
    /// The last worker, which is not stopped during a measurement.
    ended: Option<Worker>,
}

const QUEUE: &str = "bench";

/// How long a worker without jobs may take to end.
const PATIENCE_MS: u64 = 10_000;

impl Peer for BullmqOfficial {
    type Store = Server;

    async fn open(server: &Server) -> Result<Self> {
        let connection = RedisConnectionOptions::new().url(server.url());
        let options = QueueOptions::new().connection(connection.clone());
        let queue = Arc::new(Queue::with_options(QUEUE, options).await?);
        Ok(Self { queue, connection, ended: None })
    }

    async fn send(&mut self, messages: usize) -> Result<()> {
        let queue = Arc::clone(&self.queue);
        in_tasks(messages, move |_| {
            let queue = Arc::clone(&queue);
            async move {
                queue.add("job", payload()).await?;
                Ok(())
            }
        })
        .await
    }

    async fn send_in_bulk(&mut self, messages: usize) -> Result<bool> {
        for (_, length) in bulks(messages) {
            let jobs = (0..length).map(|_| BulkJob::new("job", payload()));
            self.queue.add_bulk(jobs.collect()).await?;
        }
        Ok(true)
    }

    async fn work(&mut self, messages: usize) -> Result<usize> {
        let options = WorkerOptions {
            connection: self.connection.clone(),
            concurrency: TASKS,
            // As BullMQ's "Auto-removal of jobs" says: finished jobs are not kept.
            remove_on_complete: Some(RemoveOnFinish::Bool(true)),
            ..WorkerOptions::default()
        };
        let handler = |_, _| async { Ok(Value::Null) };
        let worker = Worker::with_options(QUEUE, handler, options).await?;
        let mut completed = 0;
        while completed < messages {
            match worker.next_event().await {
                Some(WorkerEvent::Completed { .. }) => completed += 1,
                Some(WorkerEvent::Failed { error, .. } | WorkerEvent::Error(error)) => {
                    bail!("the worker says: {error}");
                }
                Some(_) => {}
                None => bail!("the worker has ended"),
            }
        }
        self.ended = Some(worker);
        Ok(completed)
    }

    async fn unfinished(&mut self) -> Result<usize> {
        if let Some(worker) = self.ended.take() {
            worker.close(PATIENCE_MS).await?;
        }
        let types = ["waiting", "active", "delayed", "failed", "completed"];
        let counts = self.queue.get_job_counts_by_types(&types).await?;
        Ok(usize::try_from(counts.values().sum::<u64>())?)
    }
}
