//! How late handlers begin, on an idle server and under load.

use std::time::{Duration, SystemTime};

use anyhow::{Result, bail};
use delayline::codec::Raw;
use delayline::worker::{Summary, WorkerHandle};
use delayline::{Bytes, Job, Queue, Worker};
use delayline_benches::payload;
use hdrhistogram::Histogram;
use indicatif::ProgressBar;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::table::{Columns, Table};
use crate::transport::DRIVERS;

/// Numbers of other messages, which are not due during the measurement.
const WAITING: [usize; 3] = [0, 100_000, 1_000_000];
pub(crate) const QUANTILES: [(&str, f64); 4] =
    [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];
/// The load: one batch per interval, whose messages are due within `LOAD_DELAY`.
const LOAD_BATCH: usize = 50;
const LOAD_INTERVAL: Duration = Duration::from_millis(10);
const LOAD_DELAY: Duration = Duration::from_secs(1);
const FAR: Duration = Duration::from_secs(86_400);

/// Sends messages one after the other, each due within half a second.
pub(crate) async fn idle(messages: usize, progress: &ProgressBar) -> Result<Table> {
    let mut rows = Vec::new();
    for transport in DRIVERS {
        for waiting in WAITING {
            progress.set_message(format!("lateness of {transport}, idle, {waiting} waiting"));
            let server = transport.start()?;
            let queue = transport.open(&server).await?;
            send_far(&queue, waiting).await?;
            let late = lone_messages(&queue, messages).await?;
            rows.push((format!("{}, {waiting} waiting", transport.driver_name()), late));
        }
    }
    Ok(table("lateness-idle", "Lateness of a lone message on an idle server", rows))
}

/// Sends 5,000 messages per second for `time`.
pub(crate) async fn loaded(time: Duration, progress: &ProgressBar) -> Result<Table> {
    let mut rows = Vec::new();
    for transport in DRIVERS {
        for waiting in WAITING {
            progress.set_message(format!("lateness of {transport}, loaded, {waiting} waiting"));
            let server = transport.start()?;
            let queue = transport.open(&server).await?;
            send_far(&queue, waiting).await?;
            let late = Bench::start(&queue)?.load(time).await?;
            rows.push((format!("{}, {waiting} waiting", transport.driver_name()), late));
        }
    }
    Ok(table("lateness-loaded", "Lateness at 5,000 messages per second", rows))
}

fn table(name: &'static str, title: &'static str, measured: Vec<(String, Late)>) -> Table {
    let samples = measured.iter().map(|(_, late)| late.len()).collect();
    let rows = measured.into_iter().map(|(row, late)| (row, quantiles(&late))).collect();
    Table {
        name,
        title,
        unit: "ms",
        columns: QUANTILES.map(|(quantile, _)| quantile.to_owned()).to_vec(),
        rows,
        columns_are: Columns::Percentiles(samples),
        wide: false,
        note: "From the due time, by the server's clock, to the start of the handler, while the \
               given number of other messages wait. Never early: a handler that starts before the \
               due time fails the run.",
    }
}

/// Handles messages that are sent one after the other, each due within half a second.
pub(crate) async fn lone_messages(queue: &Queue<Bytes, Raw>, messages: usize) -> Result<Late> {
    let (mut bench, mut late) = (Bench::start(queue)?, Late::new(3)?);
    for _ in 0..messages {
        let delay = Duration::from_micros(fastrand::u64(0..500_000));
        queue.send_in(&payload(), delay).await?;
        bench.next(&mut late).await?;
    }
    bench.end().await?;
    Ok(late)
}

/// Sends messages that are due after the measurement.
async fn send_far(queue: &Queue<Bytes, Raw>, waiting: usize) -> Result<()> {
    for first in (0..waiting).step_by(10_000) {
        send(queue, 10_000.min(waiting - first), || FAR).await?;
    }
    Ok(())
}

/// How late each message was, in microseconds.
pub(crate) type Late = Histogram<u64>;

/// A queue with a worker that reports the lateness of each message.
pub(crate) struct Bench {
    queue: Queue<Bytes, Raw>,
    lateness: UnboundedReceiver<Option<Duration>>,
    handle: WorkerHandle,
    working: JoinHandle<Summary>,
}

impl Bench {
    pub(crate) fn start(queue: &Queue<Bytes, Raw>) -> Result<Self> {
        let (report, lateness) = unbounded_channel();
        let worker = Worker::builder(queue.clone()).concurrency(256).build()?;
        let handle = worker.handle();
        let working = tokio::spawn(worker.run(move |job: Job<Bytes>| {
            // The receiver is dropped at the end of the measurement.
            let _ = report.send(SystemTime::now().duration_since(job.due().into()).ok());
            async { Ok::<(), &str>(()) }
        }));
        Ok(Self { queue: queue.clone(), lateness, handle, working })
    }

    /// Stops the worker, which would else look for its server during the next measurement.
    pub(crate) async fn end(self) -> Result<()> {
        self.handle.stop(Duration::from_secs(1));
        self.working.await?;
        Ok(())
    }

    async fn load(mut self, time: Duration) -> Result<Late> {
        let mut late = Late::new(3)?;
        let (start, mut sent, mut handled) = (Instant::now(), 0, 0);
        let mut ticks = interval(LOAD_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let queue = self.queue.clone();
        let sending = tokio::spawn(async move {
            while start.elapsed() < time {
                ticks.tick().await;
                send(&queue, LOAD_BATCH, || LOAD_DELAY.mul_f64(fastrand::f64())).await?;
                sent += LOAD_BATCH;
            }
            anyhow::Ok(sent)
        });
        while start.elapsed() < time {
            self.next(&mut late).await?;
            handled += 1;
        }
        let sent = sending.await??;
        while handled < sent {
            self.next(&mut late).await?;
            handled += 1;
        }
        self.end().await?;
        Ok(late)
    }

    /// Records the lateness of the next message.
    pub(crate) async fn next(&mut self, late: &mut Late) -> Result<()> {
        match self.lateness.recv().await {
            Some(Some(lateness)) => Ok(late.record(u64::try_from(lateness.as_micros())?)?),
            Some(None) => bail!("a handler began early"),
            None => bail!("the worker has ended"),
        }
    }
}

async fn send(queue: &Queue<Bytes, Raw>, count: usize, delay: impl Fn() -> Duration) -> Result<()> {
    let drafts = (0..count).map(|_| queue.message(&payload()).due_in(delay()));
    for sent in queue.send_many(drafts).await {
        let _created = sent?;
    }
    Ok(())
}

pub(crate) fn quantiles(late: &Late) -> Vec<f64> {
    let ms = |us: u64| f64::from(u32::try_from(us).unwrap_or(u32::MAX)) / 1_000.0;
    QUANTILES.iter().map(|(_, quantile)| ms(late.value_at_quantile(*quantile))).collect()
}
