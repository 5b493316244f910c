//! How a scheduler handles a schedule that is due.

use std::time::Duration;

use delayline_core::{Backoff, Enqueued, Status, UpdateContent, UpdateToken};

use super::ids::{skipping_id, tick_id};
use super::{Overlap, Schedules, Spec, system_time};
use crate::queue::UpdateDue;
use crate::telemetry;
use crate::{Draft, Error, Found, Job, Outcome};

/// The ticks to create now, and the one after them.
#[derive(Debug, PartialEq, Eq)]
struct Plan {
    ticks: Vec<u64>,
    next: Option<u64>,
    /// The number of ticks within the grace that are skipped, as far as they are counted.
    missed: u64,
}

impl Plan {
    /// The due time of a schedule is always one lead before its next tick. So all earlier ticks
    /// have been created, and no later ones.
    fn new(spec: &Spec, due: u64, now: u64) -> Self {
        let lead = spec.lead_ms();
        let oldest = now.saturating_sub(spec.grace_ms()).max(due.saturating_add(lead));
        let next = spec.next(oldest.saturating_sub(1));
        let mut plan = Self { ticks: Vec::new(), next, missed: 0 };
        let mut missed = None;
        while let Some(tick) = plan.next.filter(|&tick| tick <= now.saturating_add(lead)) {
            let mut tick = tick;
            if tick <= now {
                plan.missed += u64::from(missed.is_some());
                if plan.missed == MOST_COUNTED {
                    tick = spec.previous(now).unwrap_or(tick);
                }
                missed = Some(tick);
            } else {
                plan.ticks.push(tick);
            }
            plan.next = spec.next(tick);
        }
        // After a downtime, only the latest missed tick is sent.
        plan.ticks.splice(..0, missed);
        plan
    }
}

impl Schedules {
    pub(super) async fn fire(&self, job: Job<Spec>) -> Outcome {
        let spec = job.payload();
        let due = job.due().as_ms();
        let late = u64::try_from(job.lateness().as_millis()).unwrap_or(u64::MAX);
        let now = due.saturating_add(late);
        let plan = Plan::new(spec, due, now);
        let mut backoff = RETRY;
        let sent = loop {
            let error = match self.create_all(&job, &plan).await {
                Ok(sent) => break sent,
                Err(error) => error,
            };
            let name = job.id();
            tracing::warn!(schedule = %name, queue = spec.queue(), %error, "a tick was not sent");
            tokio::select! {
                () = tokio::time::sleep(backoff.next(fastrand::u32(..))) => {}
                // It stays due, for another scheduler.
                () = job.cancellation().cancelled() => return Outcome::Release,
            }
        };
        if sent == plan.ticks.len() {
            self.measure(spec, &plan, now).await;
        }
        match plan.next {
            Some(next) => Outcome::SnoozeUntil(system_time(next.saturating_sub(spec.lead_ms()))),
            None => Outcome::reject("the schedule has no more instants"),
        }
    }

    async fn measure(&self, spec: &Spec, plan: &Plan, now: u64) {
        let Ok(target) = self.target(spec.queue_name()).await else { return };
        let is_late = |&&tick: &&u64| tick.saturating_add(LATE_MS) < now;
        let late = plan.ticks.iter().filter(is_late).count();
        let count = |ticks: usize| u64::try_from(ticks).unwrap_or(u64::MAX);
        let counts = [
            ("sent", count(plan.ticks.len() - late)),
            ("late", count(late)),
            ("missed", plan.missed),
        ];
        for (result, count) in counts.into_iter().filter(|&(_, count)| count > 0) {
            telemetry::ticks(target.client().label(), result, count);
        }
    }

    /// Returns the number of ticks that have a message now: all, unless the lease was lost.
    async fn create_all(&self, job: &Job<Spec>, plan: &Plan) -> Result<usize, Error> {
        let name = job.id().to_string();
        for (index, &tick) in plan.ticks.iter().enumerate() {
            let next = plan.ticks.get(index + 1).copied().or(plan.next);
            // The lease has been lost, so another scheduler has the schedule.
            if job.cancellation().is_cancelled() {
                return Ok(index);
            }
            self.create(&name, job.payload(), tick, next, false).await?;
        }
        Ok(plan.ticks.len())
    }

    /// Creates the message of a tick unless it exists. With `replace`, a waiting message gets the
    /// spec's content.
    pub(super) async fn create(
        &self,
        name: &str,
        spec: &Spec,
        tick: u64,
        next: Option<u64>,
        replace: bool,
    ) -> Result<(), Error> {
        let interval = Duration::from_millis(next.unwrap_or(u64::MAX).saturating_sub(tick));
        if spec.overlap_rule() == Overlap::Skip {
            let id = skipping_id(name);
            let found = self.target(spec.queue_name()).await?.get(id.as_str()).await?;
            if matches!(found, Found::Live(_)) {
                return Ok(());
            }
            // The queue remembers the tick with the id, in case another scheduler has sent it and
            // its message has finished.
            let sent = UpdateToken::from_bytes(tick.to_be_bytes());
            let draft = self.message(name, spec, tick).await?.id(id);
            let draft = draft.update_as(UpdateContent::Keep, UpdateDue::Keep, sent);
            let window = (interval / 2).clamp(SHORTEST_WINDOW, LONGEST_WINDOW);
            return throttled(draft, window).await.map(drop);
        }
        let window = interval.saturating_mul(INTERVALS).clamp(SHORTEST_WINDOW, LONGEST_WINDOW);
        for revision in 0..MOST_REVISIONS {
            let id = tick_id(name, tick, revision);
            let draft = self.message(name, spec, tick).await?.id(id.as_str());
            let outcome = if replace {
                draft.update(UpdateContent::Replace, UpdateDue::Keep).send().await?.outcome
            } else {
                throttled(draft, window).await?
            };
            let is_cancelled = match outcome {
                Enqueued::Duplicate { status } | Enqueued::Conflict { status } => {
                    status == Status::Cancelled
                }
                Enqueued::Throttled { .. } => {
                    let target = self.target(spec.queue_name()).await?;
                    matches!(target.get(id).await?, Found::Finished(Status::Cancelled))
                }
                _ => false,
            };
            if !is_cancelled {
                return Ok(());
            }
        }
        // All of them are cancelled, so the last id is used again. A scheduler sends a second
        // message only if it is suspended here until another one has sent it and a worker has
        // handled it.
        let draft = self.message(name, spec, tick).await?;
        let draft = draft.id(tick_id(name, tick, MOST_REVISIONS - 1)).reuse_finished_id();
        draft.send().await.map(drop)
    }
}

/// Sends a message at most once in a window. A scheduler that was suspended for a long time must
/// not send an old tick again, but ids of finished messages are only remembered for hours.
async fn throttled(draft: Draft, window: Duration) -> Result<Enqueued, Error> {
    let outcome = draft.clone().throttle(window).send().await?.outcome;
    if outcome == Enqueued::TooManyThrottled {
        return Ok(draft.send().await?.outcome);
    }
    Ok(outcome)
}

/// After a long downtime, further ticks are not counted: it would take seconds.
const MOST_COUNTED: u64 = 10_000;
/// A tick is late if it is sent this long after its instant.
const LATE_MS: u64 = 1_000;
/// Pauses while sends to a target queue fail.
const RETRY: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
/// The number of intervals during which a tick cannot be created a second time.
const INTERVALS: u32 = 5_000;
const SHORTEST_WINDOW: Duration = Duration::from_millis(1);
const LONGEST_WINDOW: Duration = Duration::from_millis(delayline_core::limits::MAX_THROTTLE_MS);
/// Number of ids for the messages of one tick: each change of a spec just before it takes one.
pub(super) const MOST_REVISIONS: u32 = 8;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    #[test]
    fn after_a_month_without_schedulers_the_latest_tick_is_found_without_counting_all() {
        let month = Duration::from_secs(31 * 86_400);
        let spec = Spec::cron("* * * * * *", "Europe/Berlin", "work").unwrap();
        let spec = spec.grace(month).unwrap().lead(Duration::ZERO).unwrap();
        let plan = Plan::new(&spec, 1_000, 2_500_000_500);
        let next = Some(2_500_001_000);
        assert_eq!(plan, Plan { ticks: vec![2_500_000_000], next, missed: MOST_COUNTED });
    }
}
