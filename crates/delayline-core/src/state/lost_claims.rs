//! Claims that a crash may undo although their messages were handed out.
//!
//! A backend that writes to a disk need not sync such a claim before it replies: a lost lease is as
//! good as an expired one, if no later lease of the message has the same epoch.

use super::{Place, State, first};
use crate::{ClaimId, Op, Timestamp};

impl State {
    /// Returns `true` if the queue can do without `op` at `now`, although it was executed and its
    /// messages were handed out: `op` is a claim that reclaims no lease, and the queue limits
    /// neither rates nor leases. After the loss, call [`skip_epochs`](Self::skip_epochs) before the
    /// next claim.
    ///
    /// All changes before `op` other than such claims must be durable first. Then no message is
    /// handed out by two lost claims, so skipping one epoch is enough.
    #[must_use]
    pub fn may_lose(&self, now: Timestamp, op: &Op) -> bool {
        let reclaims = first(&self.leased).is_some_and(|deadline| deadline <= now);
        matches!(op, Op::Claim(_)) && !reclaims && !self.limiter.has_limits()
    }

    /// Skips an epoch of each message that lost claims may have handed out by `until`: of those
    /// that wait, and were due by then. Settlements under earlier leases are stale from then on.
    pub fn skip_epochs(&mut self, until: Timestamp) {
        let mut skipped = 0;
        self.entries.change_all(|entry| {
            if matches!(entry.place, Place::Waiting) && entry.due <= until
                || matches!(entry.place, Place::Lane)
            {
                entry.epoch += 1;
                entry.life.claim_id = Some(ClaimId::from_bytes([0; ClaimId::BYTES]));
                entry.life.settled = None;
                skipped += 1;
            }
        });
        self.skipped_epochs += skipped;
    }
}
