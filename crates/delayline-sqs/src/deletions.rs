//! Deletions of queues.
//!
//! The settings of a deleted queue say so, and are due at once. Each server is a worker of the
//! queue of settings. So if the server that deletes a queue ends, another one continues, or the
//! next one.

use std::sync::Arc;
use std::time::Duration;

use delayline::{Job, Outcome, RetryPolicy, Worker};
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::moves::Moves;
use crate::queues::{Queues, never};
use crate::settings::Settings;

/// Ends deletions, until `stop`.
///
/// # Errors
///
/// If the worker's options are invalid.
pub(crate) fn spawn(
    queues: &Arc<Queues>,
    moves: &Arc<Moves>,
    stop: CancellationToken,
) -> Result<(), delayline::Error> {
    let worker = Worker::builder(queues.settings().clone()).consumer("sqs-deletions");
    let worker = worker.lease(LEASE).stop_grace(Duration::ZERO).retry(RetryPolicy::fixed(LEASE));
    let worker = worker.build()?;
    let (queues, moves) = (Arc::clone(queues), Arc::clone(moves));
    let handler = move |job| {
        let (queues, moves) = (Arc::clone(&queues), Arc::clone(&moves));
        async move { finish(&queues, &moves, &job).await }
    };
    tokio::spawn(async move { worker.run_until(stop.cancelled_owned(), handler).await });
    Ok(())
}

/// Ends the deletion of a queue. Settings of other queues are due only if an operator reschedules
/// them.
async fn finish(queues: &Queues, moves: &Moves, job: &Job<Settings>) -> Result<Outcome, Error> {
    let name = job.id().to_string();
    let work = async {
        if !job.payload().is_deleted {
            return Ok(Outcome::SnoozeUntil(never()));
        }
        moves.forget(&name).await?;
        // Leased messages are removed at the end of their leases; a storage without this call keeps
        // the counters. In both cases, the settings keep saying that the queue is deleted.
        match queues.remove(&name).await? {
            true => Ok(Outcome::Ack),
            false => Ok(Outcome::SnoozeUntil(never())),
        }
    };
    let stop = job.cancellation();
    tokio::select! {
        outcome = work => outcome,
        () = stop.cancelled() => Ok(Outcome::Release),
    }
}

/// The duration of the leases of deletions.
const LEASE: Duration = Duration::from_secs(10);
