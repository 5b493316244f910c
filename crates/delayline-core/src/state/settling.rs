//! How leases end.

use super::entry::{Entry, OutcomeKind, Place};
use super::{Changes, State};
use crate::{DeathReason, Outcome, Settled, Settlement, Status, Timestamp};

impl State {
    /// For a message that has ended, or never existed.
    pub(super) fn settle_without_details(&self, now: Timestamp, item: &Settlement) -> Settled {
        let acks = item.outcome == Outcome::Ack;
        match self.finished.get(now, &item.id) {
            Some(past)
                if past.lease == Some(item.lease) && acks == (past.status == Status::Acked) =>
            {
                Settled::AlreadyDone { ended: Some(past.status) }
            }
            _ => Settled::Missing,
        }
    }

    /// Puts a message back into the queue, or buries it, and returns its status.
    fn give_back(&mut self, now: Timestamp, mut entry: Box<Entry>, item: &Settlement) -> Status {
        let outcome = &item.outcome;
        item.save.iter().for_each(|save| entry.save(save));
        entry.life.settled = Some((outcome.kind(), None));
        entry.place = Place::Waiting;
        match outcome {
            // An ack ends its message: see `end_lease`.
            Outcome::Ack => {}
            Outcome::Release => self.totals.released += 1,
            Outcome::Snooze { schedule } => {
                self.totals.snoozed += 1;
                entry.due = schedule.instant(now);
            }
            Outcome::Retry { schedule, error } | Outcome::Undecodable { schedule, error } => {
                self.totals.failed += 1;
                entry.failures += 1;
                entry.note_attempt(now, outcome.of_attempt(), error);
                if entry.failures >= entry.max_failures {
                    entry.place = self.bury(now, outcome.last_failure());
                } else {
                    entry.due = schedule.instant(now);
                }
            }
            Outcome::Reject { error } => {
                entry.note_attempt(now, outcome.of_attempt(), error);
                entry.place = self.bury(now, DeathReason::Rejected);
            }
        }
        let status = entry.state(now).status();
        self.look_at_slot(&mut entry);
        self.insert(entry);
        status
    }

    /// Ends the lease of a message, which is in no index, and returns the message's status.
    pub(super) fn end_lease(
        &mut self,
        now: Timestamp,
        entry: Box<Entry>,
        cancel_requested: bool,
        item: &Settlement,
        changes: &mut Changes,
    ) -> Status {
        let kind = item.outcome.kind();
        let status = match kind {
            OutcomeKind::Ack => Some(Status::Acked),
            _ if cancel_requested => Some(Status::Cancelled),
            _ => entry.life.follower.is_some().then_some(Status::Replaced),
        };
        if let Some(status) = status {
            match (status, kind) {
                (Status::Replaced, OutcomeKind::Retry | OutcomeKind::Undecodable) => {
                    self.totals.failed += 1;
                }
                (Status::Replaced, OutcomeKind::Snooze) => self.totals.snoozed += 1,
                (Status::Replaced, OutcomeKind::Release) => self.totals.released += 1,
                _ => {}
            }
            self.finish(now, entry, status, Some((item.lease, kind)), changes);
            status
        } else {
            self.give_back(now, entry, item)
        }
    }
}
