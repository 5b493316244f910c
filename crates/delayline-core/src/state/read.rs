//! The read-only operations.

use std::ops::{Bound, RangeInclusive};

use bytes::Bytes;

use super::entry::{Entry, Place};
use super::index::keys_of;
use super::{Index, State, first};
use crate::limits::{MAX_BATCH_BYTES, MAX_OLDEST_LANES};
use crate::{
    Check, Checked, Completion, Forecast, Found, History, HistoryPoint, List, Message, MessageId,
    MessageState, Millis, Page, Position, Priority, Resolution, Stats, Status, Timestamp,
};

/// The indexes in the order of the audit: the priorities, leased, dead, lanes, groups.
const ALL_INDEXES: RangeInclusive<u8> = 0..=Position::GROUPED;

impl State {
    pub(super) fn get(&self, now: Timestamp, id: &MessageId) -> Found {
        match (self.entries.get(id), self.finished.get(now, id)) {
            (Some(entry), _) => {
                let behind = self.in_front(now, entry).cloned();
                let may_be_held = entry.group.is_some() && entry.state(now) == MessageState::Ready;
                let group_held_until =
                    may_be_held.then(|| self.turns.held_until(entry.lane(), now)).flatten();
                let message = Message { behind, group_held_until, ..entry.looked_up(now) };
                Found::Live(Box::new(message))
            }
            (None, Some(past)) => Found::Finished(past.status),
            (None, None) => Found::Unknown,
        }
    }

    /// The message of the group that a ready message waits for, in a queue in order: the first that
    /// holds a slot, or one that is leased if the message is the first itself, or else the head of
    /// the lane.
    fn in_front(&self, now: Timestamp, entry: &Entry) -> Option<&MessageId> {
        let is_ready = entry.state(now) == MessageState::Ready;
        if entry.group.is_none() || !is_ready || !self.limiter.is_in_order() {
            return None;
        }
        let mut holders = self.slots.range(keys_of(entry.lane())).map(|(_, id)| id);
        let is_leased = |id: &&MessageId| {
            let entry = self.entries.get(id);
            entry.is_some_and(|entry| matches!(entry.place, Place::Leased { .. }))
        };
        match holders.next() {
            Some(first) if *first == entry.id => holders.find(is_leased),
            Some(first) => Some(first),
            None => {
                let (key, head) = self.lanes.range(keys_of(entry.lane())).next()?;
                (*key < entry.slot_key()).then_some(head)
            }
        }
    }

    /// Tells of each message how far it has come, and stops before results exceed
    /// [`MAX_BATCH_BYTES`].
    pub(super) fn progress(&self, now: Timestamp, ids: &[MessageId]) -> Vec<Completion> {
        let mut bytes = 0;
        let fits = |progress: &Completion| {
            bytes += progress.result().map_or(0, Bytes::len);
            bytes <= MAX_BATCH_BYTES
        };
        ids.iter().map(|id| self.progress_of(now, id)).take_while(fits).collect()
    }

    fn progress_of(&self, now: Timestamp, id: &MessageId) -> Completion {
        if let Some(entry) = self.entries.get(id) {
            return match entry.place {
                Place::Dead { reason, .. } => Completion::Dead(reason),
                Place::Waiting | Place::Lane | Place::Leased { .. } => Completion::Pending,
            };
        }
        let kept = self.results.get(now, id);
        match self.finished.get(now, id) {
            Some(past) => {
                // What replaced an acked message knows the lease of that ack, too.
                let is_acked = past.status == Status::Acked;
                let own = kept.filter(|kept| is_acked && past.lease == Some(kept.lease));
                Completion::Finished { status: past.status, result: own.map(|it| it.bytes.clone()) }
            }
            None => kept.map_or(Completion::Unknown, |kept| Completion::Finished {
                status: Status::Acked,
                result: Some(kept.bytes.clone()),
            }),
        }
    }

    pub(super) fn list(&self, now: Timestamp, list: &List) -> Page {
        let mut indexes: Vec<u8> = match list.status {
            Status::Scheduled | Status::Ready => (0..=Priority::Low.level()).collect(),
            Status::Leased => vec![Position::LEASED],
            Status::Dead => vec![Position::DEAD],
            Status::Acked
            | Status::Cancelled
            | Status::Purged
            | Status::Relayed
            | Status::Replaced => {
                return Page::default();
            }
        };
        match list.status {
            Status::Ready => indexes.extend([Position::LANES, Position::GROUPED]),
            Status::Scheduled => indexes.push(Position::GROUPED),
            _ => {}
        }
        let instants = match list.status {
            Status::Ready => Timestamp::MIN..=now,
            Status::Scheduled if now == Timestamp::MAX => return Page::default(),
            Status::Scheduled => now.after(Millis::saturating(1))..=Timestamp::MAX,
            _ => Timestamp::MIN..=Timestamp::MAX,
        };
        let found: Vec<_> = self.walk(indexes, &instants, list.after).take(list.limit).collect();
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
        let HistoryPoint { scheduled, ready, leased, dead, totals, .. } = self.point(now);
        Stats {
            scheduled,
            ready,
            leased,
            dead,
            paused: self.paused,
            limits: self.limiter.shown(now),
            earliest_due: self.waiting().filter_map(first).chain(self.oldest_in_lanes()).min(),
            waiting_groups: self.turns.groups() as u64,
            shard_skew: None,
            totals,
        }
    }

    /// When the first messages of the next lanes were due.
    fn oldest_in_lanes(&self) -> Option<Timestamp> {
        let held = self.turns.held().map(|(lane, _)| lane);
        let heads = self.turns.ring().chain(self.turns.blocked().rev()).chain(held.rev());
        let heads = heads.take(MAX_OLDEST_LANES).filter_map(|lane| self.head(lane));
        heads.filter_map(|id| self.entries.get(id)).map(|entry| entry.due).min()
    }

    pub(super) fn forecast(&self, now: Timestamp, delays: &[Millis]) -> Forecast {
        let mut from = Bound::Unbounded;
        let mut count_to = |instant| {
            let to = (instant, u64::MAX);
            let range = (from, Bound::Included(to));
            from = Bound::Excluded(to);
            let due: usize = self.waiting().map(|index| index.range(range).count()).sum();
            u64::try_from(due).unwrap_or(u64::MAX)
        };
        Forecast {
            ready: count_to(now) + u64::try_from(self.lanes.len()).unwrap_or(u64::MAX),
            due: delays.iter().map(|delay| count_to(now.after(*delay))).collect(),
            later: count_to(Timestamp::MAX),
        }
    }

    pub(super) fn history(&self, now: Timestamp, resolution: Resolution) -> History {
        let ring = match resolution {
            Resolution::Minutes => &self.minutes,
            Resolution::Hours => &self.hours,
        };
        History { points: ring.up_to(now).chain([self.point(now)]).collect() }
    }

    /// The model has nothing to find: its indexes and entries agree by construction, which
    /// [`check_invariants`](Self::check_invariants) asserts in tests. It pages as backends must.
    pub(super) fn check(&self, check: &Check) -> Checked {
        let found: Vec<_> = self
            .walk(ALL_INDEXES, &(Timestamp::MIN..=Timestamp::MAX), check.after)
            .take(check.limit)
            .map(|(at, _)| at)
            .collect();
        Checked {
            examined: u64::try_from(found.len()).unwrap_or(u64::MAX),
            findings: Vec::new(),
            next: found.last().copied().filter(|_| found.len() == check.limit),
        }
    }

    /// The messages of some indexes between two instants, index by index, starting after `after`.
    fn walk(
        &self,
        indexes: impl IntoIterator<Item = u8>,
        instants: &RangeInclusive<Timestamp>,
        after: Option<Position>,
    ) -> impl Iterator<Item = (Position, &MessageId)> {
        let (first, last) = (*instants.start(), *instants.end());
        indexes.into_iter().flat_map(move |number| {
            // Where a message of a lane has an instant in other indexes, it has the lane's number.
            let is_lane = number == Position::LANES;
            let (first, last) =
                if is_lane { (Timestamp::MIN, Timestamp::MAX) } else { (first, last) };
            let from = match after {
                Some(after) if after.index > number => None,
                Some(after) if after.index == number && after.instant >= first => {
                    Some(Bound::Excluded((after.instant, after.sequence)))
                }
                _ => Some(Bound::Included((first, 0))),
            };
            let entries = self.index(number).zip(from).into_iter();
            entries
                .flat_map(move |(index, from)| {
                    let entries = index.range((from, Bound::Unbounded));
                    entries.take_while(move |((instant, _), _)| *instant <= last)
                })
                .map(move |((instant, sequence), id)| {
                    (Position { index: number, instant: *instant, sequence: *sequence }, id)
                })
        })
    }

    fn index(&self, index: u8) -> Option<&Index> {
        match index {
            Position::LEASED => Some(&self.leased),
            Position::DEAD => Some(&self.dead),
            Position::LANES => Some(&self.lanes),
            Position::GROUPED => Some(&self.grouped),
            level => self.due.get(usize::from(level)),
        }
    }
}
