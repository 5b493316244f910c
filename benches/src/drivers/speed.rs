//! Messages per second over every transport, and what a message costs the client.

use std::time::Instant;

use allocation_counter::AllocationInfo;
use anyhow::Result;
use cpu_time::ProcessTime;
use delayline::RedisClient;
use delayline_benches::{send_in_bulk, send_singly, work};
use indicatif::ProgressBar;
use tokio::runtime::Builder;

use crate::table::{Columns, Table, median, number, spread};
use crate::throughput::rate;
use crate::transport::{DRIVERS, Transport};

/// Number of rounds in which all transports are measured in turn.
const ROUNDS: usize = 5;
const TASKS: usize = 256;

const STEPS: [&str; 3] = ["bulk", "send, 256", "work, 256"];

/// The medians of the rounds, and the ratios to those of the first transport.
pub(super) async fn measure(messages: usize, progress: &ProgressBar) -> Result<[Table; 2]> {
    let transports = transports();
    let mut rounds: Vec<Vec<[f64; 3]>> = vec![Vec::new(); transports.len()];
    for round in 1..=ROUNDS {
        for (transport, rates) in transports.iter().zip(&mut rounds) {
            progress.set_message(format!("{transport}, round {round} of {ROUNDS}"));
            rates.push(rates_of(*transport, messages).await?);
        }
    }
    let (mut medians, mut spreads) = (Vec::new(), Vec::new());
    for (transport, rates) in transports.iter().zip(&rounds) {
        let of_step = |rounds: &[[f64; 3]], step| rounds.iter().map(|round| round[step]).collect();
        let median_of = |step| median(of_step(rates, step));
        medians.push((transport.to_string(), [0, 1, 2].map(median_of).to_vec()));
        let of_ratios = |step| {
            let (own, first): (Vec<f64>, Vec<f64>) =
                (of_step(rates, step), of_step(&rounds[0], step));
            spread(own.iter().zip(&first).map(|(own, first)| own / first).collect())
        };
        spreads.push((transport.to_string(), [0, 1, 2].map(of_ratios).concat()));
    }
    let speed = Table {
        name: "driver-speed",
        title: "Messages per second",
        unit: "messages/s",
        columns: STEPS.map(str::to_owned).to_vec(),
        rows: medians,
        columns_are: Columns::Cases,
        wide: false,
        note: "Sent in bulk; sent one by one from 256 tasks; claimed and acked by a worker with \
               256 empty handlers. The median of five rounds; in each round all drivers take \
               turns.",
    };
    let columns =
        STEPS.iter().flat_map(|step| ["least", "median", "most"].map(|of| format!("{step}, {of}")));
    let ratios = Table {
        name: "driver-ratios",
        title: "The same as ratios",
        unit: "to redis-rs, RESP2, unix socket",
        columns: columns.collect(),
        rows: spreads,
        columns_are: Columns::Spreads,
        wide: false,
        note: "The least, the median and the most of all rounds. Ratios on both sides of 1.00 show \
               no difference.",
    };
    Ok([speed, ratios])
}

async fn rates_of(transport: Transport, messages: usize) -> Result<[f64; 3]> {
    let server = transport.start()?;
    let queue = transport.open(&server).await?;
    let start = Instant::now();
    send_in_bulk(&queue, messages).await?;
    let bulk = rate(messages, start);
    let start = Instant::now();
    work(&queue, TASKS).await?;
    let worked = rate(messages, start);
    let start = Instant::now();
    send_singly(&queue, messages, TASKS).await?;
    Ok([bulk, rate(messages, start), worked])
}

/// Processor time and allocations of the client per message.
pub(super) fn of_client(messages: usize, progress: &ProgressBar) -> Result<Table> {
    let mut rows = Vec::new();
    for transport in DRIVERS {
        progress.set_message(format!("the client's costs, {}", transport.driver_name()));
        let (micros, allocations, bytes) = costs_of(transport, messages)?;
        rows.push((format!("{}, us", transport.driver_name()), micros));
        rows.push((format!("{}, allocations", transport.driver_name()), allocations));
        rows.push((format!("{}, bytes allocated", transport.driver_name()), bytes));
    }
    Ok(Table {
        name: "driver-client",
        title: "Client cost per message",
        unit: "per message",
        columns: STEPS.map(str::to_owned).to_vec(),
        rows,
        columns_are: Columns::Cases,
        wide: true,
        note: "Processor time of the whole process, and allocations, with all tasks on one thread.",
    })
}

fn costs_of(transport: Transport, messages: usize) -> Result<(Vec<f64>, Vec<f64>, Vec<f64>)> {
    let server = transport.start()?;
    // Allocations are counted by thread.
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let queue = runtime.block_on(transport.open(&server))?;
    let (mut micros, mut allocations, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
    let each = |total: f64| total / number(messages);
    let mut note = |step: &mut dyn FnMut() -> Result<()>| -> Result<()> {
        let (start, mut result) = (ProcessTime::now(), Ok(()));
        let info = allocation_counter::measure(|| result = step());
        let AllocationInfo { count_total, bytes_total, .. } = info;
        micros.push(each(start.elapsed().as_secs_f64() * 1e6));
        allocations.push(each(approximate(count_total)));
        bytes.push(each(approximate(bytes_total)));
        result
    };
    note(&mut || runtime.block_on(send_in_bulk(&queue, messages)))?;
    runtime.block_on(work(&queue, TASKS))?;
    note(&mut || runtime.block_on(send_singly(&queue, messages, TASKS)))?;
    note(&mut || runtime.block_on(work(&queue, TASKS)).map(drop))?;
    Ok((micros, allocations, bytes))
}

#[expect(clippy::cast_precision_loss, reason = "of what is far below 2^52")]
pub(super) fn approximate(count: u64) -> f64 {
    count as f64
}

/// All of them, the defaults first.
fn transports() -> Vec<Transport> {
    let mut transports = Vec::new();
    for (tcp, resp3) in [(false, false), (false, true), (true, false), (true, true)] {
        for driver in [RedisClient::Redis, RedisClient::Fred] {
            transports.push(Transport { driver, resp3, tcp });
        }
    }
    transports
}
