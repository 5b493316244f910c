//! A rolling deploy: workers of the old and of the new version of a program share a queue.
//!
//! The new version sends a kind of message that the old one cannot decode, and has renamed a field.
//! A message that a worker cannot decode is a failure and is retried with backoff. So it waits for
//! a worker of the new version.
//!
//! ```sh
//! cargo run -p delayline-examples --example rolling_deploys
//! cargo run -p delayline-examples --example rolling_deploys -- redis://127.0.0.1:6379
//! ```

use std::convert::Infallible;
use std::time::Duration;

use delayline::admin::Listed;
use delayline::message::{DeathReason, MessageState};
use delayline::worker::Undecodable;
use delayline::{Job, Queue, RetryPolicy, Worker};
use serde::{Deserialize, Serialize};

/// How soon a message is retried; in production, leave the default, which spans hours.
const SOON: Duration = Duration::from_millis(500);

/// How long handlers may continue when their worker stops.
const GRACE: Duration = Duration::from_secs(10);

/// The version that runs everywhere.
mod old {
    use super::{Deserialize, Serialize};

    #[derive(Debug, Serialize, Deserialize)]
    pub(crate) enum Task {
        Close { order: u64 },
    }
}

/// The version that is deployed.
mod new {
    use super::{Deserialize, Serialize};

    #[derive(Debug, Serialize, Deserialize)]
    pub(crate) enum Task {
        Close {
            // The old name can be read for as long as messages have it.
            #[serde(alias = "order")]
            order_id: u64,
            // What old messages lack has a default.
            #[serde(default)]
            notify: bool,
        },
        /// Old workers cannot decode this one.
        Text { order_id: u64 },
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let connection = delayline::connect(&url).await?;
    let old_queue: Queue<old::Task> = connection.queue("example/deploys").await?;
    let new_queue: Queue<new::Task> = connection.queue("example/deploys").await?;

    let before = new_queue.stats().await?.totals;

    // Before the deploy: old producers, old workers.
    for order in 0..5 {
        old_queue.send(&old::Task::Close { order }).await?;
    }
    // During it: new producers, and workers of both versions.
    for order_id in 5..10 {
        new_queue.send(&new::Task::Text { order_id }).await?;
    }
    let old_worker = Worker::builder(old_queue.clone()).retry(RetryPolicy::fixed(SOON)).build()?;
    let (stop_old, old_run) = (old_worker.handle(), tokio::spawn(old_worker.run(close)));
    // The old worker has met messages that it cannot decode: each waits for its next attempt.
    while new_queue.stats().await?.totals.failed == before.failed {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let new_worker = Worker::builder(new_queue.clone()).build()?;
    let (stop_new, new_run) = (new_worker.handle(), tokio::spawn(new_worker.run(handle)));
    while new_queue.stats().await?.totals.acked < before.acked + 10 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stop_old.stop(GRACE);
    stop_new.stop(GRACE);
    let (old_summary, new_summary) = (old_run.await?, new_run.await?);
    assert_eq!(old_summary.acked + new_summary.acked, 10);
    println!("done: no message was lost or buried by workers of two versions");

    // A queue that is opened with the wrong type shows it: its dead letters say so.
    let task = old::Task::Close { order: 10 };
    assert!(old_queue.message(&task).max_failures(1).send().await?.is_accepted());
    let wrong: Queue<Vec<u8>> = connection.queue("example/deploys").await?;
    let worker = Worker::builder(wrong.clone())
        .on_undecodable(Undecodable::Retry)
        .until_empty(true)
        .build()?;
    worker.run(async |_: Job<Vec<u8>>| Ok::<_, Infallible>(())).await;
    let dead = wrong.list(Listed::Dead).next_page().await?.unwrap_or_default();
    assert_eq!(dead.len(), 1);
    let letter = &dead[0];
    let reason = DeathReason::Undecodable;
    assert!(matches!(letter.state, MessageState::Dead { reason: it, .. } if it == reason));
    println!("{}", letter.last_error.as_deref().unwrap_or_default());
    wrong.redrive(letter.id.clone()).await?;
    Worker::builder(new_queue.clone()).until_empty(true).build()?.run(handle).await;
    assert!(new_queue.check().await?.findings.is_empty());
    println!("done: what a wrong type has buried was redriven to the right one");
    Ok(())
}

async fn close(job: Job<old::Task>) -> Result<(), Infallible> {
    let old::Task::Close { order } = job.payload();
    println!("the old worker closes order {order}");
    Ok(())
}

async fn handle(job: Job<new::Task>) -> Result<(), Infallible> {
    match job.payload() {
        new::Task::Close { order_id, notify } => {
            println!("the new worker closes order {order_id}, notify: {notify}");
        }
        new::Task::Text { order_id } => println!("the new worker texts about order {order_id}"),
    }
    Ok(())
}
