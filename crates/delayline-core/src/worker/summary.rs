//! What a worker has done.

use crate::{Outcome, Schedule, Settled, Settlement, Status};

/// What a worker has done, counted by the settlements that the queues have confirmed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Messages handled and finished.
    pub acked: u64,
    /// Failures: errors, panics, timeouts, payloads that could not be decoded.
    pub failed: u64,
    /// Messages rejected by handlers, or because they could not be decoded and the worker rejects
    /// such messages.
    pub rejected: u64,
    /// How many of the failures and rejections made a dead letter.
    pub dead: u64,
    /// Messages that were cancelled while their handlers ran, and whose handlers then failed or
    /// rejected them.
    pub cancelled: u64,
    /// Messages snoozed by handlers.
    pub snoozed: u64,
    /// Messages released by handlers, or before they started: the worker stopped, or the reply to
    /// their claim was late and other queues were using its slots.
    pub released: u64,
    /// Settlements that were too late and changed nothing: another worker has the message, or it is
    /// gone.
    pub lost: u64,
    /// Settlements that were too late, or took effect: the reply to an attempt was lost. When it
    /// was repeated, the message had been claimed again or was gone.
    pub unclear: u64,
    /// Messages not settled when the worker gave up; they are redelivered when their leases expire.
    pub unsettled: u64,
}

impl Summary {
    /// Counts a settlement, an earlier attempt of which is `perhaps_done`. Returns when the
    /// message is due again, if it is.
    pub(super) fn note(
        &mut self,
        item: &Settlement,
        perhaps_done: bool,
        settled: Settled,
    ) -> Option<Schedule> {
        let status = match settled {
            Settled::Done { status } => Some(status),
            Settled::AlreadyDone { ended } => ended,
            Settled::Stale | Settled::Missing => {
                let counter = if perhaps_done { &mut self.unclear } else { &mut self.lost };
                *counter = counter.saturating_add(1);
                return None;
            }
        };
        let is_cancelled = status == Some(Status::Cancelled);
        let (counter, again) = match &item.outcome {
            // Neither counts a failure: the cancel ends the message.
            Outcome::Retry { .. } | Outcome::Undecodable { .. } | Outcome::Reject { .. }
                if is_cancelled =>
            {
                (&mut self.cancelled, None)
            }
            Outcome::Ack => (&mut self.acked, None),
            Outcome::Retry { schedule, .. } | Outcome::Undecodable { schedule, .. } => {
                (&mut self.failed, Some(*schedule))
            }
            Outcome::Snooze { schedule } => (&mut self.snoozed, Some(*schedule)),
            Outcome::Release => (&mut self.released, Some(Schedule::NOW)),
            Outcome::Reject { .. } => (&mut self.rejected, None),
        };
        *counter = counter.saturating_add(1);
        match status {
            Some(Status::Dead) => self.dead = self.dead.saturating_add(1),
            Some(Status::Scheduled | Status::Ready) => return again,
            // Its successor may be due at once.
            Some(Status::Replaced) => return Some(Schedule::NOW),
            _ => {}
        }
        None
    }
}

pub(super) fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}
