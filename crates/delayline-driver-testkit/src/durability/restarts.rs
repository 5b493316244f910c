//! A server that is killed and started again from its file.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use delayline_core::{Error, QueueBackend, QueueName};
use delayline_redis_protocol::{ConnectOptions, ScriptBackend};
use delayline_test_server::Server;
use delayline_testkit::{Fixture, async_trait};
use tokio::runtime::Runtime;

use super::options;
use crate::Connect;

/// Runs the trials of [`delayline_testkit`] that reopen queues: messages, leases, results, totals
/// and remembered ids are as in the model, whenever the server was killed between two operations.
pub async fn a_killed_server_has_all_that_it_acknowledged<C: Connect>() {
    // Trials block their thread.
    let ran = tokio::task::spawn_blocking(|| {
        let server = Server::builder().append_only("always").start();
        let options = options(&server.url());
        let queues = AtomicU64::new(0);
        let fixture = Restarted::<C> { server, options, queues, connect: PhantomData };
        let runtime = Arc::new(Runtime::new().unwrap());
        let trials = delayline_testkit::trials(runtime, fixture, CASES, SEED).into_iter();
        let trials = trials.filter(|(name, _)| name.starts_with("reopen::"));
        trials.map(|(_, run)| run()).count()
    });
    assert!(ran.await.unwrap() > 1, "there are trials");
}

struct Restarted<C> {
    server: Server,
    options: ConnectOptions,
    queues: AtomicU64,
    connect: PhantomData<fn() -> C>,
}

impl<C: Connect> Restarted<C> {
    async fn open(&self, name: QueueName) -> Result<Arc<dyn QueueBackend>, Error> {
        let transport = Arc::new(C::connect(&self.options).await?);
        Ok(Arc::new(ScriptBackend::open(transport, name, false).await?))
    }
}

#[async_trait]
impl<C: Connect> Fixture for Restarted<C> {
    async fn fresh(&self) -> Result<Arc<dyn QueueBackend>, Error> {
        let number = self.queues.fetch_add(1, Ordering::Relaxed);
        self.open(QueueName::new(format!("queue-{number}"))?).await
    }

    async fn reopen(
        &self,
        queue: Arc<dyn QueueBackend>,
    ) -> Result<Option<Arc<dyn QueueBackend>>, Error> {
        let Some(name) = queue.queue_name().cloned() else { return Ok(None) };
        drop(queue);
        self.server.kill();
        self.server.restart();
        self.open(name).await.map(Some)
    }
}

/// Some ten random sequences: each restart takes a tenth of a second.
const CASES: u32 = 200;
const SEED: u64 = 1;
