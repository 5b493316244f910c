//! Much that becomes due, or whose lease ends, in the same moment: how long a script blocks the
//! server then.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use delayline::backend::QueueBackend;
use delayline_benches::{PAYLOAD_BYTES, ack, claim, deliveries};
use delayline_core::{At, Claimed, MessageId, Millis, NewMessage, Op, Reply, Schedule, Timestamp};
use delayline_test_server::{Reply as Raw, Server};
use indicatif::ProgressBar;

use crate::table::{Columns, Table};
use crate::transport::DRIVERS;

const BATCH: usize = 1_000;
const LEASED: usize = 100_000;

pub(crate) async fn measure(messages: usize, progress: &ProgressBar) -> Result<Table> {
    let mut rows = Vec::new();
    for transport in DRIVERS {
        progress.set_message(format!("bursts, {}", transport.driver_name()));
        let server = transport.start()?;
        let queue = Arc::clone(transport.open(&server).await?.backend());
        let due = due_at_once(&server, &*queue, messages.next_multiple_of(BATCH)).await?;
        let ended = leases_end_at_once(&server, &*queue).await?;
        rows.push((transport.driver_name().to_owned(), [due, ended].concat()));
    }
    let columns = ["enqueue", "claim", "ack", "claim after leases expired"];
    Ok(Table {
        name: "bursts",
        title: "The longest script, batches of 1,000",
        unit: "ms",
        columns: columns.map(str::to_owned).to_vec(),
        rows,
        columns_are: Columns::Cases,
        wide: false,
        note: "A million messages (by default) fall due at the same moment, and are claimed and \
               acked in order; then 100,000 leases expire at the same moment, and are reclaimed. \
               The longest time that one script kept the server busy, from its slow log. A wrong \
               order or a lost message fails the run.",
    })
}

/// The longest enqueue, claim and ack.
async fn due_at_once(
    server: &Server,
    queue: &dyn QueueBackend,
    messages: usize,
) -> Result<Vec<f64>> {
    let watch = SlowLog::watch(server);
    // Time enough to enqueue all of them.
    let seconds = 5 + u64::try_from(messages)? / 50_000;
    let (now, _) = stats(queue).await?;
    let due = now.after(Millis::saturating(seconds * 1_000));
    for first in (0..messages).step_by(BATCH) {
        let batch = (first..first + BATCH).map(|n| message(n, due)).collect::<Result<_>>()?;
        apply(queue, Op::Enqueue(batch)).await?;
    }
    let enqueue = watch.longest()?;
    let (now, ready) = stats(queue).await?;
    ensure!(now < due && ready == 0, "the machine is too slow for this: they were due before");
    wait_until(queue, due).await?;

    let mut claims = Vec::new();
    for first in (0..messages).step_by(BATCH) {
        let reply = apply(queue, claim(BATCH)).await?;
        let ids = deliveries(&reply, BATCH).iter().map(|delivery| &delivery.message.info.id);
        for (n, id) in (first..).zip(ids) {
            ensure!(*id == name(n)?, "{id} instead of message {n}");
        }
        claims.push(reply);
    }
    let claim = watch.longest()?;
    for reply in claims {
        apply(queue, ack(deliveries(&reply, BATCH))).await?;
    }
    Ok(vec![enqueue, claim, watch.longest()?])
}

/// The longest claim while expired leases are reclaimed.
async fn leases_end_at_once(server: &Server, queue: &dyn QueueBackend) -> Result<Vec<f64>> {
    let (now, _) = stats(queue).await?;
    for first in (0..LEASED).step_by(BATCH) {
        let batch = (first..first + BATCH).map(|n| message(LEASED * 100 + n, now));
        apply(queue, Op::Enqueue(batch.collect::<Result<_>>()?)).await?;
    }
    let lease = Millis::saturating(10_000);
    for _ in (0..LEASED).step_by(BATCH) {
        let Op::Claim(mut claim) = claim(BATCH) else { wrong_answer()? };
        claim.lease = lease;
        apply(queue, Op::Claim(claim)).await?;
    }
    let (now, _) = stats(queue).await?;
    wait_until(queue, now.after(lease)).await?;
    let watch = SlowLog::watch(server);
    let mut taken = 0;
    while taken < LEASED {
        let Reply::Claim(Claimed { deliveries, .. }) = apply(queue, claim(BATCH)).await? else {
            wrong_answer()?
        };
        ensure!(!deliveries.is_empty(), "{taken} of {LEASED} leases were reclaimed");
        taken += deliveries.len();
        apply(queue, ack(&deliveries)).await?;
    }
    Ok(vec![watch.longest()?])
}

fn wrong_answer<T>() -> Result<T> {
    Err(anyhow::anyhow!("an answer to another operation"))
}

async fn apply(queue: &dyn QueueBackend, op: Op) -> Result<Reply> {
    Ok(queue.apply(At::Server, &op).await?.reply)
}

/// The server's time, and how many messages are ready.
async fn stats(queue: &dyn QueueBackend) -> Result<(Timestamp, u64)> {
    let applied = queue.apply(At::Server, &Op::Stats).await?;
    let Reply::Stats(stats) = applied.reply else { wrong_answer()? };
    Ok((applied.at, stats.ready))
}

async fn wait_until(queue: &dyn QueueBackend, instant: Timestamp) -> Result<()> {
    loop {
        let (now, _) = stats(queue).await?;
        if now >= instant {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(instant.as_ms() - now.as_ms())).await;
    }
}

fn name(number: usize) -> Result<MessageId> {
    Ok(MessageId::new(format!("message-{number:012}"))?)
}

fn message(number: usize, due: Timestamp) -> Result<NewMessage> {
    let payload = Bytes::from_static(&[b'p'; PAYLOAD_BYTES]);
    let mut message = NewMessage::new(name(number)?, payload);
    message.schedule = Schedule::At(due);
    Ok(message)
}

/// The server's log of what took long.
struct SlowLog<'a>(&'a Server);

impl<'a> SlowLog<'a> {
    /// Begins with an empty log of all that takes longer than 0.1 ms.
    fn watch(server: &'a Server) -> Self {
        server.command(&["CONFIG", "SET", "slowlog-log-slower-than", "100"]);
        server.command(&["CONFIG", "SET", "slowlog-max-len", "1000000"]);
        server.command(&["SLOWLOG", "RESET"]);
        Self(server)
    }

    /// The longest command since the last call, in ms.
    fn longest(&self) -> Result<f64> {
        let Raw::Array(entries) = self.0.command(&["SLOWLOG", "GET", "-1"]) else {
            anyhow::bail!("no slow log");
        };
        self.0.command(&["SLOWLOG", "RESET"]);
        let micros = entries.iter().filter_map(|entry| match entry {
            Raw::Array(fields) => match fields.as_slice() {
                [_, _, Raw::Int(micros), Raw::Array(command), ..] if is_script(command) => {
                    Some(*micros)
                }
                _ => None,
            },
            _ => None,
        });
        let longest = micros.max().context("nothing took longer than 0.1 ms")?;
        Ok(f64::from(u32::try_from(longest)?) / 1_000.0)
    }
}

fn is_script(command: &[Raw]) -> bool {
    matches!(command.first(), Some(Raw::BulkString(name)) if name.starts_with(b"EVAL"))
}
