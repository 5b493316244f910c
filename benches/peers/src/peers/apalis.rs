//! `apalis-redis`: lists, sets and hashes, with a heartbeat for each worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Result, anyhow};
use apalis::prelude::{
    BackendExt, BoxDynError, Data, ParallelizeExt, TaskSink, WorkerBuilder, WorkerBuilderExt,
    WorkerContext,
};
use apalis_redis::{Config, RedisStorage};
use delayline_test_server::Server;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{AsyncCommands, Client};

use crate::load::{PATIENCE, TASKS, bulks, in_tasks, payload};
use crate::measure::Peer;

pub(crate) struct ApalisRedis {
    storage: RedisStorage<String>,
    connection: ConnectionManager,
    workers: usize,
}

/// `fetch_next.lua` hands all due tasks to one call of `unpack`, and Lua's stack holds some 8,000
/// values: with more of them due at once each fetch fails, and the worker ends.
const MOST_WAITING: usize = 5_000;

impl Peer for ApalisRedis {
    type Store = Server;

    async fn open(server: &Server) -> Result<Self> {
        // As `apalis_redis::connect` does, except for the time limit of a reply.
        let config = ConnectionManagerConfig::new().set_response_timeout(Some(PATIENCE));
        let client = Client::open(server.url())?;
        let connection = ConnectionManager::new_with_config(client, config).await?;
        // Its documentation suggests both settings, for tasks that are shorter than a heartbeat and
        // for programs that do not listen to events. Without persisted results, nothing is acked.
        let config = Config::default().queue("bench").batch_size(TASKS);
        let config = config.lock_tasks(false).emit_events(false);
        let storage = RedisStorage::new(connection.clone()).with_config(config);
        Ok(Self { storage, connection, workers: 0 })
    }

    async fn send(&mut self, messages: usize) -> Result<()> {
        let storage = self.storage.clone();
        in_tasks(messages, move |_| {
            let mut storage = storage.clone();
            async move { storage.push(payload()).await.map_err(|error| anyhow!("{error}")) }
        })
        .await
    }

    async fn send_in_bulk(&mut self, messages: usize) -> Result<bool> {
        for (_, length) in bulks(messages) {
            let pushed = self.storage.push_bulk(vec![payload(); length]).await;
            pushed.map_err(|error| anyhow!("{error}"))?;
        }
        Ok(true)
    }

    async fn work(&mut self, messages: usize) -> Result<usize> {
        let handled = Handled { count: Arc::default(), all: messages };
        self.workers += 1;
        let backend = self.storage.clone().poll_with_interval(Duration::from_millis(10));
        let worker = WorkerBuilder::new(format!("worker-{}", self.workers))
            .backend(backend)
            .concurrency(TASKS)
            .parallelize(tokio::spawn)
            .data(handled.clone())
            .build(handle);
        // `handle` stops it after the last task. Then it acks the tasks that have ended.
        worker.run().await.map_err(|error| anyhow!("{error}"))?;
        Ok(handled.count.load(Ordering::Relaxed))
    }

    async fn unfinished(&mut self) -> Result<usize> {
        let sent: usize = self.connection.hlen("bench:data").await?;
        let done: usize = self.connection.scard("bench:done").await?;
        Ok(sent - done)
    }

    fn most_waiting(&self) -> usize {
        MOST_WAITING
    }
}

#[derive(Clone)]
struct Handled {
    count: Arc<AtomicUsize>,
    all: usize,
}

async fn handle(
    _: String,
    handled: Data<Handled>,
    worker: WorkerContext,
) -> Result<(), BoxDynError> {
    if handled.count.fetch_add(1, Ordering::Relaxed) + 1 == handled.all {
        worker.stop()?;
    }
    Ok(())
}
