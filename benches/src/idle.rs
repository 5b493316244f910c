//! What a process without work sends.

use std::time::Duration;

use anyhow::Result;
use delayline::codec::Raw;
use delayline::{Bytes, Job, Queue, Worker};
use delayline_benches::Requests;
use delayline_test_server::Server;
use indicatif::ProgressBar;
use tokio::time::{Instant, sleep};

use crate::table::{Columns, Table};
use crate::transport::DRIVERS;

const SETTLING: Duration = Duration::from_secs(5);

pub(crate) async fn measure(time: Duration, progress: &ProgressBar) -> Result<Table> {
    let mut rows = Vec::new();
    for transport in DRIVERS {
        progress.set_message(format!("an idle worker, {}", transport.driver_name()));
        let server = transport.start()?;
        let queue = transport.open(&server).await?;
        let commands = commands_per_second(queue, &[server], time).await?;
        rows.push((transport.driver_name().to_owned(), vec![commands]));
    }
    Ok(Table {
        name: "idle",
        title: "Commands per second of an idle worker",
        unit: "commands/s",
        columns: vec!["one worker".to_owned()],
        rows,
        columns_are: Columns::Cases,
        wide: false,
        note: "A worker on an empty queue: claims of the safety poll, and waits for hints.",
    })
}

/// What a worker without work sends to all servers.
pub(crate) async fn commands_per_second(
    queue: Queue<Bytes, Raw>,
    servers: &[Server],
    time: Duration,
) -> Result<f64> {
    let worker = Worker::builder(queue).concurrency(256).build()?;
    let handle = worker.handle();
    let working = tokio::spawn(worker.run(|_: Job<Bytes>| async { Ok::<(), &str>(()) }));
    let sent = || servers.iter().map(|server| Requests::of(server).sum()).sum::<f64>();
    sleep(SETTLING).await;
    let (start, before) = (Instant::now(), sent());
    sleep(time).await;
    let commands = (sent() - before) / start.elapsed().as_secs_f64();
    handle.stop(Duration::from_secs(1));
    working.await?;
    Ok(commands)
}
