//! The limits of a queue, judged by its deliveries.

use std::collections::HashSet;

use delayline_core::{
    Change, Delivery, Lease, Limits, MessageId, Op, Rate, Reply, Stats, Timestamp,
};

use crate::ledger::Violation;

/// What a queue has delivered under its present rate, by a clock that has not been set back since.
#[derive(Default)]
pub(crate) struct Limited {
    rate: Option<Rate>,
    delivered: Vec<Timestamp>,
    leases: HashSet<(MessageId, Lease)>,
    /// When limits had ended that were seen last.
    pub(crate) over_at: Timestamp,
}

impl Limited {
    /// The server has executed an operation, and then counted like this. Returns whether limits had
    /// a say.
    pub(crate) fn executed(
        &mut self,
        now: Timestamp,
        op: &Op,
        reply: &Reply,
        stats: &Stats,
    ) -> Result<bool, Violation> {
        if let Op::SetLimits(set) = op {
            match set.rate {
                Change::Keep => {}
                Change::Remove => self.rate = None,
                Change::Set(rate) => self.rate = Some(rate),
            }
            self.delivered.clear();
        }
        if self.delivered.last().is_some_and(|last| *last > now) {
            self.delivered.clear();
        }
        if stats.limits != Limits::default() {
            self.over_at = stats.limits.held_until.unwrap_or(now).max(now);
        }
        let (delivered, leases) = match reply {
            Reply::Claim(claimed) => {
                let lease = |it: &Delivery| (it.message.info.id.clone(), it.lease);
                let leases = claimed.deliveries.iter().map(lease);
                // A repeated claim returns its earlier leases.
                (leases.filter(|lease| self.leases.insert(lease.clone())).count(), true)
            }
            Reply::Relay(relayed) => (relayed.ids.len(), false),
            _ => return Ok(false),
        };
        if delivered > 0 && stats.paused {
            return Err(format!("{delivered} delivered while the queue is paused"));
        }
        let Limits { leased, held_until, .. } = stats.limits;
        if delivered > 0 && held_until.is_some() {
            return Err(format!("{delivered} delivered while the queue is held"));
        }
        if let Some(most) = leased.filter(|_| leases && delivered > 0)
            && stats.leased > u64::from(most)
        {
            return Err(format!("{} leased, of {most}", stats.leased));
        }
        if let Some(rate) = self.rate {
            self.delivered.extend(std::iter::repeat_n(now, delivered));
            self.keeps(rate)?;
        }
        Ok(delivered > 0 && (leased.is_some() || self.rate.is_some()))
    }

    /// Every window that ends now has at most its share and a burst.
    fn keeps(&self, rate: Rate) -> Result<(), Violation> {
        let Some(last) = self.delivered.last() else { return Ok(()) };
        let period = rate.per().as_millis();
        for (number, first) in self.delivered.iter().rev().enumerate() {
            let ms = last.since(*first).as_millis();
            let share = ms * u128::from(rate.count) / period;
            let most = share + u128::from(rate.burst);
            if u128::try_from(number + 1).is_ok_and(|delivered| delivered > most) {
                return Err(format!("{} delivered in {ms} ms, at {rate:?}", number + 1));
            }
        }
        Ok(())
    }
}
