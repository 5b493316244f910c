//! The processes with workers and the leases that they hold: once for the page and the API.

use delayline::admin::Stats;
use delayline::{Error, Timestamp};
use delayline_admin::Holder;
use futures_util::future::join_all;

use crate::context::Context;
use crate::failure::Failure;
use crate::served::{Leases, Served};
use crate::workers::MOST_AGE;

/// The processes, as a visitor may see them.
pub(crate) struct WorkerReport {
    pub(crate) holders: Vec<Holder>,
    /// The counts of the visitor's queues, for the stamp of the page.
    pub(crate) counts: Vec<Option<Stats>>,
    /// The latest time of a server.
    pub(crate) now: Option<Timestamp>,
    /// Whether all processes are listed, and all messages that they hold.
    pub(crate) complete: bool,
    /// Why the processes, or some of them, cannot be listed.
    pub(crate) unlisted: Option<Error>,
    /// Whether more processes have workers than are listed.
    pub(crate) has_more: bool,
    /// The queues that cannot be read.
    pub(crate) unread: Vec<(String, Failure)>,
    /// The queues of which only the first leases were read.
    pub(crate) cut: Vec<String>,
    /// Whether there is a connection whose processes are listed.
    pub(crate) is_listed: bool,
}

impl WorkerReport {
    /// Reads the processes and the leases of all queues that exist for the visitor.
    pub(crate) async fn of(context: &Context, is_live: bool) -> Self {
        let workers = context.shared.workers.as_ref();
        let listed = async {
            match workers {
                Some(workers) => workers.list(MOST_AGE).await,
                None => None,
            }
        };
        let read = context
            .known
            .queues
            .iter()
            .map(|(name, served)| async move { (name, leases(served, is_live).await) });
        let (listed, read) = futures_util::join!(listed, join_all(read));
        let mut report = Self {
            holders: Vec::new(),
            counts: Vec::new(),
            now: None,
            complete: true,
            unlisted: None,
            has_more: false,
            unread: Vec::new(),
            cut: Vec::new(),
            is_listed: workers.is_some(),
        };
        let mut held = Vec::new();
        for (name, outcome) in read {
            match outcome {
                Ok((stats, at, (messages, more))) => {
                    report.counts.push(Some(stats));
                    report.now = report.now.max(Some(at));
                    report.cut.extend(Some(name.clone()).filter(|_| more));
                    let messages = context.redacted(name, messages).into_iter();
                    held.extend(messages.map(|info| (name.clone(), info)));
                }
                Err(failure) => {
                    report.counts.push(None);
                    report.unread.push((name.clone(), failure));
                }
            }
        }
        report.complete &= report.unread.is_empty() && report.cut.is_empty();
        let mut processes = Vec::new();
        match listed.as_deref() {
            Some(Ok(list)) => {
                processes.clone_from(&list.processes);
                report.complete &= list.complete;
                report.has_more = !list.complete && list.failure.is_none();
                report.unlisted.clone_from(&list.failure);
            }
            Some(Err(error)) => {
                report.complete = false;
                report.unlisted = Some(error.clone());
            }
            None => report.complete = false,
        }
        // Queues that do not exist for the visitor are left out, and so are processes that have
        // only such queues.
        for process in &mut processes {
            process.queues.retain(|queue, _| context.visitor.knows(queue.as_str()));
            if context.visitor.queues.is_some() {
                let of_queues = process.queues.values().copied().fold(0, u32::saturating_add);
                process.handlers = process.handlers.min(of_queues);
                process.more_queues = 0;
            }
        }
        report.holders = Holder::all(processes, held);
        if context.visitor.queues.is_some() {
            report.holders.retain(|holder| {
                let has_queues = holder.process.as_ref().is_some_and(|it| !it.queues.is_empty());
                has_queues || !holder.held.is_empty()
            });
        }
        report
    }
}

/// The counts of a queue, and its leases that end first.
async fn leases(served: &Served, is_live: bool) -> Result<(Stats, Timestamp, Leases), Failure> {
    let (stats, at) = served.counts_for(is_live).await?;
    let leases = if stats.leased > 0 { served.leases().await? } else { Leases::default() };
    Ok((stats, at, leases))
}
