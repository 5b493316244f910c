//! What a call meets when the server, or the way to it, fails.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use delayline::backend::QueueBackend;
use delayline_benches::{enqueue, payload};
use delayline_core::{At, Error, Op};
use delayline_test_server::proxy::{Fault, Proxy};
use indicatif::ProgressBar;
use tokio::time::sleep;

use super::sheet::Sheet;
use crate::transport::{DRIVERS, Transport};

pub(super) async fn measure(progress: &ProgressBar) -> Result<Sheet> {
    let mut columns = vec!["fault".to_owned()];
    let mut rows: Vec<Vec<String>> = SCENARIOS.map(|name| vec![name.to_owned()]).to_vec();
    for transport in DRIVERS {
        progress.set_message(format!("faults, {}", transport.driver_name()));
        columns.push(transport.driver_name().to_owned());
        for (row, outcome) in rows.iter_mut().zip(outcomes(transport).await?) {
            row.push(outcome);
        }
    }
    Ok(Sheet {
        title: "Faults",
        note: "The result of one call, its error class, and how long it took. These are calls on \
               the backend, which never sends anything twice, with default timeouts. `Queue` \
               retries what is safe to retry, as the last row shows.",
        columns,
        rows,
    })
}

const SCENARIOS: [&str; 7] = [
    "the reply is lost: the connection ends after the execution",
    "the request is lost: the connection ends before it",
    "the peer goes silent",
    "an idle connection was closed",
    "there is no server",
    "the server is back: calls until one works",
    "`Queue::send`, and the reply is lost",
];

async fn outcomes(transport: Transport) -> Result<[String; SCENARIOS.len()]> {
    let server = transport.start()?;
    let proxy = Proxy::start_unix(&server).await?;
    let queue = transport.open_at(proxy.url()).await?;
    let backend = Arc::clone(queue.backend());
    calls_until_one_works(&*backend).await?;
    proxy.once(Fault::CutAfterExecution, "EVALSHA");
    let reply_lost = outcome(&*backend).await;
    calls_until_one_works(&*backend).await?;
    proxy.once(Fault::CutBeforeRequest, "EVALSHA");
    let request_lost = outcome(&*backend).await;
    calls_until_one_works(&*backend).await?;
    proxy.once(Fault::Blackhole, "EVALSHA");
    let silent = outcome(&*backend).await;
    calls_until_one_works(&*backend).await?;
    proxy.cut_all();
    // The system notifies the client with a delay.
    sleep(Duration::from_millis(100)).await;
    let closed = outcome(&*backend).await;
    calls_until_one_works(&*backend).await?;
    proxy.once(Fault::CutAfterExecution, "EVALSHA");
    let start = Instant::now();
    queue.send(&payload()).await?;
    let sent = format!("sent once, {}", after(start));

    let queue = transport.open(&server).await?;
    let backend = Arc::clone(queue.backend());
    calls_until_one_works(&*backend).await?;
    server.kill();
    outcome(&*backend).await;
    let down = outcome(&*backend).await;
    server.restart();
    let start = Instant::now();
    let calls = calls_until_one_works(&*backend).await?;
    let back = format!("{calls} calls, one per ms, {}", after(start));
    Ok([reply_lost, request_lost, silent, closed, down, back, sent])
}

/// What an operation answers, and after how long.
async fn outcome(queue: &dyn QueueBackend) -> String {
    let start = Instant::now();
    match queue.apply(At::Server, &enqueue(1)).await {
        Ok(_) => format!("done, {}", after(start)),
        Err(error) => format!("{}, {}", named(&error), after(start)),
    }
}

/// Calls every millisecond. Returns the number of calls.
pub(super) async fn calls_until_one_works(queue: &dyn QueueBackend) -> Result<u32> {
    for calls in 1..10_000 {
        if queue.apply(At::Server, &Op::Stats).await.is_ok() {
            return Ok(calls);
        }
        sleep(Duration::from_millis(1)).await;
    }
    bail!("it does not come back")
}

fn named(error: &Error) -> String {
    format!("`{:?}` ({:?})", error.kind(), error.class())
}

fn after(start: Instant) -> String {
    let ms = start.elapsed().as_secs_f64() * 1e3;
    if ms < 1_000.0 { format!("{ms:.1} ms") } else { format!("{:.1} s", ms / 1e3) }
}
