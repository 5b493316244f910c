//! Delayline, by both of its drivers.

use anyhow::Result;
use delayline::{Bytes, Connect, Driver, Job, Queue, QueueName, Raw, Worker};
use delayline_test_server::Server;

use crate::load::{TASKS, in_tasks, payload};
use crate::measure::Peer;

/// By the `redis` crate.
pub(crate) struct ByRedisRs(Queue<Bytes, Raw>);

/// By the `fred` crate.
pub(crate) struct ByFred(Queue<Bytes, Raw>);

/// As in Delayline's own benchmarks.
const BULK: usize = 10_000;

async fn open(server: &Server, driver: Driver) -> Result<Queue<Bytes, Raw>> {
    let backend = Connect::new(&server.url(), "bench")?.driver(driver).open().await?;
    Ok(Queue::raw(backend).named(&QueueName::new("bench")?))
}

async fn send(queue: &Queue<Bytes, Raw>, messages: usize) -> Result<()> {
    let (queue, payload) = (queue.clone(), Bytes::from(payload()));
    in_tasks(messages, move |_| {
        let (queue, payload) = (queue.clone(), payload.clone());
        async move {
            queue.send(&payload).await?;
            Ok(())
        }
    })
    .await
}

async fn send_in_bulk(queue: &Queue<Bytes, Raw>, messages: usize) -> Result<bool> {
    let payload = Bytes::from(payload());
    for first in (0..messages).step_by(BULK) {
        let drafts = (first..messages.min(first + BULK)).map(|_| queue.message(&payload));
        for sent in queue.send_batch(drafts.collect::<Result<Vec<_>, _>>()?).await {
            let _created = sent?;
        }
    }
    Ok(true)
}

async fn work(queue: &Queue<Bytes, Raw>) -> Result<usize> {
    let worker = Worker::builder(queue.clone()).concurrency(TASKS).until_empty(true).build()?;
    let summary = worker.run(|_: Job<Bytes>| async { Ok::<(), &str>(()) }).await;
    Ok(usize::try_from(summary.acked)?)
}

async fn unfinished(queue: &Queue<Bytes, Raw>) -> Result<usize> {
    let stats = queue.stats().await?;
    let counts = [stats.scheduled, stats.ready, stats.leased, stats.dead];
    Ok(usize::try_from(counts.into_iter().sum::<u64>())?)
}

/// Both differ in the driver alone.
macro_rules! peer {
    ($name:ident, $driver:expr) => {
        impl Peer for $name {
            async fn open(server: &Server) -> Result<Self> {
                Ok(Self(open(server, $driver).await?))
            }

            async fn send(&mut self, messages: usize) -> Result<()> {
                send(&self.0, messages).await
            }

            async fn send_in_bulk(&mut self, messages: usize) -> Result<bool> {
                send_in_bulk(&self.0, messages).await
            }

            async fn work(&mut self, _: usize) -> Result<usize> {
                work(&self.0).await
            }

            async fn unfinished(&mut self) -> Result<usize> {
                unfinished(&self.0).await
            }
        }
    };
}

peer!(ByRedisRs, Driver::Redis);
peer!(ByFred, Driver::Fred);
