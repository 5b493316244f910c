//! Processor time of the server for one message: enqueued, claimed and acked.

use std::future::Future;
use std::sync::Arc;

use anyhow::Result;
use delayline_benches::{ack, claim, cpu_time, deliveries, enqueue};
use delayline_core::{Applied, At, Backend, Error, Op, QueueName};
use delayline_fred::FredTransport;
use delayline_redis::RedisTransport;
use delayline_redis_protocol::{ConnectOptions, ScriptBackend, Transport};
use delayline_test_server::Server;

use crate::floor::Floor;
use crate::table::Table;

const BATCHES: [usize; 4] = [1, 10, 100, 1000];

/// Measures both drivers and the floor, batch by batch, on one server each time.
pub(crate) async fn measure(messages: usize) -> Result<Table> {
    let (mut redis, mut fred, mut floor) = (Vec::new(), Vec::new(), Vec::new());
    for batch in BATCHES {
        // Small batches take long, and every round of them counts.
        let rounds = (messages / batch).clamp(100, 20_000);
        let connect = async |options: ConnectOptions| RedisTransport::connect(&options).await;
        redis.push(of_driver(batch, rounds, connect).await?);
        let connect = async |options: ConnectOptions| FredTransport::connect(&options).await;
        fred.push(of_driver(batch, rounds, connect).await?);
        floor.push(of_floor(batch, rounds)?);
    }
    let ratio = redis.iter().zip(&floor).map(|(ours, floor)| ours / floor).collect();
    Ok(Table {
        title: "Processor time of the server per message, enqueue + claim + ack",
        unit: "us; the ratio is redis-rs to the plain commands",
        columns: BATCHES.map(|batch| format!("batch {batch}")).to_vec(),
        rows: vec![
            ("redis-rs".to_owned(), redis),
            ("fred".to_owned(), fred),
            ("plain commands".to_owned(), floor),
            ("ratio".to_owned(), ratio),
        ],
    })
}

async fn of_driver<T, F>(
    batch: usize,
    rounds: usize,
    connect: impl Fn(ConnectOptions) -> F,
) -> Result<f64>
where
    T: Transport,
    F: Future<Output = Result<T, Error>>,
{
    let server = Server::builder().try_start()?;
    let transport = Arc::new(connect(server.url().parse()?).await?);
    let queue = ScriptBackend::open(transport, QueueName::new("bench")?, false).await?;
    let round = async || {
        apply(&queue, &enqueue(batch)).await?;
        let claimed = apply(&queue, &claim(batch)).await?;
        apply(&queue, &ack(deliveries(&claimed.reply, batch))).await
    };
    for _ in 0..rounds / 10 {
        round().await?;
    }
    let before = cpu_time(&server);
    for _ in 0..rounds {
        round().await?;
    }
    Ok(micros(before, &server, batch * rounds))
}

fn of_floor(batch: usize, rounds: usize) -> Result<f64> {
    let server = Server::builder().try_start()?;
    let mut floor = Floor::connect(&server)?;
    for _ in 0..rounds / 10 {
        floor.round(batch)?;
    }
    let before = cpu_time(&server);
    for _ in 0..rounds {
        floor.round(batch)?;
    }
    Ok(micros(before, &server, batch * rounds))
}

async fn apply(queue: &impl Backend, op: &Op) -> Result<Applied, Error> {
    queue.apply(At::Server, op).await
}

fn micros(before: std::time::Duration, server: &Server, messages: usize) -> f64 {
    let spent = cpu_time(server).saturating_sub(before);
    spent.as_secs_f64() * 1e6 / f64::from(u32::try_from(messages).unwrap_or(u32::MAX))
}
