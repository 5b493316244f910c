//! Reading schedules, their next instants and the outcomes of their last ones.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, SystemTime};

use delayline_core::{QueueName, Status, Timestamp};

use super::{Overlap, PAUSED_MS, Schedules, Spec, fire, ids, system_time, text};
use crate::admin::Listed;
use crate::{Error, Found};

/// A schedule, as returned by [`Schedules::list`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Entry {
    /// Its name, which is `OWNER/NAME` after [`Schedules::declare`].
    pub name: String,
    /// The spec, or `None` if this version cannot read it: a newer version has written it, this
    /// machine does not know its time zone, or the message is not a schedule.
    pub spec: Option<Spec>,
    /// When it was put first, by the server's clock.
    pub created: SystemTime,
    /// Whether it is paused.
    pub is_paused: bool,
    /// Whether its message is a dead letter, so that it has no instants until it is
    /// [resumed](Schedules::resume) or put again.
    pub is_dead: bool,
    /// The next ten instants at most; empty if it is paused or dead, or cannot be read.
    pub next: Vec<SystemTime>,
    /// How long ago the first instant passed whose message has not been sent, or zero. More than
    /// a few seconds mean that no scheduler runs, that the queue of schedules is paused, or that
    /// the target queue accepts no messages.
    pub overdue: Duration,
}

/// The latest past instant of a schedule, as returned by [`Schedules::last_ticks`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LastTick {
    /// The instant.
    pub instant: SystemTime,
    /// The id of its message in the target queue.
    pub id: String,
    /// The status of its message; for a schedule that [skips](Overlap::Skip), that of the latest
    /// message. `None` if the target queue does not know the message, for example because it
    /// finished hours ago, or if the target queue cannot be read.
    pub status: Option<Status>,
}

impl Schedules {
    /// Returns all schedules, with their next ten instants, in the order of their names.
    ///
    /// # Cancel safety
    ///
    /// This call changes nothing; its future can be dropped.
    ///
    /// # Errors
    ///
    /// Like [`Queue::list`](crate::Queue::list).
    pub async fn list(&self) -> Result<Vec<Entry>, Error> {
        self.list_within(usize::MAX).await
    }

    /// Like [`list`](Self::list), but returns at most `most` schedules: those with the nearest next
    /// instants.
    ///
    /// # Cancel safety
    ///
    /// This call changes nothing; its future can be dropped.
    ///
    /// # Errors
    ///
    /// Like [`list`](Self::list).
    pub async fn list_within(&self, most: usize) -> Result<Vec<Entry>, Error> {
        let now = self.now().await?;
        let names = self.names(most).await?;
        let mut entries = Vec::new();
        for names in names.chunks(LOOK_UP) {
            let found = self.queue.get_many(names.iter().map(String::as_str)).await?;
            for (name, found) in names.iter().zip(found) {
                entries.extend(entry(name, found, now));
            }
        }
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(entries)
    }

    /// Returns a schedule with its next ten instants, or `None` if no schedule has this name.
    ///
    /// # Cancel safety
    ///
    /// This call changes nothing; its future can be dropped.
    ///
    /// # Errors
    ///
    /// Like [`Queue::get`](crate::Queue::get).
    pub async fn get(&self, name: &str) -> Result<Option<Entry>, Error> {
        let now = self.now().await?;
        Ok(entry(name, self.queue.get(name).await?, now))
    }

    /// Returns how long ago the first instant of all schedules passed whose message has not been
    /// sent, or zero: see [`Entry::overdue`]. Of many due schedules, only the earliest are looked
    /// up.
    ///
    /// # Cancel safety
    ///
    /// This call changes nothing; its future can be dropped.
    ///
    /// # Errors
    ///
    /// Like [`list`](Self::list).
    pub async fn overdue(&self) -> Result<Duration, Error> {
        let now = self.now().await?;
        let mut longest = Duration::ZERO;
        for status in [Listed::Ready, Listed::Leased] {
            let page = self.queue.list(status).next_page().await?.unwrap_or_default();
            let names: Vec<_> = page.iter().filter_map(|info| text(&info.id)).collect();
            let found = self.queue.get_many(names.iter().map(String::as_str)).await?;
            let entries = names.iter().zip(found).filter_map(|(name, it)| entry(name, it, now));
            longest = entries.map(|entry| entry.overdue).chain([longest]).max().unwrap_or(longest);
        }
        Ok(longest)
    }

    /// Returns the latest instant of each schedule, in order, with the status of its message.
    /// `None` for a schedule without an instant in the last 31 days, or since it was created.
    ///
    /// Each schedule costs one look-up in its target queue; an operation does up to 16 of them.
    ///
    /// # Cancel safety
    ///
    /// This call changes nothing; its future can be dropped.
    ///
    /// # Errors
    ///
    /// Like [`Queue::server_time`](crate::Queue::server_time). If a target queue cannot be read,
    /// the statuses of its messages are `None`.
    pub async fn last_ticks(&self, entries: &[Entry]) -> Result<Vec<Option<LastTick>>, Error> {
        let now = self.now().await?;
        let mut by_queue: BTreeMap<&QueueName, Vec<usize>> = BTreeMap::new();
        let mut last = Vec::with_capacity(entries.len());
        for (index, entry) in entries.iter().enumerate() {
            let tick = entry.spec.as_ref().and_then(|spec| Some((spec, spec.previous(now)?)));
            last.push(tick.map(|(spec, instant)| {
                by_queue.entry(spec.queue_name()).or_default().push(index);
                LastTick {
                    instant: system_time(instant),
                    id: match spec.overlap_rule() {
                        Overlap::Skip => ids::skipping_id(&entry.name),
                        Overlap::Allow => ids::tick_id(&entry.name, instant, 0),
                    },
                    status: None,
                }
            }));
        }
        for (queue, wanted) in by_queue {
            self.find_statuses(queue, entries, &wanted, &mut last).await;
        }
        for (last, entry) in last.iter_mut().zip(entries) {
            last.take_if(|last| last.status.is_none() && last.instant < entry.created);
        }
        Ok(last)
    }

    /// Sets the statuses of the wanted ticks, whose target is this queue.
    async fn find_statuses(
        &self,
        queue: &QueueName,
        entries: &[Entry],
        wanted: &[usize],
        last: &mut [Option<LastTick>],
    ) {
        let ids = wanted.iter().filter_map(|&index| last[index].as_ref()).map(|it| it.id.clone());
        let Ok(statuses) = self.statuses(queue, ids.collect()).await else { return };
        for (&index, status) in wanted.iter().zip(statuses) {
            let Some(last) = &mut last[index] else { continue };
            last.status = status;
            let Entry { name, spec, .. } = &entries[index];
            let skips = spec.as_ref().is_none_or(|spec| spec.overlap_rule() == Overlap::Skip);
            if status != Some(Status::Cancelled) || skips {
                continue;
            }
            // A change of the spec has cancelled it, and a later message may have replaced it.
            let tick = ms(last.instant);
            let ids = (1..fire::MOST_REVISIONS).map(|revision| ids::tick_id(name, tick, revision));
            let ids: Vec<_> = ids.collect();
            let Ok(later) = self.statuses(queue, ids.clone()).await else { return };
            let mut later =
                ids.into_iter().zip(later).filter_map(|(id, status)| Some((id, status?)));
            if let Some((id, status)) = later.next_back() {
                (last.id, last.status) = (id, Some(status));
            }
        }
    }

    /// The statuses of messages of a target queue, in order; `None` for an unknown message.
    async fn statuses(
        &self,
        queue: &QueueName,
        ids: Vec<String>,
    ) -> Result<Vec<Option<Status>>, Error> {
        let found = self.target(queue).await?.get_many(ids).await?;
        let statuses = found.into_iter().map(|found| match found {
            Found::Live(message) => Some(message.info.state.status()),
            Found::Finished(status) => Some(status),
            _ => None,
        });
        Ok(statuses.collect())
    }

    /// The names of at most this number of schedules, due ones first. A schedule that is
    /// being handled may change its status at any time. So the statuses are read in the order of
    /// its life cycle, and all but the dead twice.
    pub(super) async fn names(&self, most: usize) -> Result<Vec<String>, Error> {
        let due = [Listed::Ready, Listed::Leased];
        let cycle = [Listed::Scheduled, Listed::Ready, Listed::Leased, Listed::Dead];
        let mut names = Vec::new();
        let mut seen = HashSet::new();
        for status in due.into_iter().chain(cycle).chain([Listed::Scheduled]) {
            let mut pages = self.queue.list(status);
            while names.len() < most
                && let Some(page) = pages.next_page().await?
            {
                let page = page.into_iter().filter_map(|info| text(&info.id));
                names.extend(page.filter(|name| seen.insert(name.clone())));
            }
        }
        names.truncate(most);
        Ok(names)
    }
}

/// The schedule, or `None` if it has been removed.
fn entry(name: &str, found: Found<Spec>, now: u64) -> Option<Entry> {
    let (info, spec) = match found {
        Found::Live(message) => (message.info, Some(message.payload)),
        Found::Undecodable { message, .. } => (message.info, None),
        _ => return None,
    };
    let (created, due) = (info.enqueued_at.into(), info.due.as_ms());
    let (is_paused, is_dead) = (due >= PAUSED_MS, info.state.status() == Status::Dead);
    let running = spec.as_ref().filter(|_| !is_paused && !is_dead);
    // Ticks that were created ahead of time are still to come.
    let next = running.into_iter().flat_map(|spec| spec.upcoming(system_time(now))).take(SHOWN);
    // The schedule is due one lead before the first tick that has no message.
    let overdue = running.map_or(0, |spec| now.saturating_sub(due.saturating_add(spec.lead_ms())));
    let (next, overdue) = (next.collect(), Duration::from_millis(overdue));
    Some(Entry { name: name.to_owned(), spec, created, is_paused, is_dead, next, overdue })
}

fn ms(instant: SystemTime) -> u64 {
    Timestamp::try_from(instant).map_or(0, Timestamp::as_ms)
}

/// The number of schedules that one call looks up.
const LOOK_UP: usize = 256;
/// Maximum number of next instants of an entry.
const SHOWN: usize = 10;

#[cfg(all(test, feature = "testing"))]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;
    use crate::testing::TestConnection;

    #[tokio::test(start_paused = true)]
    async fn of_too_many_schedules_those_that_are_due_are_named() {
        let test = TestConnection::new();
        let schedules = Schedules::open(test.connection()).await.unwrap();
        for (name, hours) in [("late", 1), ("b", 24), ("c", 24)] {
            let spec = Spec::every(Duration::from_secs(hours * 3_600), "work").unwrap();
            schedules.put(name, &spec.payload("tick").unwrap()).await.unwrap();
        }
        test.advance(Duration::from_secs(2 * 3_600));
        for most in [1, 2] {
            let entries = schedules.list_within(most).await.unwrap();
            assert_eq!(entries.len(), most);
            assert!(entries.iter().any(|it| it.name == "late" && it.overdue > Duration::ZERO));
        }
    }
}
