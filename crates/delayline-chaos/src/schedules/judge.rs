//! Judges which ticks were delivered, how often, and when.

use std::collections::{BTreeMap, HashSet};
use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use delayline::worker::{Summary, WorkerHandle};
use delayline::{Job, Queue, Worker};
use tokio::task::JoinHandle;

use super::kinds::{INTERVAL, Kind, TARGET, kind_of};

/// A delivered message of a tick. Times are in milliseconds since 1970.
#[derive(Clone, Debug)]
pub(super) struct Tick {
    pub(super) schedule: u64,
    pub(super) at: u64,
    /// The sequence number of the message, which a second delivery has as well.
    pub(super) sequence: u64,
    pub(super) enqueued: u64,
    pub(super) claimed: u64,
}

/// A worker on the target queue that notes every delivery.
pub(super) struct Seen {
    ticks: Arc<Mutex<Vec<Tick>>>,
    stop: WorkerHandle,
    worker: JoinHandle<Summary>,
}

impl Seen {
    pub(super) async fn listen(url: &str) -> Result<Self> {
        let queue: Queue<u64> = delayline::connect(url).await?.queue(TARGET).await?;
        let worker = Worker::builder(queue).concurrency(100).build()?;
        let (ticks, stop) = (Arc::new(Mutex::new(Vec::new())), worker.handle());
        let noted = Arc::clone(&ticks);
        let worker = tokio::spawn(worker.run(move |job: Job<u64>| {
            let tick = Tick::of(&job);
            noted.lock().unwrap_or_else(PoisonError::into_inner).extend(tick);
            async { Ok::<(), Infallible>(()) }
        }));
        Ok(Self { ticks, stop, worker })
    }

    pub(super) async fn finish(self) -> Vec<Tick> {
        self.stop.stop(Duration::ZERO);
        let _ = self.worker.await;
        std::mem::take(&mut *self.ticks.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Tick {
    fn of(job: &Job<u64>) -> Option<Self> {
        let header = |name| std::str::from_utf8(job.headers().get(name)?).ok();
        let schedule = header("delayline-schedule")?.rsplit_once("/s")?.1.parse().ok()?;
        let late = u64::try_from(job.lateness().as_millis()).ok()?;
        Some(Self {
            schedule,
            at: header("delayline-tick")?.parse().ok()?,
            sequence: job.info().sequence,
            enqueued: job.info().enqueued_at.as_ms(),
            claimed: job.due().as_ms() + late,
        })
    }
}

/// The verdict on the ticks of a run.
#[derive(Debug, Default)]
pub(super) struct Judge {
    schedules: usize,
    ticks: u64,
    missing: Vec<(u64, u64)>,
    skipped: u64,
    double: Vec<(u64, u64)>,
    early: u64,
    redelivered: u64,
    /// Delays in milliseconds from the instant to the claim, of ticks that were created ahead.
    ahead_late: Vec<u64>,
    /// The same delays of ticks that were created when they were due.
    at_once_late: Vec<u64>,
}

impl Judge {
    pub(super) fn of(all: &[Tick]) -> Self {
        let mut judge = Self::default();
        let mut seen = HashSet::new();
        let mut by_schedule: BTreeMap<u64, BTreeMap<u64, Vec<&Tick>>> = BTreeMap::new();
        for tick in all {
            judge.early += u64::from(tick.claimed < tick.at);
            if !seen.insert(tick.sequence) {
                judge.redelivered += 1;
                continue;
            }
            by_schedule.entry(tick.schedule).or_default().entry(tick.at).or_default().push(tick);
        }
        judge.schedules = by_schedule.len();
        for (schedule, ticks) in by_schedule {
            judge.add(schedule, &ticks);
        }
        judge.ahead_late.sort_unstable();
        judge.at_once_late.sort_unstable();
        judge
    }

    fn add(&mut self, schedule: u64, ticks: &BTreeMap<u64, Vec<&Tick>>) {
        let (Some((&first, _)), Some((&last, _))) =
            (ticks.first_key_value(), ticks.last_key_value())
        else {
            return;
        };
        let kind = kind_of(schedule);
        let step = u64::try_from(INTERVAL.as_millis()).unwrap_or(u64::MAX);
        let mut at = first;
        while at <= last {
            match ticks.get(&at).map(Vec::as_slice) {
                Some([tick, more @ ..]) => {
                    self.ticks += 1;
                    if !more.is_empty() {
                        self.double.push((schedule, at));
                    }
                    let late = tick.claimed.saturating_sub(at);
                    match kind {
                        // The first tick may be nearer than the lead.
                        Kind::Ahead if tick.enqueued < at => self.ahead_late.push(late),
                        _ => self.at_once_late.push(late),
                    }
                }
                // Of several missed ticks, only the latest is sent later.
                _ if kind == Kind::Ahead => self.missing.push((schedule, at)),
                _ => self.skipped += 1,
            }
            at += step;
        }
    }

    pub(super) fn is_fine(&self) -> bool {
        self.ticks > 0 && self.missing.is_empty() && self.double.is_empty() && self.early == 0
    }
}

impl fmt::Display for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { schedules, ticks, missing, skipped, double, early, redelivered, .. } = self;
        writeln!(
            f,
            "{schedules} schedules, {ticks} ticks, {} missing, {} double, {early} early, \
             {redelivered} redelivered, {skipped} left out without a lead",
            missing.len(),
            double.len()
        )?;
        for (name, late) in
            [("created ahead", &self.ahead_late), ("created when due", &self.at_once_late)]
        {
            if let Some(last) = late.last() {
                let at = |percent: usize| late[(late.len() - 1) * percent / 100];
                let (p50, p99) = (at(50), at(99));
                writeln!(
                    f,
                    "  {name}: claimed after p50 {p50} ms, p99 {p99} ms, at most {last} ms"
                )?;
            }
        }
        for (what, list) in [("missing", missing), ("double", double)] {
            for (schedule, at) in list.iter().take(10) {
                writeln!(f, "  {what}: s{schedule}@{at}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tick(schedule: u64, second: u64, sequence: u64) -> Tick {
        let at = second * 1_000;
        Tick { schedule, at, sequence, enqueued: at - 500, claimed: at + 1 }
    }

    #[test]
    fn a_gap_and_a_second_message_are_found() {
        let fine = [tick(1, 5, 1), tick(1, 6, 2), tick(1, 6, 2), tick(1, 7, 3)];
        let judge = Judge::of(&fine);
        assert!(judge.is_fine(), "{judge}");
        assert_eq!((judge.ticks, judge.redelivered), (3, 1));
        let missing = Judge::of(&[tick(1, 5, 1), tick(1, 7, 3)]);
        assert_eq!((missing.is_fine(), missing.missing), (false, vec![(1, 6_000)]));
        let double = Judge::of(&[tick(1, 5, 1), tick(1, 5, 2)]);
        assert_eq!((double.is_fine(), double.double), (false, vec![(1, 5_000)]));
        let early = Tick { claimed: 4_999, ..tick(1, 5, 1) };
        assert!(!Judge::of(&[early]).is_fine());
        assert!(!Judge::of(&[]).is_fine());
        // Without a lead, only the latest of several missed ticks is sent later.
        assert!(Judge::of(&[tick(35, 5, 1), tick(35, 7, 3)]).is_fine());
    }
}
