//! Searches through the messages of a queue, in the background: by kind, header and content. Each
//! is for one viewer, and ends once its viewer has stopped asking for its progress.

pub(crate) mod run;
mod terms;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use delayline::message::MessageInfo;
use tokio::sync::watch;
use tokio::time::Instant;

pub(crate) use self::terms::Terms;
use crate::Rights;
use crate::failure::Failure;
use crate::lock::locked;

/// Running searches, and recent ones.
#[derive(Default)]
pub(crate) struct Searches(Mutex<VecDeque<Arc<Search>>>);

/// A search that was started. It ends when this is dropped.
pub(crate) struct Search {
    pub(crate) id: String,
    /// The visitor who has started it, and alone sees it.
    by: String,
    pub(crate) queue: String,
    pub(crate) terms: Terms,
    /// Number of messages in its states when it started.
    pub(crate) total: u64,
    begin: Instant,
    state: Arc<Mutex<State>>,
    stop: watch::Sender<bool>,
}

struct State {
    progress: Progress,
    /// When its viewer last asked for it.
    seen: Instant,
}

/// How far a search has come.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    pub(crate) examined: u64,
    /// Payload bytes that were read.
    pub(crate) bytes: u64,
    pub(crate) found: Vec<Match>,
    /// How it has ended, if it has.
    pub(crate) end: Option<End>,
}

/// A message that was found.
#[derive(Clone, Debug)]
pub(crate) struct Match {
    pub(crate) info: MessageInfo,
    pub(crate) kind: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) enum End {
    Finished,
    /// As many messages were found as are kept.
    Full,
    /// It has examined as much as a search may.
    Limited,
    Stopped,
    /// Its viewer has left.
    Abandoned,
    Failed(Arc<Failure>),
}

impl Progress {
    /// In a word.
    pub(crate) const fn state(&self) -> &'static str {
        match self.end {
            None => "running",
            Some(End::Finished) => "finished",
            Some(End::Full) => "full",
            Some(End::Limited) => "limited",
            Some(End::Stopped) => "stopped",
            Some(End::Abandoned) => "abandoned",
            Some(End::Failed(_)) => "failed",
        }
    }

    /// Why it has failed, as far as a visitor with these rights may know it.
    pub(crate) fn failure(&self, rights: Rights) -> Option<String> {
        match &self.end {
            Some(End::Failed(why)) => Some(why.detail_for(rights)),
            _ => None,
        }
    }
}

impl Search {
    /// How far it has come, for its viewer.
    pub(crate) fn progress(&self) -> Progress {
        // Asked first: the task says how it has ended before it lets go of its end of the channel.
        let alive = self.stop.receiver_count() > 0;
        let mut state = locked(&self.state);
        state.seen = Instant::now();
        let mut progress = state.progress.clone();
        if progress.end.is_none() && !alive {
            progress.end = Some(End::Failed(Arc::new(Failure::Aborted)));
        }
        progress
    }

    /// Whether it takes a place among those that run.
    fn is_running(&self) -> bool {
        let ended = locked(&self.state).progress.end.is_some();
        !ended && self.stop.receiver_count() > 0 && !*self.stop.borrow()
    }

    pub(crate) fn stop(&self) {
        self.stop.send_replace(true);
    }
}

impl Searches {
    /// The search of this id, if this visitor has started it on this queue.
    pub(crate) fn find(
        &self,
        visitor: &str,
        queue: &str,
        id: &str,
    ) -> Result<Arc<Search>, Failure> {
        let all = locked(&self.0);
        let is_own = |it: &&Arc<Search>| it.id == id && it.queue == queue && it.by == visitor;
        let none_such = || Failure::Unknown("there is no such search, or no longer".to_owned());
        all.iter().find(is_own).cloned().ok_or_else(none_such)
    }

    /// Adds a search unless too many run. Forgets old ones that have ended.
    fn add(&self, search: Arc<Search>) -> Result<(), Failure> {
        let mut all = locked(&self.0);
        if all.iter().filter(|search| search.is_running()).count() >= MOST_RUNNING {
            let why = format!("{MOST_RUNNING} searches are running; wait until one has ended");
            return Err(Failure::Busy(why));
        }
        all.retain(|search| search.is_running() || search.begin.elapsed() < REMEMBERED);
        while all.len() >= MOST_REMEMBERED {
            let Some(oldest) = all.iter().position(|search| !search.is_running()) else { break };
            all.remove(oldest);
        }
        all.push_back(search);
        Ok(())
    }
}

/// Searches that run at once, for all visitors together.
pub(crate) const MOST_RUNNING: usize = 4;
const MOST_REMEMBERED: usize = 32;
/// How long a search that has ended is remembered at least, counted from its start.
const REMEMBERED: Duration = Duration::from_secs(15 * 60);
