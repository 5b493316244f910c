//! Deletions of queues.
//!
//! The settings of a deleted queue say so, and are due at once. Each server is a worker of the
//! queue of settings. So if the server that deletes a queue ends, another one continues, or the
//! next one. They are due once more when all servers know of the deletion.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use delayline::{Job, Outcome, RetryPolicy, Worker};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::error::Error;
use crate::leases::reclaim;
use crate::moves::Moves;
use crate::queues::{Queues, Removed, never};
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
    tracker: &TaskTracker,
) -> Result<(), delayline::Error> {
    let worker = Worker::builder(queues.settings().clone()).consumer("sqs-deletions");
    let worker = worker.lease(LEASE).stop_grace(Duration::ZERO).retry(RetryPolicy::fixed(LEASE));
    let worker = worker.build()?;
    let (queues, moves) = (Arc::clone(queues), Arc::clone(moves));
    let handler = move |job| {
        let (queues, moves) = (Arc::clone(&queues), Arc::clone(&moves));
        async move { finish(&queues, &moves, &job).await }
    };
    tracker.spawn(async move { worker.run_until(stop.cancelled_owned(), handler).await });
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
        let deleted_ms = job.payload().modified_ms;
        // A message whose cancel was requested ends with its lease.
        let open = queues.opened_for_now(&name).await?;
        reclaim(&open).await?;
        // Until they read the settings again, other servers may still send to the queue. Later
        // messages are those of programs with the library, and stay.
        let removed = queues.remove(&open, deleted_ms.saturating_add(LATE_MS)).await?;
        let deleted_at = UNIX_EPOCH + Duration::from_millis(deleted_ms);
        // By the clock that makes the settings due.
        let now = SystemTime::from(queues.settings().server_time().await?);
        let again = AGAIN.map(|after| deleted_at + after);
        Ok(match (again.into_iter().find(|at| *at > now), removed) {
            (Some(again), _) => Outcome::SnoozeUntil(again),
            (None, Removed::Whole) => Outcome::Ack,
            // When twice as much time has passed.
            (None, Removed::InPart) => {
                Outcome::Snooze(now.duration_since(deleted_at).unwrap_or_default())
            }
            // By its counters, the queue would exist.
            (None, Removed::Messages) => Outcome::SnoozeUntil(never()),
        })
    };
    let stop = job.cancellation();
    tokio::select! {
        outcome = work => outcome,
        () = stop.cancelled() => Ok(Outcome::Release),
    }
}

/// The duration of the leases of deletions.
const LEASE: Duration = Duration::from_secs(10);
/// Messages that are sent this long after the deletion are removed, too. Settings are known for a
/// shorter time.
const LATE_MS: u64 = 5_000;
/// When messages are removed again, after the deletion. For a minute, the settings say that the
/// queue was deleted.
const AGAIN: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(60)];
