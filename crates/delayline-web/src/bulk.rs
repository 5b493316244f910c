//! Bulk actions on all dead letters that match, in the background. Each queue has one job at a
//! time, until it has ended, is stopped, or the router is dropped.

pub(crate) mod run;

use std::sync::{Arc, Mutex};

use delayline::Timestamp;
use delayline::backend::Schedule;
use delayline_admin::Groups;
use tokio::sync::watch;
use tokio::time::Instant;
use xxhash_rust::xxh3::xxh3_64;

use crate::action::Action;
use crate::asked::Asked;
use crate::failure::Failure;
use crate::lock::locked;
use crate::{Rights, Role};

/// The action for each letter.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BulkAction {
    /// It is only counted.
    Count,
    Redrive(Schedule),
    Purge,
}

impl BulkAction {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Redrive(_) => "redrive",
            Self::Purge => "purge",
        }
    }

    /// The action of a name; redriven messages are due then.
    pub(crate) fn named(name: &str, schedule: Schedule) -> Result<Self, Failure> {
        let known = [Self::Count, Self::Redrive(schedule), Self::Purge];
        known
            .into_iter()
            .find(|action| action.name() == name)
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

/// An action, its letters, and their maximum number.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) action: BulkAction,
    pub(crate) asked: Asked,
    /// How many a second at most.
    pub(crate) rate: Option<u32>,
    /// Maximum number, oldest first.
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
    /// The letters that match, if the job counts them.
    groups: Arc<Mutex<Groups>>,
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

    /// Returns why it has failed, as far as a visitor with these rights may know it.
    pub(crate) fn failure(&self, rights: Rights) -> Option<String> {
        match &self.end {
            Some(End::Failed(why)) => Some(why.detail_for(rights)),
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

    /// The letters that matched so far, grouped; none unless the job counts.
    pub(crate) fn groups(&self) -> Groups {
        locked(&self.groups).clone()
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

    /// The running job.
    pub(crate) fn running(&self) -> Option<Arc<Job>> {
        self.job().filter(|job| job.progress().end.is_none())
    }
}

/// Groups that a job keeps of the letters that it counts.
const MOST_GROUPS: usize = 200;

pub(crate) const MOST_RATE: u32 = 100_000;
pub(crate) const MOST_LIMIT: u64 = 1_000_000_000;
