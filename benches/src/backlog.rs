//! Costs of a message while many others wait.

use std::ops::Range;
use std::sync::Arc;

use anyhow::Result;
use bytes::Bytes;
use delayline::backend::QueueBackend;
use delayline_benches::{PAYLOAD_BYTES, ack, claim, cpu_time, deliveries, enqueue};
use delayline_core::{At, MessageId, Millis, NewMessage, Op, Schedule};
use indicatif::ProgressBar;

use crate::table::{Columns, Table, number};
use crate::transport::DRIVERS;

const BATCH: usize = 100;
const LOAD_BATCH: usize = 1_000;
pub(crate) const SIZES: [usize; 5] = [1_000, 10_000, 100_000, 1_000_000, 10_000_000];

/// Measures the costs with backlogs of up to `most` messages.
pub(crate) async fn measure(messages: usize, most: usize, progress: &ProgressBar) -> Result<Table> {
    let sizes: Vec<_> = SIZES.into_iter().filter(|size| *size <= most).collect();
    let (server, mut costs, mut waiting) = (DRIVERS[0].start()?, Vec::new(), 0);
    let queue = Arc::clone(DRIVERS[0].open(&server).await?.backend());
    for size in &sizes {
        progress.set_message(format!("backlog of {size}"));
        fill(&*queue, waiting..*size).await?;
        waiting = *size;
        let rounds = messages.div_ceil(BATCH);
        let before = cpu_time(&server);
        for _ in 0..rounds {
            queue.apply(At::Server, &enqueue(BATCH)).await?;
            let claimed = queue.apply(At::Server, &claim(BATCH)).await?;
            queue.apply(At::Server, &ack(deliveries(&claimed.reply, BATCH))).await?;
        }
        let spent = cpu_time(&server).saturating_sub(before).as_secs_f64();
        costs.push(spent * 1e6 / number(rounds * BATCH));
    }
    Ok(Table {
        name: "backlog",
        title: "Server processor time per message, by backlog",
        unit: "us, enqueue + claim + ack, batches of 100",
        columns: sizes.iter().map(ToString::to_string).collect(),
        rows: vec![("redis-rs".to_owned(), costs)],
        columns_are: Columns::Cases,
        wide: false,
        note: "While the given number of other messages wait, due over the next month.",
    })
}

/// Sends messages with these numbers, which are not due today.
pub(crate) async fn fill(queue: &dyn QueueBackend, numbers: Range<usize>) -> Result<()> {
    for first in numbers.clone().step_by(LOAD_BATCH) {
        let batch = (first..numbers.end.min(first + LOAD_BATCH)).map(far_message);
        queue.apply(At::Server, &Op::Enqueue(batch.collect::<Result<_>>()?)).await?;
    }
    Ok(())
}

/// Returns a message that is due after a day, and within a month.
fn far_message(number: usize) -> Result<NewMessage> {
    let id = MessageId::new(format!("far-{number:012}"))?;
    let mut message = NewMessage::new(id, Bytes::from_static(&[b'p'; PAYLOAD_BYTES]));
    let day = 86_400_000;
    message.schedule = Schedule::In(Millis::saturating(fastrand::u64(day..30 * day)));
    Ok(message)
}
