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

use super::fleet::Times;
use super::kinds::{INTERVAL, Kind, LEAD, TARGET, kind_of, numbers};

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
    /// Schedules that did not fire for too long, and since when.
    silent: Vec<(u64, u64)>,
    /// Ticks of schedules after their removal.
    unasked: Vec<(u64, u64)>,
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
    pub(super) fn of(all: &[Tick], times: &Times) -> Self {
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
        for (schedule, ticks) in &by_schedule {
            judge.add(*schedule, ticks);
        }
        let is_of = |version, schedule| numbers(version).any(|number| number == schedule);
        for schedule in numbers(1).chain(numbers(2).filter(|it| !is_of(1, *it))) {
            let from = if is_of(1, schedule) { times.began } else { times.deployed };
            let to = if is_of(2, schedule) { times.ended } else { times.deploying };
            let ticks = by_schedule.entry(schedule).or_default();
            judge.fires(schedule, from, to, ticks.keys().copied());
        }
        let last = times.deployed + ms(LEAD) + ms(LONGEST_START);
        let late = all.iter().filter(|it| it.at > last && !is_of(2, it.schedule));
        judge.unasked.extend(late.map(|tick| (tick.schedule, tick.at)));
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
        let step = ms(INTERVAL);
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

    /// Whether a schedule has fired from its declaration to its end, without a long silence.
    fn fires(&mut self, schedule: u64, from: u64, to: u64, ticks: impl Iterator<Item = u64>) {
        let longest = match kind_of(schedule) {
            Kind::Ahead => LONGEST_SILENCE_AHEAD,
            Kind::AtOnce | Kind::Skipping => LONGEST_SILENCE,
        };
        let mut latest = from + ms(LONGEST_START);
        for at in ticks.filter(|at| *at < to).chain([to]) {
            if at > latest + ms(longest) {
                self.silent.push((schedule, latest));
            }
            latest = latest.max(at);
        }
    }

    pub(super) fn is_fine(&self) -> bool {
        self.lists().iter().all(|(_, list)| list.is_empty()) && self.ticks > 0 && self.early == 0
    }

    /// What must not be, by schedule and instant.
    fn lists(&self) -> [(&'static str, &[(u64, u64)]); 4] {
        [
            ("missing", &self.missing),
            ("double", &self.double),
            ("silent since", &self.silent),
            ("after its removal", &self.unasked),
        ]
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Maximum time until the first process of a version has declared its schedules.
const LONGEST_START: Duration = Duration::from_secs(5);
/// Maximum time between two ticks. Those created ahead outlast each fault.
const LONGEST_SILENCE_AHEAD: Duration = Duration::from_secs(2);
/// A scheduler freezes with its lease, and the next one freezes as well.
const LONGEST_SILENCE: Duration = Duration::from_secs(20);

impl fmt::Display for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { schedules, ticks, skipped, early, redelivered, .. } = self;
        writeln!(
            f,
            "{schedules} schedules, {ticks} ticks, {early} early, {redelivered} redelivered, \
             {skipped} left out without a lead"
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
        for (what, list) in self.lists() {
            writeln!(f, "  {what}: {}", list.len())?;
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

    /// The ticks of a run of 40 s, in which the second version comes at 20 s.
    fn run() -> (Vec<Tick>, Times) {
        let ms = 1_000;
        let times = Times { began: 0, deploying: 20 * ms, deployed: 21 * ms, ended: 40 * ms };
        let fires = |schedule| match schedule {
            40..50 => 1..31,
            50.. => 21..40,
            _ => 1..40,
        };
        let ticks = (0..60).flat_map(|schedule| fires(schedule).map(move |at| (schedule, at)));
        (ticks.zip(1..).map(|((schedule, at), n)| tick(schedule, at, n)).collect(), times)
    }

    fn judge(change: impl FnOnce(&mut Vec<Tick>)) -> Judge {
        let (mut ticks, times) = run();
        change(&mut ticks);
        Judge::of(&ticks, &times)
    }

    #[test]
    fn a_gap_and_a_second_message_are_found() {
        let fine = judge(|ticks| ticks.push(ticks[0].clone()));
        assert!(fine.is_fine(), "{fine}");
        assert_eq!(fine.redelivered, 1);
        let missing = judge(|ticks| ticks.retain(|it| (it.schedule, it.at) != (1, 6_000)));
        assert_eq!((missing.is_fine(), missing.missing), (false, vec![(1, 6_000)]));
        let double = judge(|ticks| ticks.push(tick(1, 5, 10_000)));
        assert_eq!((double.is_fine(), double.double), (false, vec![(1, 5_000)]));
        let early = judge(|ticks| ticks[0].claimed = 0);
        assert!(!early.is_fine());
        // Without a lead, only the latest of several missed ticks is sent later.
        let skipped = judge(|ticks| ticks.retain(|it| (it.schedule, it.at) != (35, 6_000)));
        assert!(skipped.is_fine() && skipped.skipped == 1, "{skipped}");
    }

    #[test]
    fn schedules_that_do_not_fire_to_their_end_are_found() {
        let silent = |schedule: u64, fires: std::ops::Range<u64>| {
            judge(|ticks| {
                ticks.retain(|it| it.schedule != schedule || fires.contains(&(it.at / 1_000)));
            })
            .silent
        };
        for schedule in [1, 25, 35, 45, 55] {
            assert_eq!(silent(schedule, 0..0).len(), 1, "s{schedule} has never fired");
        }
        assert_eq!(silent(1, 0..36), [(1, 35_000)], "it has stopped");
        assert_eq!(silent(1, 9..40), [(1, 5_000)], "it has begun late");
        assert_eq!(silent(25, 0..19), [(25, 18_000)]);
        assert_eq!(silent(45, 0..30), [], "it was removed");
        let unasked = judge(|ticks| ticks.push(tick(45, 37, 10_000)));
        assert_eq!((unasked.is_fine(), unasked.unasked), (false, vec![(45, 37_000)]));
    }
}
