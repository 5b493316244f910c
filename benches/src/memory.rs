//! Bytes in the server for one message.

use std::sync::Arc;

use anyhow::Result;
use bytes::Bytes;
use delayline_benches::claim;
use delayline_core::{At, MessageId, NewMessage, Op};
use delayline_test_server::Server;
use indicatif::ProgressBar;

use crate::table::{Columns, Table, number};
use crate::transport::DRIVERS;

const PAYLOADS: [usize; 4] = [0, 100, 1_000, 10_000];
const BATCH: usize = 100;
/// Of large payloads fewer messages tell as much.
const MOST_BYTES: usize = 100_000_000;

pub(crate) async fn measure(messages: usize, progress: &ProgressBar) -> Result<Table> {
    let (mut waiting, mut leased) = (Vec::new(), Vec::new());
    for payload_bytes in PAYLOADS {
        progress.set_message(format!("memory, payloads of {payload_bytes}"));
        let count = messages.min(MOST_BYTES / payload_bytes.max(1)).next_multiple_of(BATCH);
        let server = DRIVERS[0].start()?;
        let queue = Arc::clone(DRIVERS[0].open(&server).await?.backend());
        let empty = used(&server)?;
        for first in (0..count).step_by(BATCH) {
            let batch = (first..first + BATCH).map(|n| message(n, payload_bytes));
            queue.apply(At::Server, &Op::Enqueue(batch.collect::<Result<_>>()?)).await?;
        }
        waiting.push(each(used(&server)?, empty, count));
        for _ in (0..count).step_by(BATCH) {
            queue.apply(At::Server, &claim(BATCH)).await?;
        }
        leased.push(each(used(&server)?, empty, count));
    }
    Ok(Table {
        name: "memory",
        title: "Server memory per message",
        unit: "bytes, payload included",
        columns_are: Columns::Cases,
        wide: true,
        note: "With ids of 20 bytes and without headers. The hash tables of the server double in \
               size from time to time, so they account for 16 to 32 bytes of this.",
        columns: PAYLOADS.map(|bytes| format!("{bytes} bytes")).to_vec(),
        rows: vec![("waiting".to_owned(), waiting), ("leased".to_owned(), leased)],
    })
}

fn message(number: usize, payload_bytes: usize) -> Result<NewMessage> {
    let id = MessageId::new(format!("message-{number:012}"))?;
    Ok(NewMessage::new(id, Bytes::from(vec![b'p'; payload_bytes])))
}

fn used(server: &Server) -> Result<f64> {
    Ok(server.info("memory", "used_memory").parse()?)
}

fn each(now: f64, empty: f64, count: usize) -> f64 {
    (now - empty) / number(count)
}
