//! Snapshots of the past.

use super::index::count_up_to;
use super::{Index, State};
use crate::{HistoryPoint, Resolution, Timestamp};

impl State {
    /// Returns the queue as it was when the minute began and when the hour began, if there is no
    /// snapshot of this minute yet.
    pub(super) fn look_at_minute(&self, now: Timestamp) -> Option<[HistoryPoint; 2]> {
        let start = |resolution: Resolution| now.start_of(resolution.unit_ms());
        let minute = start(Resolution::Minutes);
        let points = || [minute, start(Resolution::Hours)].map(|at| self.point(at));
        (minute != self.minute).then(points)
    }

    pub(super) fn store_snapshot(&mut self, [minute, hour]: [HistoryPoint; 2]) {
        self.minutes.store(self.minute, minute);
        self.hours.store(self.minute, hour);
        self.minute = minute.at;
    }

    /// Returns what the queue is like, with the messages that are due at `at`.
    pub(super) fn point(&self, at: Timestamp) -> HistoryPoint {
        let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        let waiting: usize = self.waiting().map(Index::len).sum();
        let due: usize = self.waiting().map(|index| count_up_to(index, at)).sum();
        HistoryPoint {
            at,
            scheduled: count(waiting - due),
            ready: count(due + self.lanes.len()),
            leased: count(self.leased.len()),
            dead: count(self.dead.len()),
            totals: self.totals,
        }
    }
}
