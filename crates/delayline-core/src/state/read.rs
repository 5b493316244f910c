//! The operations that change nothing.

use super::{Index, State, first, up_to};
use crate::{
    Check, Checked, Found, List, MessageId, Page, Position, Priority, Stats, Status, Timestamp,
};

/// The indexes in the order of the audit: the priorities, the leased, the dead.
const ALL_INDEXES: std::ops::RangeInclusive<u8> = 0..=Position::DEAD;

impl State {
    pub(super) fn get(&self, now: Timestamp, id: &MessageId) -> Found {
        match (self.entries.get(id), self.finished.get(now, id)) {
            (Some(entry), _) => Found::Live(Box::new(entry.message(now))),
            (None, Some(past)) => Found::Finished(past.status),
            (None, None) => Found::Unknown,
        }
    }

    pub(super) fn list(&self, now: Timestamp, list: &List) -> Page {
        let indexes = match list.status {
            Status::Scheduled | Status::Ready => 0..=Priority::Low.level(),
            Status::Leased => Position::LEASED..=Position::LEASED,
            Status::Dead => Position::DEAD..=Position::DEAD,
            Status::Acked | Status::Cancelled | Status::Purged => return Page::default(),
        };
        let listed = |position: &Position| match list.status {
            Status::Scheduled => position.instant > now,
            Status::Ready => position.instant <= now,
            _ => true,
        };
        let found: Vec<_> = self
            .walk(indexes, list.after)
            .filter(|(position, _)| listed(position))
            .take(list.limit)
            .collect();
        let next = found.last().map(|(position, _)| *position);
        Page {
            next: next.filter(|_| found.len() == list.limit),
            messages: found
                .into_iter()
                .filter_map(|(_, id)| self.entries.get(id))
                .map(|entry| entry.info(now))
                .collect(),
        }
    }

    pub(super) fn stats(&self, now: Timestamp) -> Stats {
        let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        let waiting: usize = self.due.iter().map(Index::len).sum();
        let ready: usize = self.due.iter().map(|index| up_to(index, now).count()).sum();
        Stats {
            scheduled: count(waiting - ready),
            ready: count(ready),
            leased: count(self.leased.len()),
            dead: count(self.dead.len()),
            paused: self.paused,
            earliest_due: self.due.iter().filter_map(first).min(),
            enqueued_total: self.sequence,
            acked_total: self.acked,
            cancelled_total: self.cancelled,
            purged_total: self.purged,
            expired_total: self.expired,
        }
    }

    /// The model has nothing to find: its indexes and entries agree by construction, which
    /// [`check_invariants`](Self::check_invariants) asserts in tests. It pages as a backend must.
    pub(super) fn check(&self, check: &Check) -> Checked {
        let found: Vec<_> =
            self.walk(ALL_INDEXES, check.after).take(check.limit).map(|(at, _)| at).collect();
        Checked {
            examined: u64::try_from(found.len()).unwrap_or(u64::MAX),
            findings: Vec::new(),
            next: found.last().copied().filter(|_| found.len() == check.limit),
        }
    }

    /// The messages of some indexes, one index after the other, from `after` on.
    fn walk(
        &self,
        indexes: std::ops::RangeInclusive<u8>,
        after: Option<Position>,
    ) -> impl Iterator<Item = (Position, &MessageId)> {
        indexes
            .flat_map(|index| {
                self.index(index).into_iter().flatten().map(move |entry| (index, entry))
            })
            .map(|(index, ((instant, sequence), id))| {
                (Position { index, instant: *instant, sequence: *sequence }, id)
            })
            .filter(move |(position, _)| after.is_none_or(|after| *position > after))
    }

    fn index(&self, index: u8) -> Option<&Index> {
        match index {
            Position::LEASED => Some(&self.leased),
            Position::DEAD => Some(&self.dead),
            level => self.due.get(usize::from(level)),
        }
    }
}
