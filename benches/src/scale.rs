//! Scaling: the time of a call with many messages, many queues and many workers.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use delayline::admin::{Listed, Resolution};
use delayline::{Bytes, Connect, Connection, Job, Worker};
use delayline_admin::doctor;
use delayline_benches::{Requests, ack, claim, deliveries, enqueue, payload};
use delayline_core::At;
use delayline_test_server::Server;
use delayline_web::{Access, Dashboard, Role};
use indicatif::ProgressBar;
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::{Instant, sleep};
use tower::ServiceExt as _;

use crate::backlog::{self, SIZES};
use crate::table::{Columns, Table, number};
use crate::transport::{DRIVERS, QUEUE};

const QUEUES: [usize; 4] = [10, 100, 1_000, 10_000];
const WORKERS: [usize; 3] = [50, 500, 5_000];
/// Number of calls for a 99th percentile, and for a median.
const CALLS: usize = 2_000;
const CALLS_OF_MEDIAN: usize = 11;
/// Time after which all workers have made their first claims, and wait.
const SETTLING: Duration = Duration::from_secs(15);

/// Measures with up to `most_messages`. With few messages, the numbers of queues and workers are
/// small, too.
pub(crate) async fn measure(most_messages: usize, progress: &ProgressBar) -> Result<Vec<Table>> {
    let fits = |count: &usize| *count <= most_messages / 100;
    let queues: Vec<_> = QUEUES.into_iter().filter(fits).collect();
    let workers: Vec<_> = WORKERS.into_iter().filter(fits).collect();
    let (calls, memory) = of_messages(most_messages, progress).await?;
    Ok(vec![
        calls,
        memory,
        of_queues(&queues, progress).await?,
        of_workers(&workers, progress).await?,
    ])
}

async fn of_messages(most: usize, progress: &ProgressBar) -> Result<(Table, Table)> {
    let sizes: Vec<_> = SIZES.into_iter().filter(|size| *size <= most).collect();
    let server = DRIVERS[0].start()?;
    let queue = DRIVERS[0].open(&server).await?;
    let (backend, connect) = (Arc::clone(queue.backend()), Connect::new(&server.url())?);
    let page = Dashboard::new(Access::everyone(Role::Operator)).queue(queue.clone()).router()?;
    let path = format!("/queue?queue={QUEUE}");
    let names = ["send, p99", "claim, p99", "list of 100", "forecast", "history", "doctor", "page"];
    let mut rows = names.map(|name| (name.to_owned(), Vec::new()));
    let (mut memory, mut waiting) = (Vec::new(), 0);
    for size in &sizes {
        progress.set_message(format!("{size} messages"));
        backlog::fill(&*backend, waiting..*size).await?;
        waiting = *size;
        let (mut sends, mut claims) = (Vec::new(), Vec::new());
        for _ in 0..CALLS {
            let begin = Instant::now();
            backend.apply(At::Server, &enqueue(1)).await?;
            sends.push(begin.elapsed());
            let begin = Instant::now();
            let claimed = backend.apply(At::Server, &claim(1)).await?.reply;
            claims.push(begin.elapsed());
            backend.apply(At::Server, &ack(deliveries(&claimed, 1))).await?;
        }
        let steps = (1..=24).map(|hour| Duration::from_secs(3_600 * hour));
        let figures = [
            quantile(sends, 0.99),
            quantile(claims, 0.99),
            median(async || {
                let _ = queue.list(Listed::Scheduled).next_page().await?;
                Ok(())
            })
            .await?,
            median(async || {
                let _ = queue.forecast(steps.clone()).await?;
                Ok(())
            })
            .await?,
            median(async || {
                let _ = queue.history(Resolution::Hours).await?;
                Ok(())
            })
            .await?,
            median(async || {
                let examination = doctor::examine(&connect).await?;
                drop(doctor::examine_load(&connect, QUEUE, &examination).await);
                Ok(())
            })
            .await?,
            median(async || get(&page, &path).await).await?,
        ];
        for ((_, row), figure) in rows.iter_mut().zip(figures) {
            row.push(figure);
        }
        memory.push(server.info("memory", "used_memory").parse::<f64>()? / 1e6);
    }
    let columns: Vec<_> = sizes.iter().map(ToString::to_string).collect();
    let calls = Table {
        name: "scale-messages",
        title: "Time of a call, by the messages that wait",
        unit: "ms",
        columns: columns.clone(),
        rows: rows.into(),
        columns_are: Columns::Cases,
        wide: true,
        note: "On one queue. A send or a claim is of one message, 2,000 one after the other; the rest \
               are medians of 11. The page is that of the queue.",
    };
    let memory = Table {
        name: "scale-memory",
        title: "Memory of the server, by the messages that wait",
        unit: "MB",
        columns,
        rows: vec![("used_memory".to_owned(), memory)],
        columns_are: Columns::Cases,
        wide: true,
        note: "Payloads of 100 bytes, ids of 16.",
    };
    Ok((calls, memory))
}

async fn of_queues(counts: &[usize], progress: &ProgressBar) -> Result<Table> {
    let names = ["list of queues", "first page, once", "first page, again", "send, p99"];
    let mut rows = names.map(|name| (name.to_owned(), Vec::new()));
    for count in counts {
        progress.set_message(format!("{count} queues"));
        let server = DRIVERS[0].start()?;
        let connection = connect(&server).await?;
        let mut sends = Vec::new();
        for n in 0..*count {
            let queue = connection.queue::<Bytes>(&format!("{QUEUE}-{n}")).await?;
            let queue = queue.codec(delayline::codec::Raw);
            for _ in 0..10 {
                let begin = Instant::now();
                queue.send(&payload()).await?;
                sends.push(begin.elapsed());
            }
        }
        let discovering = Dashboard::new(Access::everyone(Role::Operator));
        let page = discovering.discover(connection.clone()).router()?;
        let begin = Instant::now();
        get(&page, "/queues").await?;
        let once = ms(begin.elapsed());
        let list = median(async || {
            let found = connection.queues().await?;
            ensure!(found.len() == *count, "{} queues were found", found.len());
            Ok(())
        });
        let figures = [
            list.await?,
            once,
            median(async || get(&page, "/queues").await).await?,
            quantile(sends, 0.99),
        ];
        for ((_, row), figure) in rows.iter_mut().zip(figures) {
            row.push(figure);
        }
    }
    Ok(Table {
        name: "scale-queues",
        title: "Time of a call, by the queues of a server",
        unit: "ms",
        columns: counts.iter().map(ToString::to_string).collect(),
        rows: rows.into(),
        columns_are: Columns::Cases,
        wide: true,
        note: "With ten messages each. The dashboard shows up to 1,000 queues, and counts those of \
               the page; for the rest it says so. Sends include a queue's first.",
    })
}

async fn of_workers(counts: &[usize], progress: &ProgressBar) -> Result<Table> {
    let names = ["idle, commands/s", "lateness of a lone message, p99, ms"];
    let mut rows = names.map(|name| (name.to_owned(), Vec::new()));
    for count in counts {
        progress.set_message(format!("{count} workers"));
        let server = DRIVERS[0].start()?;
        let queue = connect(&server).await?.queue::<Bytes>(QUEUE).await?;
        let queue = queue.codec(delayline::codec::Raw);
        let (report, mut handled) = unbounded_channel();
        let mut workers = Vec::new();
        for _ in 0..*count {
            let worker = Worker::builder(queue.clone()).concurrency(1).build()?;
            let (handle, report) = (worker.handle(), report.clone());
            let working = tokio::spawn(worker.run(move |_: Job<Bytes>| {
                // The receiver is dropped at the end of the measurement.
                let _ = report.send(Instant::now());
                async { Ok::<(), &str>(()) }
            }));
            workers.push((handle, working));
        }
        sleep(SETTLING).await;
        let (begin, sent) = (Instant::now(), Requests::of(&server).sum());
        sleep(SETTLING).await;
        let idle = (Requests::of(&server).sum() - sent) / begin.elapsed().as_secs_f64();
        let mut late = Vec::new();
        for _ in 0..200 {
            let begin = Instant::now();
            queue.send(&payload()).await?;
            let handled = handled.recv().await.context("the workers have ended")?;
            late.push(handled.saturating_duration_since(begin));
        }
        workers.iter().for_each(|(handle, _)| handle.stop(Duration::from_secs(1)));
        for (_, working) in workers {
            working.await?;
        }
        for ((_, row), figure) in rows.iter_mut().zip([idle, quantile(late, 0.99)]) {
            row.push(figure);
        }
    }
    Ok(Table {
        name: "scale-workers",
        title: "What workers cost, by their number",
        unit: "see the row",
        columns: counts.iter().map(ToString::to_string).collect(),
        rows: rows.into(),
        columns_are: Columns::Cases,
        wide: true,
        note: "All in one process and on one connection, each with one handler. From the call of \
               `send` to the start of the handler.",
    })
}

async fn connect(server: &Server) -> Result<Connection> {
    Ok(Connect::new(&server.url())?.client(DRIVERS[0].driver).connect().await?)
}

/// Gets a page of the dashboard.
async fn get(router: &Router, path: &str) -> Result<()> {
    let request = Request::get(path).header("host", "localhost").body(Body::empty())?;
    let response = router.clone().oneshot(request).await?;
    ensure!(response.status().is_success(), "{path}: {}", response.status());
    to_bytes(response.into_body(), usize::MAX).await?;
    Ok(())
}

/// Returns the median time of [`CALLS_OF_MEDIAN`] calls, in milliseconds.
async fn median(mut call: impl AsyncFnMut() -> Result<()>) -> Result<f64> {
    let mut times = Vec::with_capacity(CALLS_OF_MEDIAN);
    for _ in 0..CALLS_OF_MEDIAN {
        let begin = Instant::now();
        call().await?;
        times.push(begin.elapsed());
    }
    Ok(quantile(times, 0.5))
}

/// Returns a quantile of times, in milliseconds.
fn quantile(mut times: Vec<Duration>, quantile: f64) -> f64 {
    times.sort_unstable();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "within the length"
    )]
    let place = (number(times.len()) * quantile) as usize;
    times.get(place).or_else(|| times.last()).copied().map_or(0.0, ms)
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
