//! How late handlers begin.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};
use delayline::codec::Raw;
use delayline::{Bytes, Job, Queue, Worker};
use delayline_test_server::Server;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{MissedTickBehavior, interval};

use crate::{PAYLOAD, runtime};

const LONE: usize = 100;
const LOAD_BATCH: usize = 50;
const LOAD_INTERVAL: Duration = Duration::from_millis(10);

/// Prints quantiles of the lateness: of lone messages, and at 5,000 a second.
pub(crate) fn measure(parent: &Path, seconds: u64) -> Result<()> {
    println!("\n| lateness, ms | p50 | p99 | max |\n|---|---|---|---|");
    let server = Server::start();
    let directory = format!("file:{}", parent.join("lateness").display());
    for (name, url) in [("directory", directory), ("Redis", server.url())] {
        let runtime = runtime()?;
        let (lone, loaded) = runtime.block_on(async {
            let mut bench = Bench::start(&url).await?;
            anyhow::Ok((bench.lone().await?, bench.load(seconds).await?))
        })?;
        row(name, "a lone message", lone);
        row(name, "5,000 a second", loaded);
    }
    Ok(())
}

fn row(name: &str, load: &str, mut late: Vec<Duration>) {
    late.sort();
    let at = |share: usize| late.get((late.len() * share / 100).min(late.len() - 1));
    let ms = |share| at(share).map_or(0.0, |late| late.as_secs_f64() * 1_000.0);
    println!("| {name}, {load} | {:.2} | {:.2} | {:.2} |", ms(50), ms(99), ms(100));
}

struct Bench {
    queue: Queue<Bytes, Raw>,
    late: UnboundedReceiver<Option<Duration>>,
}

impl Bench {
    async fn start(url: &str) -> Result<Self> {
        let queue = delayline::connect(url).await?.queue("orders").await?.codec(Raw);
        let (report, late) = unbounded_channel();
        let worker = Worker::builder(queue.clone()).concurrency(256).build()?;
        tokio::spawn(worker.run(move |job: Job<Bytes>| {
            // The receiver is dropped at the end.
            let _ = report.send(SystemTime::now().duration_since(job.due().into()).ok());
            async { Ok::<(), &str>(()) }
        }));
        Ok(Self { queue, late })
    }

    async fn lone(&mut self) -> Result<Vec<Duration>> {
        let mut late = Vec::new();
        for _ in 0..LONE {
            let delay = Duration::from_micros(fastrand::u64(0..200_000));
            self.queue.send_in(&Bytes::from_static(&PAYLOAD), delay).await?;
            late.push(self.next().await?);
        }
        Ok(late)
    }

    async fn load(mut self, seconds: u64) -> Result<Vec<Duration>> {
        let (queue, time) = (self.queue.clone(), Duration::from_secs(seconds));
        let sending = tokio::spawn(async move {
            let (start, mut sent) = (Instant::now(), 0);
            let mut ticks = interval(LOAD_INTERVAL);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
            while start.elapsed() < time {
                ticks.tick().await;
                let drafts = (0..LOAD_BATCH).map(|_| {
                    let delay = Duration::from_secs_f64(fastrand::f64());
                    queue.message(&Bytes::from_static(&PAYLOAD)).due_in(delay)
                });
                for sent in queue.send_many(drafts).await {
                    let _created = sent?;
                }
                sent += LOAD_BATCH;
            }
            anyhow::Ok(sent)
        });
        let mut late = Vec::new();
        while !sending.is_finished() {
            late.push(self.next().await?);
        }
        let sent = sending.await??;
        while late.len() < sent {
            late.push(self.next().await?);
        }
        Ok(late)
    }

    async fn next(&mut self) -> Result<Duration> {
        let late = self.late.recv().await.context("the worker has ended")?;
        late.context("a handler began early")
    }
}
