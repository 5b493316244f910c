//! The state of all queues at a glance: which need an operator, and how each does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use delayline::Timestamp;
use delayline::admin::Stats;
use futures_util::future::join_all;
use tracing::Instrument as _;

use crate::context::Context;
use crate::failure::Failure;
use crate::latest::stamp;
use crate::served::{ROW_AGE, Recent, Served};

/// What a queue needs, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    /// It cannot be read.
    Unread,
    /// Messages are due, no listed worker handles the queue, and nothing was delivered lately.
    Worker,
    /// The oldest message has been due for some time.
    Behind,
    /// Messages are due, and an operator stops deliveries.
    Stopped,
    Nothing,
}

/// A queue of the first page.
pub(crate) struct Row<'a> {
    pub(crate) name: &'a str,
    pub(crate) need: Need,
    /// Handlers of all processes. `None` if processes are not listed.
    pub(crate) handlers: Option<u32>,
    pub(crate) recent: Result<Recent, Failure>,
}

/// The queues that the first page shows.
pub(crate) struct Survey<'a> {
    pub(crate) rows: Vec<Row<'a>>,
    /// The part of the name that all have.
    pub(crate) filter: &'a str,
    /// Queues that match, and the number of the page.
    pub(crate) matching: usize,
    pub(crate) page: usize,
    /// Number of matching queues by need.
    pub(crate) needs: BTreeMap<Need, usize>,
}

impl<'a> Survey<'a> {
    /// Reads the queues of the page that the query asks for. Only their rows are kept up to date;
    /// the other queues keep the place of their last counts.
    pub(crate) async fn of(context: &'a Context) -> Self {
        let filter = context.params.text("name").unwrap_or_default();
        let wanted = filter.to_lowercase();
        let handlers = handlers(context).await;
        let matching =
            context.known.queues.iter().filter(|(name, _)| name.to_lowercase().contains(&wanted));
        let matching: Vec<(&String, &Arc<Served>)> = matching.collect();
        let is_cut = matching.len() > MOST_ROWS;
        let page = context.params.text("page").and_then(|it| it.parse().ok()).unwrap_or(1_usize);
        let page = page.min(matching.len().div_ceil(MOST_ROWS)).max(1);
        // If many queues have no workers, the pages wait for the history of a few at a time.
        let reads = AtomicUsize::new(0);
        let may_read = |served: &Served| {
            served.knows_history() || reads.fetch_add(1, Ordering::Relaxed) < AWAITED_ROWS
        };
        let placed = matching.iter().map(|(name, served)| {
            let (handlers, may_read) = (handlers.as_ref(), &may_read);
            async move {
                // One page has all rows, and the order follows from them.
                let last = if is_cut {
                    served.surveyed().await
                } else {
                    served.counts_within(ROW_AGE).await.ok()
                };
                let of = handlers.map(|it| it.get(name.as_str()).copied().unwrap_or_default());
                let need = match need(last, of) {
                    Need::Worker if !may_read(served) || !is_idle(served, last).await => {
                        Need::Behind
                    }
                    need => need,
                };
                (need, of, name.as_str(), *served)
            }
        });
        let mut placed = one_then_all(placed).await;
        let mut needs = BTreeMap::new();
        placed.iter().for_each(|(need, ..)| *needs.entry(*need).or_default() += 1);
        placed.sort_by_key(|(need, _, name, _)| (*need, *name));
        let shown = placed.iter().skip((page - 1).saturating_mul(MOST_ROWS)).take(MOST_ROWS);
        let shown: Vec<_> = shown.collect();
        read_more(shown.iter().map(|(.., served)| Arc::clone(served))).await;
        let rows = shown.into_iter().map(|&(need, handlers, name, served)| async move {
            Row { name, need, handlers, recent: served.recent().await }
        });
        Self { rows: join_all(rows).await, filter, matching: matching.len(), page, needs }
    }

    pub(crate) fn pages(&self) -> usize {
        self.matching.div_ceil(MOST_ROWS)
    }

    /// Needs and counts of the rows, and whether their past and future is known.
    pub(crate) fn stamp(&self) -> String {
        let known = |it: &Recent| (it.stats, it.history.is_some(), it.ahead.is_some());
        let rows = self.rows.iter().map(|row| (row.need, row.recent.as_ref().ok().map(known)));
        stamp(&rows.collect::<Vec<_>>())
    }
}

/// Reads past and future of rows. Those of the first rows are here when it returns, so that many
/// rows do not delay the page.
async fn read_more(mut rows: impl Iterator<Item = Arc<Served>>) {
    let read = |served: Arc<Served>| async move {
        if let Ok((_, now)) = served.counts_within(ROW_AGE).await {
            served.read_more(now).await;
        }
    };
    one_then_all(rows.by_ref().take(AWAITED_ROWS).map(read)).await;
    let others: Vec<_> = rows.collect();
    let others = join_all(others.into_iter().map(read));
    tokio::spawn(others.in_current_span());
}

/// Awaits the first future before the others: a server without the scripts gets each of them once.
async fn one_then_all<F: Future>(mut all: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut done = Vec::new();
    if let Some(first) = all.next() {
        done.push(first.await);
    }
    done.extend(join_all(all).await);
    done
}

/// Handlers by queue, or `None` unless all processes with workers are listed.
pub(crate) async fn handlers(context: &Context) -> Option<BTreeMap<String, u32>> {
    let list = context.shared.workers.as_ref()?.list(ROW_AGE).await?;
    let list = list.as_ref().as_ref().ok()?;
    let mut all = BTreeMap::new();
    for (queue, handlers) in list.processes.iter().flat_map(|process| &process.queues) {
        let of: &mut u32 = all.entry(queue.to_string()).or_default();
        *of = of.saturating_add(*handlers);
    }
    (list.complete && list.processes.iter().all(|it| it.more_queues == 0)).then_some(all)
}

/// Whether it is known that nothing takes messages. Relays, and consumers over HTTP, are in no list
/// of workers, so recent deliveries and relays count as well.
async fn is_idle(served: &Served, counts: Option<(Stats, Timestamp)>) -> bool {
    match counts {
        Some((stats, now)) => served.is_consumed(&stats, now).await == Some(false),
        None => false,
    }
}

/// What a queue needs by its counts. [`Need::Worker`] holds only if it [is idle](is_idle), too.
fn need(counts: Option<(Stats, Timestamp)>, handlers: Option<u32>) -> Need {
    let Some((stats, now)) = counts else { return Need::Unread };
    let late = stats.earliest_due.filter(|_| stats.ready > 0);
    let is_late = late.is_some_and(|due| now.since(due).as_secs() >= LATE_SECONDS);
    match is_late {
        false => Need::Nothing,
        true if stats.paused || stats.limits.held_until.is_some() => Need::Stopped,
        true if handlers == Some(0) && stats.leased == 0 => Need::Worker,
        true => Need::Behind,
    }
}

/// Rows of a page.
const MOST_ROWS: usize = 200;
/// Rows whose past and future a page waits for: about as many as are on the screen.
const AWAITED_ROWS: usize = 20;
/// A queue is behind from this lateness on.
pub(crate) const LATE_SECONDS: u64 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_ms(ms).unwrap()
    }

    #[test]
    fn the_need_of_a_queue_is_the_worst_that_applies() {
        let mut stats = Stats::default();
        let need_of = |stats: &Stats, handlers| need(Some((*stats, at(20_000))), handlers);
        assert_eq!((need(None, Some(1)), need_of(&stats, Some(0))), (Need::Unread, Need::Nothing));
        (stats.ready, stats.earliest_due) = (1, Some(at(10_001)));
        assert_eq!(need_of(&stats, Some(0)), Need::Nothing, "not late enough");
        stats.earliest_due = Some(at(10_000));
        assert_eq!(need_of(&stats, Some(0)), Need::Worker);
        assert_eq!([Some(2), None].map(|it| need_of(&stats, it)), [Need::Behind; 2]);
        stats.leased = 1;
        assert_eq!(need_of(&stats, Some(0)), Need::Behind, "an unlisted consumer holds a message");
        stats.paused = true;
        assert_eq!(need_of(&stats, Some(0)), Need::Stopped);
        assert!(Need::Unread < Need::Worker && Need::Stopped < Need::Nothing);
    }
}
