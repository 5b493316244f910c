//! What is done to all dead letters that match, in the background: one job for each queue at a time,
//! until it has ended, is stopped, or the router is dropped.

use std::sync::{Arc, Mutex, PoisonError};

use delayline::{Bytes, MessageInfo, Queue, Raw, Schedule, Timestamp};
use delayline_json::{Letters, Pace};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::Instrument as _;
use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_64;

use crate::Role;
use crate::act::{self, Action, Audit};
use crate::asked::Asked;
use crate::context::{Context, counted};
use crate::dashboard::Served;
use crate::failure::Failure;

/// What is to be done to each letter.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Deed {
    /// It is only counted.
    Count,
    Redrive(Schedule),
    Purge,
}

impl Deed {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Redrive(_) => "redrive",
            Self::Purge => "purge",
        }
    }

    /// The deed of a name; what is redriven is due then.
    pub(crate) fn named(name: &str, schedule: Schedule) -> Result<Self, Failure> {
        let known = [Self::Count, Self::Redrive(schedule), Self::Purge];
        known
            .into_iter()
            .find(|deed| deed.name() == name)
            .ok_or_else(|| Failure::Wrong("`action` is count, redrive or purge".to_owned()))
    }

    /// The role that it needs. A count looks at as much as the others.
    pub(crate) const fn needs(self) -> Role {
        match self.action() {
            None => Role::Operator,
            Some(action) => action.needs(),
        }
    }

    const fn action(self) -> Option<Action> {
        match self {
            Self::Count => None,
            Self::Redrive(schedule) => Some(Action::Redrive(schedule)),
            Self::Purge => Some(Action::Purge),
        }
    }

    const fn audited_as(self) -> &'static str {
        match self {
            Self::Count => "count_matching",
            Self::Redrive(_) => "redrive_matching",
            Self::Purge => "purge_matching",
        }
    }
}

/// What is to be done to which letters, and how many at most.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) deed: Deed,
    pub(crate) asked: Asked,
    /// How many a second at most.
    pub(crate) rate: Option<u32>,
    /// How many at most, those that died first before the others.
    pub(crate) limit: Option<u64>,
}

impl Order {
    /// A limit as it is written.
    pub(crate) fn limit(text: &str) -> Result<u64, Failure> {
        let limit = text.parse().ok().filter(|limit| (1..=MOST_LIMIT).contains(limit));
        limit.ok_or_else(|| Failure::Wrong(format!("`limit` is a number from 1 to {MOST_LIMIT}")))
    }

    /// A rate as it is written.
    pub(crate) fn rate(text: &str) -> Result<u32, Failure> {
        let rate = text.parse().ok().filter(|rate| (1..=MOST_RATE).contains(rate));
        rate.ok_or_else(|| Failure::Wrong(format!("`rate` is a number from 1 to {MOST_RATE}")))
    }
}

/// A job that was started. It ends when this is dropped.
pub(crate) struct Job {
    pub(crate) id: String,
    pub(crate) order: Order,
    /// Who started it.
    pub(crate) by: String,
    /// When, by the clock of the server.
    pub(crate) started: Timestamp,
    begin: Instant,
    /// How many dead letters there were then.
    pub(crate) dead: u64,
    progress: Arc<Mutex<Progress>>,
    stop: watch::Sender<bool>,
}

/// How far a job has come.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    pub(crate) examined: u64,
    pub(crate) matched: u64,
    pub(crate) done: u64,
    /// Letters that had changed meanwhile, or that cannot be read.
    pub(crate) not_done: u64,
    /// How it has ended, if it has.
    pub(crate) end: Option<End>,
}

#[derive(Clone, Debug)]
pub(crate) enum End {
    Finished,
    Stopped,
    Failed(Arc<Failure>),
}

impl Progress {
    /// In a word.
    pub(crate) const fn state(&self) -> &'static str {
        match self.end {
            None => "running",
            Some(End::Finished) => "finished",
            Some(End::Stopped) => "stopped",
            Some(End::Failed(_)) => "failed",
        }
    }

    /// Why it has failed, as far as a visitor of this role may know it.
    pub(crate) fn failure(&self, role: Role) -> Option<String> {
        match &self.end {
            Some(End::Failed(why)) => Some(why.detail_for(role)),
            _ => None,
        }
    }

    /// Differs when something has happened.
    pub(crate) fn stamp(&self) -> String {
        format!("{:016x}", xxh3_64(format!("{self:?}").as_bytes()))
    }
}

impl Job {
    /// The instant by the clock of the server, without asking it.
    pub(crate) fn now(&self) -> Timestamp {
        let passed = u64::try_from(self.begin.elapsed().as_millis()).unwrap_or(u64::MAX);
        Timestamp::from_ms(self.started.as_ms().saturating_add(passed)).unwrap_or(self.started)
    }

    /// How far it has come.
    pub(crate) fn progress(&self) -> Progress {
        // Asked first: the task says how it has ended before it lets go of its end of the channel.
        let alive = self.stop.receiver_count() > 0;
        let mut progress = locked(&self.progress).clone();
        if progress.end.is_none() && !alive {
            progress.end = Some(End::Failed(Arc::new(Failure::Aborted)));
        }
        progress
    }

    /// Asks it to stop after the operation that is under way.
    fn stop(&self) {
        self.stop.send_replace(true);
    }
}

/// The last job of a queue.
#[derive(Default)]
pub(crate) struct Slot(Mutex<Option<Arc<Job>>>);

impl Slot {
    pub(crate) fn job(&self) -> Option<Arc<Job>> {
        locked(&self.0).clone()
    }

    /// The one that runs.
    pub(crate) fn running(&self) -> Option<Arc<Job>> {
        self.job().filter(|job| job.progress().end.is_none())
    }
}

/// Starts a job on the letters that are dead now.
pub(crate) async fn start(
    context: &Context,
    queue: &str,
    order: Order,
) -> Result<Arc<Job>, Failure> {
    context.require(order.deed.needs())?;
    let (name, served) = context.served(queue)?;
    let busy = || Failure::Busy("another job is running on this queue; wait or stop it".to_owned());
    if served.job.running().is_some() {
        return Err(busy());
    }
    let limit = order.limit.unwrap_or(u64::MAX);
    let (letters, dead, started) = find(context, name, served, &order.asked, limit).await?;

    let mut slot = locked(&served.job.0);
    // Somebody else may have been faster.
    if slot.as_ref().is_some_and(|job| job.progress().end.is_none()) {
        return Err(busy());
    }
    let (stop, stopped) = watch::channel(false);
    let job = Arc::new(Job {
        id: Uuid::now_v7().simple().to_string(),
        by: context.visitor.name.clone(),
        started,
        begin: Instant::now(),
        dead,
        progress: Arc::default(),
        stop,
        order,
    });
    let (deed, rate) = (job.order.deed, job.order.rate);
    let audit = || Audit::new(context, deed.audited_as(), name).of_job(&job.id);
    audit().with_order(&job.order).log("started");
    let work = Work { queue: served.queue.clone(), letters, deed, progress: job.progress.clone() };
    let task = work.run(Pace::new(rate), stopped, audit());
    tokio::spawn(task.in_current_span());
    *slot = Some(Arc::clone(&job));
    Ok(job)
}

/// The letters that are dead now and match, how many are dead in all, and the time of the server.
async fn find(
    context: &Context,
    name: &str,
    served: &Served,
    asked: &Asked,
    limit: u64,
) -> Result<(Letters<'static>, u64, Timestamp), Failure> {
    let filter = asked.filter()?;
    let listing = served.queue.dead_letters().await?;
    let (stats, now) = counted(&served.queue).await?;
    let wanted = filter.at(listing.until().unwrap_or(now));
    // What visitors are not to see does not count.
    let (shown, passing, of) = (context.shared.redactor(), wanted.clone(), name.to_owned());
    let passes = move |letter: &MessageInfo| passing.passes(&shown(&of, letter.clone()));
    Ok((Letters::new(listing, wanted, limit).passing(passes), stats.dead, now))
}

/// What a visitor is asked about before a job starts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// Dead letters of the queue.
    pub(crate) dead: u64,
    /// Dead letters that were examined.
    pub(crate) examined: u64,
    /// Examined letters that match.
    pub(crate) matched: u64,
    /// Whether all were examined.
    pub(crate) complete: bool,
}

/// Looks at up to [`MOST_SURVEYED`] dead letters for those that match.
pub(crate) async fn survey(context: &Context, queue: &str, asked: &Asked) -> Result<Seen, Failure> {
    let (name, served) = context.served(queue)?;
    let (mut letters, dead, _) = find(context, name, served, asked, u64::MAX).await?;
    let mut seen = Seen { dead, examined: 0, matched: 0, complete: false };
    // The queue's own count is all there is to know.
    while !asked.is_everything() && !seen.complete && seen.examined < MOST_SURVEYED {
        letters.read().await?;
        letters.take(usize::MAX);
        (seen.examined, seen.matched) = (letters.examined(), letters.matched());
        seen.complete = letters.has(usize::MAX);
    }
    Ok(seen)
}

/// Stops the job of this id, if it is the last one of the queue.
pub(crate) fn stop(context: &Context, queue: &str, id: &str) -> Result<Arc<Job>, Failure> {
    context.require(Role::Operator)?;
    let (name, served) = context.served(queue)?;
    let job = served.job.job().filter(|job| job.id == id);
    let job = job.ok_or_else(none_such)?;
    let had_ended = job.progress().end.is_some();
    job.stop();
    let outcome = if had_ended { "it had ended" } else { "asked to stop" };
    Audit::new(context, "stop_job", name).of_job(id).log(outcome);
    Ok(job)
}

pub(crate) fn none_such() -> Failure {
    Failure::Unknown("there is no such job, or a later one".to_owned())
}

struct Work {
    queue: Queue<Bytes, Raw>,
    letters: Letters<'static>,
    deed: Deed,
    progress: Arc<Mutex<Progress>>,
}

impl Work {
    async fn run(mut self, pace: Pace, mut stopped: watch::Receiver<bool>, audit: Audit) {
        let end = match self.go(pace, &mut stopped).await {
            Ok(end) => end,
            Err(failure) => End::Failed(Arc::new(failure)),
        };
        let progress = {
            let mut progress = locked(&self.progress);
            progress.end = Some(end);
            progress.clone()
        };
        let Progress { matched, done, not_done, .. } = progress;
        let why = progress.failure(Role::Admin).map(|why| format!(": {why}")).unwrap_or_default();
        let state = progress.state();
        let outcome = format!("{state}, matched {matched}, done {done}, not done {not_done}{why}");
        audit.of(done).log(&outcome);
    }

    /// Goes on until the end. `stopped` says something when somebody stops it or nobody is left to.
    async fn go(
        &mut self,
        mut pace: Pace,
        stopped: &mut watch::Receiver<bool>,
    ) -> Result<End, Failure> {
        let batch = pace.batch();
        loop {
            while !self.letters.has(batch) {
                tokio::select! {
                    biased;
                    _ = stopped.changed() => return Ok(End::Stopped),
                    read = self.letters.read() => read?,
                }
                let mut progress = locked(&self.progress);
                progress.examined = self.letters.examined();
                progress.matched = self.letters.matched();
            }
            let Some(action) = self.deed.action() else {
                if self.letters.take(usize::MAX).is_empty() {
                    return Ok(End::Finished);
                }
                continue;
            };
            tokio::select! {
                biased;
                _ = stopped.changed() => return Ok(End::Stopped),
                () = pace.wait() => {}
            }
            let ids = self.letters.take(batch);
            if ids.is_empty() {
                return Ok(End::Finished);
            }
            let outcomes = act::apply(&self.queue, ids, action).await?;
            let done = outcomes.iter().filter(|outcome| outcome.done).count();
            let mut progress = locked(&self.progress);
            progress.done += done as u64;
            progress.not_done += (outcomes.len() - done) as u64;
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Nothing panics while it is locked.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) const MOST_RATE: u32 = 100_000;
pub(crate) const MOST_LIMIT: u64 = 1_000_000_000;
/// As many as a page of dead letters looks at.
const MOST_SURVEYED: u64 = 1_000;
