//! How searches start and run.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use delayline::Bytes;
use delayline::message::Message;
use delayline_admin::MessageSearch;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::Instrument as _;
use uuid::Uuid;

use super::{End, Match, Progress, Search, State, Terms};
use crate::audited::Audit;
use crate::context::Context;
use crate::failure::Failure;
use crate::lock::locked;

/// Starts a search. It replaces an earlier one of the visitor, if that is given by its id.
pub(crate) async fn start(
    context: &Context,
    queue: &str,
    terms: Terms,
    replaces: Option<&str>,
) -> Result<Arc<Search>, Failure> {
    context.require(context.shared.contents_for)?;
    let (name, served) = context.served(queue)?;
    let wanted = terms.wanted()?;
    let (stats, _) = served.counts_for(false).await?;
    let searches = &context.shared.searches;
    if let Some(earlier) =
        replaces.and_then(|id| searches.find(&context.visitor.name, name, id).ok())
    {
        earlier.stop();
    }
    let of = MessageSearch::new(served.queue.clone(), terms.states(), wanted);
    let (redact, of_queue) = (context.shared.redact.clone(), name.to_owned());
    let of = of.seeing(move |message| {
        if let Some(redact) = &redact {
            redact(&of_queue, message);
        }
    });
    let (stop, stopped) = watch::channel(false);
    let begin = Instant::now();
    let state = Arc::new(Mutex::new(State { progress: Progress::default(), seen: begin }));
    let search = Arc::new(Search {
        id: Uuid::new_v4().simple().to_string(),
        by: context.visitor.name.clone(),
        queue: name.to_owned(),
        total: terms.total(&stats),
        terms,
        begin,
        state: Arc::clone(&state),
        stop,
    });
    searches.add(Arc::clone(&search))?;
    let audit = Audit::new(context, "search", name).of_job(&search.id);
    let work = Work { of, state, stopped, begin };
    tokio::spawn(work.run(audit).in_current_span());
    Ok(search)
}

struct Work {
    of: MessageSearch,
    state: Arc<Mutex<State>>,
    /// Changes, or its sender is dropped, when the search is to stop.
    stopped: watch::Receiver<bool>,
    begin: Instant,
}

impl Work {
    async fn run(mut self, audit: Audit) {
        let end = self.go().await.unwrap_or_else(|failure| End::Failed(Arc::new(failure)));
        let progress = {
            let mut state = locked(&self.state);
            state.progress.end = Some(end);
            state.progress.clone()
        };
        let Progress { examined, found, .. } = &progress;
        // Without the texts, which may be a part of a payload.
        let outcome = format!("{}, examined {examined}", progress.state());
        audit.of(found.len() as u64).log(&outcome);
    }

    async fn go(&mut self) -> Result<End, Failure> {
        loop {
            if let Some(end) = self.bound() {
                return Ok(end);
            }
            let step = tokio::select! {
                biased;
                _ = self.stopped.changed() => return Ok(End::Stopped),
                step = self.of.step() => step?,
            };
            let Some(matching) = step else { return Ok(End::Finished) };
            self.keep(matching);
            // A queue in this process never makes the task wait.
            tokio::task::yield_now().await;
        }
    }

    /// Keeps messages that were found, and how far the search has come.
    fn keep(&self, matching: Vec<Message<Bytes>>) {
        let mut state = locked(&self.state);
        let progress = &mut state.progress;
        (progress.examined, progress.bytes) = (self.of.examined(), self.of.bytes());
        progress.found.extend(matching.into_iter().map(|message| Match {
            kind: message.headers.kind().map(str::to_owned),
            info: message.info,
        }));
        progress.found.truncate(MOST_FOUND);
    }

    /// What ends the search before its last message.
    fn bound(&self) -> Option<End> {
        let state = locked(&self.state);
        let Progress { examined, bytes, found, .. } = &state.progress;
        if found.len() >= MOST_FOUND {
            return Some(End::Full);
        }
        if state.seen.elapsed() >= MOST_UNSEEN {
            return Some(End::Abandoned);
        }
        let is_over =
            *examined >= MOST_EXAMINED || *bytes >= MOST_BYTES || self.begin.elapsed() >= MOST_TIME;
        is_over.then_some(End::Limited)
    }
}

/// Messages that a search finds at most.
pub(crate) const MOST_FOUND: usize = 200;
/// Messages that it examines.
pub(crate) const MOST_EXAMINED: u64 = 1_000_000;
/// Payload bytes that it reads.
const MOST_BYTES: u64 = 1 << 30;
/// How long it may run.
const MOST_TIME: Duration = Duration::from_secs(5 * 60);
/// How long its viewer may be away.
const MOST_UNSEEN: Duration = Duration::from_secs(30);
