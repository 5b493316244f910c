//! Processor time of the server for one message: enqueued, claimed and acked.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use delayline::backend::QueueBackend;
use delayline_benches::{ack, claim, cpu_time, deliveries, enqueue};
use delayline_core::{Applied, At, Error, Op};
use delayline_test_server::Server;
use indicatif::ProgressBar;

use crate::floor::{BareScripts, Floor, PlainCommands};
use crate::table::{Columns, Table, number};
use crate::transport::{DRIVERS, Transport};

const BATCHES: [usize; 4] = [1, 10, 100, 1000];
const PHASES: [&str; 3] = ["enqueue", "claim", "ack"];

/// Microseconds of enqueue, claim and ack.
type Phases = [f64; PHASES.len()];

/// Measures both drivers and both floors, batch by batch, each time on a new server.
pub(crate) async fn measure(messages: usize, progress: &ProgressBar) -> Result<Vec<Table>> {
    let (mut redis, mut fred) = (Vec::new(), Vec::new());
    let (mut scripts, mut commands) = (Vec::new(), Vec::new());
    for batch in BATCHES {
        progress.set_message(format!("server time, batches of {batch}"));
        // Small batches take long, and every round of them counts.
        let rounds = (messages / batch).clamp(100, 20_000);
        redis.push(rates_over(DRIVERS[0], batch, rounds).await?);
        fred.push(rates_over(DRIVERS[1], batch, rounds).await?);
        scripts.push(of_floor::<BareScripts>(batch, rounds)?);
        commands.push(of_floor::<PlainCommands>(batch, rounds)?);
    }
    let sums = |figures: &[Phases]| figures.iter().map(|phases| phases.iter().sum()).collect();
    let sums: [Vec<f64>; 4] = [sums(&redis), sums(&fred), sums(&scripts), sums(&commands)];
    let ratio = |one: &[f64], other: &[f64]| one.iter().zip(other).map(|(a, b)| a / b).collect();
    let ratios = vec![
        ("redis-rs to plain commands".to_owned(), ratio(&sums[0], &sums[3])),
        ("redis-rs to bare scripts".to_owned(), ratio(&sums[0], &sums[2])),
        ("bare scripts to plain commands".to_owned(), ratio(&sums[2], &sums[3])),
    ];
    let mut rows = Vec::new();
    for (name, phases, sums) in [
        ("redis-rs", redis, &sums[0]),
        ("fred", fred, &sums[1]),
        ("bare scripts", scripts, &sums[2]),
        ("plain commands", commands, &sums[3]),
    ] {
        rows.push((name.to_owned(), sums.clone()));
        for (n, phase) in PHASES.iter().enumerate() {
            let figures = phases.iter().map(|phases| phases[n]).collect();
            rows.push((format!("{name}, {phase}"), figures));
        }
    }
    let columns = BATCHES.map(|batch| format!("batch {batch}")).to_vec();
    let ratio = Table {
        name: "cost-ratio",
        title: "Server processor time, compared",
        unit: "ratio",
        columns: columns.clone(),
        rows: ratios,
        columns_are: Columns::Cases,
        wide: false,
        note: "Relative to bare scripts: the cost of fencing, checks before the first write, \
               priorities, dead letters, remembering finished messages, and hints. Bare scripts \
               relative to plain commands: the cost of atomicity and the server's clock in Lua, \
               for any queue.",
    };
    let cost = Table {
        name: "cost",
        title: "Server processor time per message",
        unit: "us",
        columns_are: Columns::Cases,
        wide: true,
        note: "Enqueue, claim and ack together, then separately. Bare scripts change the same \
               structures without checks or fencing; plain commands do so without scripts, and \
               thus not atomically. Neither is usable as a queue. [Which \
               driver?](../drivers/which-driver.md) has the client's cost.",
        columns,
        rows,
    };
    Ok(vec![cost, ratio])
}

async fn rates_over(transport: Transport, batch: usize, rounds: usize) -> Result<Phases> {
    let server = transport.start()?;
    let queue = Arc::clone(transport.open(&server).await?.backend());
    for _ in 0..rounds / 10 {
        apply(&*queue, &enqueue(batch)).await?;
        let claimed = apply(&*queue, &claim(batch)).await?;
        apply(&*queue, &ack(deliveries(&claimed.reply, batch))).await?;
    }
    let mut clock = Clock::start(&server, batch * rounds);
    for _ in 0..rounds {
        apply(&*queue, &enqueue(batch)).await?;
    }
    let enqueued = clock.lap();
    let mut claims = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        claims.push(apply(&*queue, &claim(batch)).await?.reply);
    }
    let claimed = clock.lap();
    for reply in &claims {
        apply(&*queue, &ack(deliveries(reply, batch))).await?;
    }
    Ok([enqueued, claimed, clock.lap()])
}

fn of_floor<F: Floor>(batch: usize, rounds: usize) -> Result<Phases> {
    let server = Server::builder().try_start()?;
    let mut floor = F::connect(&server)?;
    for _ in 0..rounds / 10 {
        floor.enqueue(batch)?;
        let claimed = floor.claim(batch)?;
        floor.ack(&claimed)?;
    }
    let mut clock = Clock::start(&server, batch * rounds);
    for _ in 0..rounds {
        floor.enqueue(batch)?;
    }
    let enqueued = clock.lap();
    let claims: Vec<_> = (0..rounds).map(|_| floor.claim(batch)).collect::<Result<_>>()?;
    let claimed = clock.lap();
    for claimed in &claims {
        floor.ack(claimed)?;
    }
    Ok([enqueued, claimed, clock.lap()])
}

async fn apply(queue: &dyn QueueBackend, op: &Op) -> Result<Applied, Error> {
    queue.apply(At::Server, op).await
}

/// Shares out the server's processor time.
struct Clock<'a> {
    server: &'a Server,
    messages: f64,
    seen: Duration,
}

impl<'a> Clock<'a> {
    fn start(server: &'a Server, messages: usize) -> Self {
        Self { server, messages: number(messages), seen: cpu_time(server) }
    }

    /// Microseconds per message since the last call.
    fn lap(&mut self) -> f64 {
        let before = std::mem::replace(&mut self.seen, cpu_time(self.server));
        self.seen.saturating_sub(before).as_secs_f64() * 1e6 / self.messages
    }
}
