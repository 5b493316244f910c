//! Eight producers and four workers on one queue.
//!
//! Producers and workers need no coordination: each message is with one live worker at a time. One
//! of the workers is stopped midway, as in a rolling update, and the others take over. In the end
//! every message was acked exactly once.
//!
//! Here all of them are tasks of one process; with a Redis server they can be processes on many
//! machines.
//!
//! ```sh
//! cargo run -p delayline-examples --example many_producers_and_consumers
//! cargo run -p delayline-examples --example many_producers_and_consumers -- redis://127.0.0.1:6379
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use delayline::message::Status;
use delayline::{Error, Found, Job, MessageId, Queue, Worker};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

const PRODUCERS: u64 = 8;
const MESSAGES_EACH: u64 = 50;
const MESSAGES: u64 = PRODUCERS * MESSAGES_EACH;
const WORKERS: usize = 4;

#[derive(Serialize, Deserialize)]
struct Square {
    of: u64,
}

/// Stands in for the table that the handlers write to.
struct Results {
    /// The result of each message, and the epoch it was written with.
    rows: Mutex<BTreeMap<MessageId, (u64, u64)>>,
    written: watch::Sender<u64>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let queue: Queue<Square> = delayline::connect(&url).await?.queue("example/many").await?;
    let results = Results { rows: Mutex::default(), written: watch::Sender::new(0) };
    let results = Arc::new(results);
    let acked_before = queue.stats().await?.totals.acked;

    let mut producers = JoinSet::new();
    for producer in 0..PRODUCERS {
        producers.spawn(produce(queue.clone(), producer));
    }
    let mut workers = Vec::new();
    for number in 0..WORKERS {
        let name = format!("worker-{number}");
        let worker = Worker::builder(queue.clone()).concurrency(5).consumer(name).build()?;
        let handle = worker.handle();
        let table = Arc::clone(&results);
        let running = tokio::spawn(worker.run(move |job| square(job, Arc::clone(&table))));
        workers.push((handle, running));
    }

    let mut written = results.written.subscribe();
    timeout(Duration::from_secs(60), written.wait_for(|&count| count >= MESSAGES / 4)).await??;
    workers[0].0.stop(Duration::from_secs(20));
    println!("stopping worker 0");

    let mut ids = Vec::new();
    while let Some(sent) = producers.join_next().await {
        ids.extend(sent??);
    }
    timeout(Duration::from_secs(60), written.wait_for(|&count| count >= MESSAGES)).await??;
    for (handle, _) in &workers {
        handle.stop(Duration::from_secs(20));
    }
    let mut acked = 0;
    for (number, (_, running)) in workers.into_iter().enumerate() {
        let summary = running.await?;
        println!("worker {number} has handled {} messages", summary.acked);
        assert_eq!((summary.failed, summary.lost, summary.unsettled), (0, 0, 0));
        acked += summary.acked;
    }

    // As many acks as messages, and each message acked: so each has one ack.
    assert_eq!(acked, MESSAGES);
    assert_eq!(queue.stats().await?.totals.acked - acked_before, MESSAGES);
    for id in &ids {
        let found = queue.get(id.clone()).await?;
        assert!(matches!(found, Found::Finished(Status::Acked)), "{id}");
    }
    assert_eq!(lock(&results.rows).len(), ids.len());
    assert!(queue.check().await?.findings.is_empty());
    println!("done: {acked} messages, each acked once");
    Ok(())
}

/// Sends messages that fall due over the next 300 ms, and returns their ids.
async fn produce(queue: Queue<Square>, producer: u64) -> Result<Vec<MessageId>, Error> {
    let mut ids = Vec::new();
    for number in 0..MESSAGES_EACH {
        let delay = Duration::from_millis(number * 7 % 300);
        let message = Square { of: producer * MESSAGES_EACH + number };
        ids.push(queue.send_in(&message, delay).await?);
    }
    println!("producer {producer} has sent {} messages", ids.len());
    Ok(ids)
}

async fn square(job: Job<Square>, results: Arc<Results>) -> Result<(), &'static str> {
    sleep(Duration::from_millis(5)).await;
    results.write(job.id(), job.epoch(), job.payload().of.pow(2));
    Ok(())
}

impl Results {
    /// Writes a result, unless a later delivery has already written one. So a worker that was cut
    /// off for longer than its lease is harmless: the worker that has the message by then has a
    /// higher epoch. In SQL: `... WHERE epoch < $epoch`.
    fn write(&self, id: &MessageId, epoch: u64, result: u64) {
        let mut rows = lock(&self.rows);
        if rows.get(id).is_none_or(|&(_, written)| written < epoch) {
            rows.insert(id.clone(), (result, epoch));
        }
        self.written.send_replace(u64::try_from(rows.len()).unwrap_or(u64::MAX));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
