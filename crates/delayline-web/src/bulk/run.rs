//! How jobs start, run and stop.

use std::sync::{Arc, Mutex};

use delayline::codec::Raw;
use delayline::message::MessageInfo;
use delayline::{Bytes, Queue, Timestamp};
use delayline_admin::{Groups, Letters, RateLimit};
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::Instant;
use tracing::Instrument as _;
use uuid::Uuid;

use super::{BulkAction, End, Job, MOST_GROUPS, Order, Progress};
use crate::Role;
use crate::action::apply;
use crate::asked::Asked;
use crate::audited::Audit;
use crate::context::Context;
use crate::failure::Failure;
use crate::lock::locked;
use crate::served::{Served, counted};

/// Starts a job on the letters that are dead now.
pub(crate) async fn start(
    context: &Context,
    queue: &str,
    order: Order,
) -> Result<Arc<Job>, Failure> {
    context.require(order.action.needs())?;
    let (name, served) = context.served(queue)?;
    let busy = || Failure::Busy("another job is running on this queue; wait or stop it".to_owned());
    if served.job.running().is_some() {
        return Err(busy());
    }
    let limit = order.limit.unwrap_or(u64::MAX);
    let groups = Arc::new(Mutex::new(Groups::new(MOST_GROUPS)));
    let grouped = matches!(order.action, BulkAction::Count).then(|| Arc::clone(&groups));
    let (letters, dead, started) =
        find(context, name, served, &order.asked, limit, grouped).await?;

    let mut slot = locked(&served.job.0);
    // Another request may have started a job meanwhile.
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
        groups,
        stop,
        order,
    });
    let (action, rate) = (job.order.action, job.order.rate);
    let audit = || Audit::new(context, action.audited_as(), name).of_job(&job.id);
    audit().with_order(&job.order).log("started");
    let work =
        Work { queue: served.queue.clone(), letters, action, progress: job.progress.clone() };
    let task = work.run(RateLimit::new(rate), stopped, audit());
    tokio::spawn(task.in_current_span());
    *slot = Some(Arc::clone(&job));
    Ok(job)
}

/// The letters that are dead now and match, how many are dead in all, and the time of the server.
/// `grouped` gets the matching letters as visitors may see them.
async fn find(
    context: &Context,
    name: &str,
    served: &Served,
    asked: &Asked,
    limit: u64,
    grouped: Option<Arc<Mutex<Groups>>>,
) -> Result<(Letters<'static>, u64, Timestamp), Failure> {
    let filter = asked.filter()?;
    let listing = served.queue.dead_letters().await?;
    let (stats, now) = counted(&served.queue).await?;
    let wanted = filter.at(listing.until().unwrap_or(now));
    // What visitors are not to see does not count.
    let (shown, passing, of) = (context.shared.redactor(), wanted.clone(), name.to_owned());
    let passes = move |letter: &MessageInfo| {
        let letter = shown(&of, letter.clone());
        let passes = passing.matches(&letter);
        if let Some(groups) = grouped.as_ref().filter(|_| passes) {
            locked(groups).add(&letter);
        }
        passes
    };
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

/// Searches up to [`MOST_SURVEYED`] dead letters for matches.
pub(crate) async fn survey(context: &Context, queue: &str, asked: &Asked) -> Result<Seen, Failure> {
    let (name, served) = context.served(queue)?;
    let (mut letters, dead, _) = find(context, name, served, asked, u64::MAX, None).await?;
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
    action: BulkAction,
    progress: Arc<Mutex<Progress>>,
}

impl Work {
    async fn run(
        mut self,
        rate_limit: RateLimit,
        mut stopped: watch::Receiver<bool>,
        audit: Audit,
    ) {
        let end = match self.go(rate_limit, &mut stopped).await {
            Ok(end) => end,
            Err(failure) => End::Failed(Arc::new(failure)),
        };
        let progress = {
            let mut progress = locked(&self.progress);
            progress.end = Some(end);
            progress.clone()
        };
        let Progress { matched, done, not_done, .. } = progress;
        let why =
            progress.failure(Role::Admin.into()).map(|why| format!(": {why}")).unwrap_or_default();
        let state = progress.state();
        let outcome = format!("{state}, matched {matched}, done {done}, not done {not_done}{why}");
        audit.of(done).log(&outcome);
    }

    /// Runs the job to its end. `stopped` changes, or its sender is dropped, when the job is to
    /// stop.
    async fn go(
        &mut self,
        mut rate_limit: RateLimit,
        stopped: &mut watch::Receiver<bool>,
    ) -> Result<End, Failure> {
        let batch = rate_limit.batch();
        loop {
            // A queue in this process never makes the task wait.
            yield_now().await;
            while !self.letters.has(batch) {
                yield_now().await;
                tokio::select! {
                    biased;
                    _ = stopped.changed() => return Ok(End::Stopped),
                    read = self.letters.read() => read?,
                }
                let mut progress = locked(&self.progress);
                progress.examined = self.letters.examined();
                progress.matched = self.letters.matched();
            }
            let Some(action) = self.action.action() else {
                if self.letters.take(usize::MAX).is_empty() {
                    return Ok(End::Finished);
                }
                continue;
            };
            tokio::select! {
                biased;
                _ = stopped.changed() => return Ok(End::Stopped),
                () = rate_limit.wait() => {}
            }
            let ids = self.letters.take(batch);
            if ids.is_empty() {
                return Ok(End::Finished);
            }
            let outcomes = apply(&self.queue, ids, action).await?;
            let done = outcomes.iter().filter(|outcome| outcome.done).count();
            let mut progress = locked(&self.progress);
            progress.done += done as u64;
            progress.not_done += (outcomes.len() - done) as u64;
        }
    }
}

/// As many as a page of dead letters looks at.
const MOST_SURVEYED: u64 = 1_000;
