//! How well workers in several programs keep to a rate, and how much of it they use.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use delayline::admin::{Rate, SetLimits};
use delayline::codec::Raw;
use delayline::worker::{Summary, WorkerHandle};
use delayline::{Bytes, Job, Queue, Worker};
use delayline_benches::send_in_bulk;
use delayline_test_server::{Cluster, Server};
use indicatif::ProgressBar;
use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;

use crate::table::{Columns, Table, number};
use crate::transport::{DRIVERS, Transport};

/// Each on a thread and connections of its own, as a program would be.
const WORKERS: usize = 5;
/// Messages in a second and the burst.
const RATES: [(u32, u32); 3] = [(20, 2), (200, 20), (2_000, 200)];

pub(crate) async fn measure(time: Duration, progress: &ProgressBar) -> Result<Table> {
    let mut rows = Vec::new();
    let start = || (Server::start(), Cluster::start());
    let (server, cluster) = spawn_blocking(start).await?;
    for (place, url) in [("one server", server.url()), ("Cluster", cluster.url())] {
        for (count, burst) in RATES {
            progress.set_message(format!("{count} messages/s, {place}"));
            let row = format!("{place}, {count}/s, burst {burst}");
            rows.push((row, keep_to(&url, Rate::per_second(count, burst), time).await?));
        }
    }
    let columns = ["used, %", "most in a second", "allowed", "deliveries/message"];
    Ok(Table {
        name: "limits",
        title: "A rate over five workers",
        unit: "messages",
        columns: columns.map(str::to_owned).to_vec(),
        rows,
        columns_are: Columns::Cases,
        wide: true,
        note: "Five workers with 16 handlers and connections of their own, three over redis-rs and \
               two over fred, and a backlog that they work off. What is used of the rate from the \
               first handler's start to the last one's; the most handlers that start within a \
               second, and what the rate and its burst allow there.",
    })
}

/// Returns the figures of a row.
async fn keep_to(url: &str, rate: Rate, time: Duration) -> Result<Vec<f64>> {
    let queue = DRIVERS[0].open_at(url).await?;
    queue.set_limits(SetLimits::new().rate(rate)).await?;
    let messages = usize::try_from(u64::from(rate.count) * time.as_secs())?;
    let before = queue.stats().await?.totals;
    send_in_bulk(&queue, messages).await?;
    let (report, mut started) = unbounded_channel();
    let mut workers = Vec::new();
    for number in 0..WORKERS {
        workers.push(start_worker(DRIVERS[number % 2], url, report.clone()).await?);
    }
    drop(report);
    let mut starts = Vec::with_capacity(messages);
    while starts.len() < messages {
        starts.push(started.recv().await.context("a worker has ended")?);
    }
    for (handle, worker) in workers {
        handle.stop(Duration::from_secs(1));
        let summary = spawn_blocking(|| worker.join()).await?;
        let summary = summary.map_err(|_| anyhow!("a worker panicked"))??;
        ensure!(summary.unsettled == 0, "{summary:?}");
    }
    starts.sort_unstable();
    let (first, last) = starts.first().zip(starts.last()).context("nothing was handled")?;
    let due = last.duration_since(*first).as_secs_f64() * f64::from(rate.count);
    let used = number(messages) / (due + f64::from(rate.burst));
    let allowed = f64::from(rate.count + rate.burst);
    let after = queue.stats().await?.totals;
    let acked = after.acked - before.acked;
    ensure!(acked == u64::try_from(messages)?, "{acked} of {messages} messages were acked");
    let delivered = usize::try_from(after.delivered() - before.delivered())?;
    let delivered = number(delivered) / number(messages);
    Ok(vec![100.0 * used, number(most_in_a_second(&starts)), allowed, delivered])
}

type Running = (WorkerHandle, thread::JoinHandle<Result<Summary>>);

async fn start_worker(
    transport: Transport,
    url: &str,
    report: UnboundedSender<Instant>,
) -> Result<Running> {
    let (url, (opened, open)) = (url.to_owned(), oneshot::channel());
    let thread = thread::spawn(move || {
        Builder::new_current_thread().enable_all().build()?.block_on(async {
            let queue: Queue<Bytes, Raw> = transport.open_at(&url).await?;
            let worker = Worker::builder(queue).concurrency(16).build()?;
            // The receiver waits for it.
            let _ = opened.send(worker.handle());
            Ok(worker
                .run(move |_: Job<Bytes>| {
                    // The receiver has gone when it has all.
                    let _ = report.send(Instant::now());
                    async { Ok::<(), &str>(()) }
                })
                .await)
        })
    });
    Ok((open.await.context("a worker cannot be opened")?, thread))
}

/// The most instants that lie within a second, of a sorted list.
fn most_in_a_second(starts: &[Instant]) -> usize {
    let mut first = 0;
    let within = |(last, start): (usize, &Instant)| {
        while start.duration_since(starts[first]) >= Duration::from_secs(1) {
            first += 1;
        }
        last + 1 - first
    };
    starts.iter().enumerate().map(within).max().unwrap_or(0)
}
