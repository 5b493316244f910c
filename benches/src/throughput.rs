//! Messages per second, in and out.

use std::time::Instant;

use anyhow::{Result, ensure};
use delayline_benches::{send_in_bulk, send_singly, work};
use indicatif::ProgressBar;

use crate::table::{Columns, Table, number};
use crate::transport::{DRIVERS, Transport};

/// Number of tasks or handlers at once, and the share of all messages that is enough then.
const CONCURRENCIES: [(usize, usize); 3] = [(1, 20), (32, 2), (256, 1)];

pub(crate) async fn measure(messages: usize, progress: &ProgressBar) -> Result<Table> {
    let mut rows = Vec::new();
    for transport in DRIVERS {
        progress.set_message(format!("throughput of {transport}"));
        rows.push((transport.driver_name().to_owned(), rates_over(transport, messages).await?));
    }
    let of = |verb: &str| CONCURRENCIES.map(|(tasks, _)| format!("{verb}, {tasks}"));
    let columns = [vec!["bulk".to_owned()], of("send").to_vec(), of("work").to_vec()];
    Ok(Table {
        name: "throughput",
        title: "Messages per second",
        unit: "messages/s",
        columns: columns.concat(),
        rows,
        columns_are: Columns::Cases,
        wide: true,
        note: "Sent in bulk; sent one by one from 1, 32 and 256 concurrent tasks (the library \
               merges concurrent sends); claimed and acked by a worker with 1, 32 and 256 empty \
               handlers. Client and server share the machine.",
    })
}

async fn rates_over(transport: Transport, messages: usize) -> Result<Vec<f64>> {
    let server = transport.start()?;
    let queue = transport.open(&server).await?;
    // Both sides get warm.
    send_in_bulk(&queue, messages / 10).await?;
    work(&queue, 256).await?;
    let (mut rates, mut worked) = (Vec::new(), Vec::new());
    let start = Instant::now();
    send_in_bulk(&queue, messages).await?;
    rates.push(rate(messages, start));
    work(&queue, 256).await?;
    for (tasks, part) in CONCURRENCIES {
        let start = Instant::now();
        send_singly(&queue, messages / part, tasks).await?;
        rates.push(rate(messages / part, start));
        let start = Instant::now();
        let acked = work(&queue, tasks).await?;
        worked.push(rate(messages / part, start));
        ensure!(acked == u64::try_from(messages / part)?, "{acked} messages were acked");
    }
    Ok([rates, worked].concat())
}

pub(crate) fn rate(messages: usize, start: Instant) -> f64 {
    number(messages) / start.elapsed().as_secs_f64()
}
