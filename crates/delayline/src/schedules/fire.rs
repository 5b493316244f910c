//! How a scheduler handles a schedule that is due.

use std::time::Duration;

use delayline_core::{Backoff, Enqueued, Status, UpdateContent, UpdateToken};

use super::ids::{skipping_id, tick_id};
use super::{Overlap, Schedules, Spec, TICK_HEADER, system_time};
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
    /// `first` is the first tick that may need a message: all earlier ones have theirs.
    fn new(spec: &Spec, first: u64, now: u64) -> Self {
        let oldest = now.saturating_sub(spec.grace_ms()).max(first);
        let next = spec.next(oldest.saturating_sub(1));
        let mut plan = Self { ticks: Vec::new(), next, missed: 0 };
        let mut missed = None;
        while let Some(tick) = plan.next.filter(|&tick| tick <= now.saturating_add(spec.lead_ms()))
        {
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

/// What a scheduler has done for a schedule that is due.
#[derive(Debug, Default)]
struct Progress {
    /// The next tick that may need a message.
    next: Option<u64>,
    sent: u64,
    /// The number of ticks that were sent late.
    late: u64,
    missed: u64,
    /// The number of ticks without a message, because an earlier one had not ended.
    skipped: u64,
}

/// The fate of a tick.
enum Created {
    /// It has a message now.
    Now,
    /// An earlier attempt or another scheduler has sent it.
    Before,
    /// An earlier message has not ended.
    Skipped,
}

impl From<Enqueued> for Created {
    fn from(outcome: Enqueued) -> Self {
        if matches!(outcome, Enqueued::Created { .. }) { Self::Now } else { Self::Before }
    }
}

impl Schedules {
    pub(super) async fn fire(&self, job: Job<Spec>) -> Outcome {
        let (spec, due) = (job.payload(), job.due().as_ms());
        let late = u64::try_from(job.lateness().as_millis()).unwrap_or(u64::MAX);
        let mut now = Some(due.saturating_add(late));
        let next = Some(first_tick(&job, due));
        let mut progress = Progress { next, ..Progress::default() };
        let mut backoff = RETRY;
        let is_done = loop {
            let error = match self.create_due(&job, &mut progress, now.take()).await {
                Ok(is_done) => break is_done,
                Err(error) => error,
            };
            let name = job.id();
            tracing::warn!(schedule = %name, queue = spec.queue(), %error, "a tick was not sent");
            tokio::select! {
                () = tokio::time::sleep(backoff.next(fastrand::u32(..))) => {}
                // It stays due, for another scheduler.
                () = job.cancellation().cancelled() => break false,
            }
        };
        if !is_done {
            // The next scheduler finds them again.
            progress.missed = 0;
        }
        self.measure(spec, &progress).await;
        if !is_done {
            return Outcome::Release;
        }
        match progress.next {
            Some(next) => Outcome::SnoozeUntil(system_time(next.saturating_sub(spec.lead_ms()))),
            None => Outcome::reject("the schedule has no more instants"),
        }
    }

    async fn measure(&self, spec: &Spec, progress: &Progress) {
        let Progress { sent, late, missed, skipped, .. } = *progress;
        let counts = [("sent", sent), ("late", late), ("missed", missed), ("skipped", skipped)];
        // A scheduler that stops does not open its target for this.
        if counts.iter().all(|&(_, count)| count == 0) {
            return;
        }
        let Ok(target) = self.target(spec.queue_name()).await else { return };
        for (result, count) in counts.into_iter().filter(|&(_, count)| count > 0) {
            telemetry::ticks(target.client().label(), result, count);
        }
    }

    /// Creates the ticks that are due at `now`, or at the server's time. Returns `false` if the
    /// handler is to stop before it has created all.
    async fn create_due(
        &self,
        job: &Job<Spec>,
        progress: &mut Progress,
        now: Option<u64>,
    ) -> Result<bool, Error> {
        let (name, spec) = (job.id().to_string(), job.payload());
        // A target may have failed for hours, so ticks of an earlier attempt may be missed by now.
        let now = match now {
            Some(now) => now,
            None => self.now().await?,
        };
        let plan = Plan::new(spec, progress.next.unwrap_or(u64::MAX), now);
        // After a failed attempt, ticks that have been created are planned again.
        if progress.next >= Some(job.due().as_ms().saturating_add(spec.lead_ms())) {
            progress.missed += plan.missed;
        }
        progress.next = plan.ticks.first().copied().or(plan.next);
        for (index, &tick) in plan.ticks.iter().enumerate() {
            // Another scheduler has the schedule, or gets it with the same due time.
            if job.cancellation().is_cancelled() {
                return Ok(false);
            }
            let next = plan.ticks.get(index + 1).copied().or(plan.next);
            let created = self.create(&name, spec, tick, next, now).await?;
            progress.next = next;
            match created {
                Created::Now if tick.saturating_add(LATE_MS) < now => progress.late += 1,
                Created::Now => progress.sent += 1,
                Created::Skipped => progress.skipped += 1,
                Created::Before => {}
            }
        }
        Ok(true)
    }

    /// Creates the message of a tick unless it exists.
    async fn create(
        &self,
        name: &str,
        spec: &Spec,
        tick: u64,
        next: Option<u64>,
        now: u64,
    ) -> Result<Created, Error> {
        if spec.overlap_rule() == Overlap::Skip {
            let id = skipping_id(name);
            let found = self.target(spec.queue_name()).await?.get(id.as_str()).await?;
            if let Found::Live(live) = found {
                // Its due time changes if it is snoozed or retried.
                let header = live.headers.get(TICK_HEADER);
                let is_own = header.is_some_and(|header| *header == tick.to_string());
                return Ok(if is_own { Created::Before } else { Created::Skipped });
            }
            // The queue remembers the tick with the id, in case another scheduler has sent it and
            // its message has finished. It does so for hours: a scheduler that is suspended here
            // for longer sends it again. A throttle would also refuse later ticks.
            let sent = UpdateToken::from_bytes(tick.to_be_bytes());
            let draft = self.message(name, spec, tick).await?.id(id);
            let draft = draft.update_as(UpdateContent::Keep, UpdateDue::Keep, sent);
            return Ok(draft.send().await?.outcome.into());
        }
        let interval = Duration::from_millis(next.unwrap_or(u64::MAX).saturating_sub(tick));
        let ahead = Duration::from_millis(tick.saturating_sub(now));
        let window = ahead + interval.saturating_mul(INTERVALS).min(LONGEST_WINDOW);
        for revision in 0..MOST_REVISIONS {
            let id = tick_id(name, tick, revision);
            let draft = self.message(name, spec, tick).await?.id(id.as_str());
            let outcome = throttled(draft, window).await?;
            let is_cancelled = match outcome {
                Enqueued::Duplicate { status } | Enqueued::Conflict { status } => {
                    status == Status::Cancelled
                }
                Enqueued::Throttled { .. } => {
                    match self.target(spec.queue_name()).await?.get(id).await? {
                        Found::Finished(status) => status == Status::Cancelled,
                        // If its instant is still to come, it was cancelled, and a busy queue has
                        // forgotten it.
                        Found::Unknown => tick > self.now().await?,
                        _ => false,
                    }
                }
                _ => false,
            };
            if !is_cancelled {
                return Ok(outcome.into());
            }
        }
        // All of them are cancelled, so the last id is used again. A scheduler sends a second
        // message only if it is suspended here until another one has sent it and a worker has
        // handled it.
        let draft = self.message(name, spec, tick).await?;
        let draft = draft.id(tick_id(name, tick, MOST_REVISIONS - 1)).reuse_finished_id();
        Ok(draft.send().await?.outcome.into())
    }
}

/// The first tick that may need a message. The due time of a schedule is one lead before it, and
/// all earlier ones have been created. A failed attempt, by a scheduler that cannot read the
/// schedule or was stopped, has moved the due time to its retry. A change that had to wait for a
/// scheduler is due when that one ends. Then recent ticks are created again, and the queue
/// remembers the ticks that it has.
fn first_tick(job: &Job<Spec>, due: u64) -> u64 {
    let (spec, first) = (job.payload(), due.saturating_add(job.payload().lead_ms()));
    if spec.next(first.saturating_sub(1)) == Some(first) {
        return first;
    }
    let longest_delay = match job.failures() {
        0 => spec.lead_ms() + LONGEST_RETRY_MS,
        failures => (FIRST_RETRY_MS << failures.min(12)).min(LONGEST_RETRY_MS),
    };
    first.saturating_sub(longest_delay).max(job.info().enqueued_at.as_ms() + 1)
}

/// Sends a message at most once in a window, and while the queue remembers its id. A scheduler that
/// was suspended must not send an old tick again, but a busy queue forgets ids of finished messages
/// within minutes.
async fn throttled(draft: Draft, window: Duration) -> Result<Enqueued, Error> {
    let outcome = draft.clone().throttle_unless_finished(window).send().await?.outcome;
    if outcome == Enqueued::TooManyThrottled {
        return Ok(draft.send().await?.outcome);
    }
    Ok(outcome)
}

/// After a long downtime, further ticks are not counted: it would take seconds.
const MOST_COUNTED: u64 = 10_000;
/// A tick is late if it is sent this long after its instant.
const LATE_MS: u64 = 1_000;
/// The longest pause before the first retry. Each later one is at most twice as long.
const FIRST_RETRY_MS: u64 = 1_000;
/// By how much retries move the due time at most. Ids of finished messages are remembered for
/// longer.
const LONGEST_RETRY_MS: u64 = 3_600_000;
/// Pauses while sends to a target queue fail.
const RETRY: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
/// The number of intervals after a tick during which it cannot be created a second time. It is
/// small because a queue has a limited number of throttled ids, which are for its senders.
const INTERVALS: u32 = 200;
/// How long after a tick it cannot be created a second time, at most.
const LONGEST_WINDOW: Duration = Duration::from_secs(6 * 3_600);
/// Number of ids for the messages of one tick: each change of a spec just before it takes one.
pub(super) const MOST_REVISIONS: u32 = 8;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use async_trait::async_trait;
    use delayline_core::{
        At, Backend, ErrorKind, List, Op, QueueBackend, QueueName, Reply, Timestamp,
    };
    use delayline_memory::{ManualClock, MemoryBackend};

    use super::*;
    use crate::Connection;
    use crate::local::Local;
    use crate::store::{FoundQueues, Store};

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn after_a_month_without_schedulers_the_latest_tick_is_found_without_counting_all() {
        let month = Duration::from_secs(31 * 86_400);
        let spec = Spec::cron("* * * * * *", "Europe/Berlin", "work").unwrap();
        let spec = spec.grace(month).unwrap().lead(Duration::ZERO).unwrap();
        let plan = Plan::new(&spec, 1_000, 2_500_000_500);
        let next = Some(2_500_001_000);
        assert_eq!(plan, Plan { ticks: vec![2_500_000_000], next, missed: MOST_COUNTED });
    }

    /// Queues in memory. The target refuses to be opened, and time passes meanwhile.
    #[derive(Debug)]
    struct Refusing {
        queues: Local<MemoryBackend>,
        clock: ManualClock,
        refusals: AtomicU32,
    }

    #[async_trait]
    impl Store for Refusing {
        async fn open(&self, name: QueueName) -> Result<Arc<dyn QueueBackend>, Error> {
            let is_left = |left: u32| left.checked_sub(1);
            if name.as_str() == "work"
                && self.refusals.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_left).is_ok()
            {
                self.clock.advance(MINUTE.try_into().unwrap());
                return Err(delayline_core::Error::new(ErrorKind::Busy).into());
            }
            self.queues.open(name).await
        }

        async fn queues(&self, most_keys: u64) -> Result<FoundQueues, Error> {
            self.queues.queues(most_keys).await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_passes_while_the_target_fails_is_missed_like_in_a_downtime() {
        let clock = ManualClock::new(Timestamp::from_ms(60_000_000).unwrap());
        let its = clock.clone();
        let queues = Local::new(move |name| MemoryBackend::with_clock_of(&its).named(name));
        let refusals = AtomicU32::new(5);
        let store = Arc::new(Refusing { queues, clock: clock.clone(), refusals });
        let schedules = Schedules::open(&Connection::new(store.clone())).await.unwrap();
        let spec = Spec::every(MINUTE, "work").unwrap().lead(MINUTE * 2).unwrap();
        schedules.put("a", &spec).await.unwrap();
        let worker = schedules.worker().lease(MINUTE * 60).build().unwrap();
        let (stop, handler) = (worker.handle(), schedules.handler());
        worker
            .run(move |job| {
                let (fired, stop) = (handler(job), stop.clone());
                async move {
                    let outcome = fired.await;
                    stop.stop(Duration::ZERO);
                    outcome
                }
            })
            .await;
        let work = store.queues.queue(QueueName::new("work").unwrap());
        let mut sent = Vec::new();
        for status in [Status::Ready, Status::Scheduled] {
            let listed = work.apply(At::Server, &Op::List(List::new(status, 10))).await.unwrap();
            let Reply::List(page) = listed.reply else { panic!("another reply") };
            sent.extend(page.messages.iter().map(|info| info.due.as_ms() / 60_000));
        }
        // It is minute 1005: that one is the latest missed one, and those of the lead follow.
        assert_eq!(sent, [1005, 1006, 1007]);
    }
}
