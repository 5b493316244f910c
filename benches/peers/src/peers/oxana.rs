//! `oxana`: lists and a hash, with a heartbeat for each process.

use std::convert::Infallible;

use anyhow::{Context as _, Result};
use delayline_test_server::Server;
use oxana::{BatchItem, JobContext, QueueConfig, Storage, StorageBuilderTimeouts};
use serde::{Deserialize, Serialize};

use crate::load::{PATIENCE, TASKS, bulks, in_tasks, payload};
use crate::measure::Peer;

/// With a worker that gets up to 100 jobs at once, or one.
pub(crate) struct Oxana<const BATCHES: bool>(Storage);

pub(crate) type Singly = Oxana<false>;
pub(crate) type InBatches = Oxana<true>;

/// One for each task that sends or handles, and some for its own calls.
const CONNECTIONS: usize = TASKS + 16;

impl<const BATCHES: bool> Peer for Oxana<BATCHES> {
    type Store = Server;

    async fn open(server: &Server) -> Result<Self> {
        let storage = Storage::builder()
            .max_pool_size(CONNECTIONS)
            .timeouts(StorageBuilderTimeouts::new(PATIENCE))
            .redis_response_timeout(PATIENCE)
            .build_from_redis_url(server.url())?;
        Ok(Self(storage))
    }

    async fn send(&mut self, messages: usize) -> Result<()> {
        let storage = self.0.clone();
        in_tasks(messages, move |_| {
            let storage = storage.clone();
            async move {
                storage.enqueue(Bench, Job { text: payload() }).await?;
                Ok(())
            }
        })
        .await
    }

    async fn send_in_bulk(&mut self, messages: usize) -> Result<bool> {
        for (_, length) in bulks(messages) {
            let jobs = (0..length).map(|_| Job { text: payload() });
            self.0.enqueue_list(Bench, jobs).await?;
        }
        Ok(true)
    }

    async fn work(&mut self, messages: usize) -> Result<usize> {
        let runtime = self.0.runtime(Nothing).queue::<Bench>();
        let runtime =
            if BATCHES { runtime.worker::<Batches, Job>() } else { runtime.worker::<One, Job>() };
        let all = u64::try_from(messages)?;
        let stats = runtime.exit_when_processed(all).run().await?;
        usize::try_from(stats.succeeded).context("a count")
    }

    async fn unfinished(&mut self) -> Result<usize> {
        Ok(self.0.jobs_count().await?)
    }
}

#[derive(Serialize)]
struct Bench;

impl oxana::Queue for Bench {
    fn to_config() -> QueueConfig {
        QueueConfig::as_static("bench").concurrency(TASKS)
    }
}

#[derive(Debug, Serialize, Deserialize, oxana::Job)]
struct Job {
    text: String,
}

/// What handlers share.
#[derive(Clone)]
struct Nothing;

#[derive(oxana::Worker)]
#[oxana(job = Job, context = Nothing, error = Infallible, registry = None)]
struct One;

impl One {
    async fn process(&self, _: Job, _: &JobContext) -> Result<(), Infallible> {
        Ok(())
    }
}

#[derive(oxana::Worker)]
#[oxana(job = Job, context = Nothing, error = Infallible, registry = None)]
#[oxana(batch_size = 100, batch_timeout_ms = 5)]
struct Batches;

impl Batches {
    async fn process_batch(&self, _: Vec<BatchItem<Job>>) -> Result<(), Infallible> {
        Ok(())
    }
}
