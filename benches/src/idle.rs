//! What a process without work sends.

use std::time::Duration;

use anyhow::Result;
use delayline::{Bytes, Job, Worker};
use delayline_benches::Requests;
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
        let worker = Worker::builder(queue).concurrency(256).build()?;
        let handle = worker.handle();
        let working = tokio::spawn(worker.run(|_: Job<Bytes>| async { Ok::<(), &str>(()) }));
        sleep(SETTLING).await;
        let (start, before) = (Instant::now(), Requests::of(&server).sum());
        sleep(time).await;
        let sent = Requests::of(&server).sum() - before;
        rows.push((transport.driver_name().to_owned(), vec![sent / start.elapsed().as_secs_f64()]));
        handle.stop(Duration::from_secs(1));
        working.await?;
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
