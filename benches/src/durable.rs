//! Messages per second with and without the confirmation of a replica.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use delayline::Durability;
use delayline_benches::send_singly;
use delayline_test_server::Server;
use indicatif::ProgressBar;
use tokio::time::sleep;

use crate::table::{Columns, Table, median};
use crate::throughput::rate;
use crate::transport::{DRIVERS, Transport};

/// Number of tasks that send at once, and the share of all messages that is enough then.
const CONCURRENCIES: [(usize, usize); 3] = [(1, 20), (32, 2), (256, 1)];
/// Number of rounds in which both are measured in turn.
const ROUNDS: usize = 5;
const DURABILITIES: [Durability; 2] = [Durability::None, Durability::Replicas(1)];

pub(crate) async fn measure(messages: usize, progress: &ProgressBar) -> Result<Table> {
    let mut rows = Vec::new();
    for transport in DRIVERS {
        progress.set_message(format!("durable sends over {transport}"));
        let rates = rates_over(Transport { tcp: true, ..transport }, messages).await?;
        for (durability, rates) in DURABILITIES.iter().zip(&rates) {
            rows.push((format!("{}, {durability}", transport.driver_name()), rates.clone()));
        }
        let [none, replicas] = &rates;
        let ratios = replicas.iter().zip(none).map(|(replicas, none)| replicas / none).collect();
        rows.push((format!("{}, ratio", transport.driver_name()), ratios));
    }
    Ok(Table {
        name: "durable",
        title: "Messages a second that a replica confirms",
        unit: "messages/s",
        columns: CONCURRENCIES.map(|(tasks, _)| format!("send, {tasks}")).to_vec(),
        rows,
        columns_are: Columns::Cases,
        wide: true,
        note: "Sent one by one from 1, 32 and 256 tasks at once to a server with one replica, over TCP, with \
               and without its confirmation: the medians of five rounds in turn, and their ratio. Client, \
               server and replica share the machine.",
    })
}

/// The rates of each durability and concurrency.
async fn rates_over(transport: Transport, messages: usize) -> Result<[Vec<f64>; 2]> {
    let server = transport.start()?;
    let of_server = format!("127.0.0.1 {}", server.port());
    let replica = Server::builder().tcp().config("replicaof", &of_server).try_start()?;
    let begin = Instant::now();
    while replica.info("replication", "master_link_status") != "up" {
        ensure!(begin.elapsed() < Duration::from_secs(60), "the replica does not follow");
        sleep(Duration::from_millis(20)).await;
    }
    let queue = transport.open(&server).await?;
    let queues = DURABILITIES.map(|durability| queue.durability(durability));
    let mut rates = [Vec::new(), Vec::new()];
    for (tasks, part) in CONCURRENCIES {
        let mut rounds = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for (queue, rounds) in queues.iter().zip(&mut rounds) {
                let start = Instant::now();
                send_singly(queue, messages / part, tasks).await?;
                rounds.push(rate(messages / part, start));
            }
            server.command(&["FLUSHALL"]);
        }
        for (rates, rounds) in rates.iter_mut().zip(rounds) {
            rates.push(median(rounds));
        }
    }
    Ok(rates)
}
