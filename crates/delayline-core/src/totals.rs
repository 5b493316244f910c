//! Cumulative counters of a queue.

use std::ops::AddAssign;
use std::time::Duration;

use crate::DeathReason;

/// How often each thing has happened in a queue since its first message.
///
/// Counters only grow. The server counts them in the same step as the event. So no worker or
/// exporter has to run, and a repeated operation counts once. A repair leaves them alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
#[non_exhaustive]
pub struct Totals {
    /// Messages enqueued.
    pub enqueued: u64,
    /// Messages acked.
    pub acked: u64,
    /// Messages cancelled, whether they were waiting, leased or dead.
    pub cancelled: u64,
    /// Messages purged.
    pub purged: u64,
    /// Messages relayed.
    pub relayed: u64,
    /// Messages that gave way to an update before they were acked.
    pub replaced: u64,
    /// Leases ended by [`Outcome::Retry`](crate::Outcome::Retry) or
    /// [`Outcome::Undecodable`](crate::Outcome::Undecodable), whether the message was retried or
    /// died of it. This, [`snoozed`](Self::snoozed) and [`released`](Self::released) do not count
    /// the lease of a message whose cancellation was requested. Neither does anything but
    /// [`replaced`](Self::replaced) count an [`Outcome::Reject`](crate::Outcome::Reject) of a
    /// message that has a follower.
    pub failed: u64,
    /// Leases ended by [`Outcome::Snooze`](crate::Outcome::Snooze).
    pub snoozed: u64,
    /// Leases ended by [`Outcome::Release`](crate::Outcome::Release).
    pub released: u64,
    /// Leases that expired and were reclaimed, whether the message was delivered again or died of
    /// it. The lease of a message whose cancellation was requested is not counted.
    pub crashed: u64,
    /// Dead letters redriven.
    pub redriven: u64,
    /// Deaths of [`DeathReason::MaxFailures`].
    pub died_max_failures: u64,
    /// Deaths of [`DeathReason::MaxCrashes`].
    pub died_max_crashes: u64,
    /// Deaths of [`DeathReason::Rejected`].
    pub died_rejected: u64,
    /// Deaths of [`DeathReason::Undecodable`].
    pub died_undecodable: u64,
    /// Deaths of [`DeathReason::Expired`].
    pub died_expired: u64,
    /// Deaths of [`DeathReason::Unreadable`], without the ones that a repair found.
    pub died_unreadable: u64,
    /// Deliveries by lateness, the time from the due time to the claim: bucket `n` counts
    /// deliveries that were late by less than [`lateness_bound`](Self::lateness_bound) of `n` and
    /// by no less than that of the bucket before. The due time is that of the latest enqueue,
    /// reschedule, retry, snooze or redrive; a release or an expired lease leaves it unchanged.
    pub lateness: [u64; Self::LATENESS_BUCKETS],
}

impl Totals {
    /// The number of buckets of [`lateness`](Self::lateness).
    pub const LATENESS_BUCKETS: usize = 16;

    /// Returns the number of deliveries: every lease that was ever granted.
    #[must_use]
    pub fn delivered(&self) -> u64 {
        sum(self.lateness)
    }

    /// Returns the number of deaths for one reason.
    #[must_use]
    pub const fn died_of(&self, reason: DeathReason) -> u64 {
        match reason {
            DeathReason::MaxFailures => self.died_max_failures,
            DeathReason::MaxCrashes => self.died_max_crashes,
            DeathReason::Rejected => self.died_rejected,
            DeathReason::Undecodable => self.died_undecodable,
            DeathReason::Expired => self.died_expired,
            DeathReason::Unreadable => self.died_unreadable,
        }
    }

    /// Returns the number of deaths: how often a message became a dead letter.
    #[must_use]
    pub fn died(&self) -> u64 {
        sum(DeathReason::ALL.iter().map(|reason| self.died_of(*reason)))
    }

    /// Returns the upper bound of a bucket of [`lateness`](Self::lateness), which is not in the
    /// bucket itself: 2 ms for the first, twice that of the bucket before for the others. `None`
    /// for the last bucket, which has none, and for buckets that do not exist.
    #[must_use]
    pub const fn lateness_bound(bucket: usize) -> Option<Duration> {
        if bucket < Self::LATENESS_BUCKETS - 1 {
            Some(Duration::from_millis(2 << bucket))
        } else {
            None
        }
    }

    /// Returns whether a counter is lower than it was.
    pub(crate) fn has_fallen_since(&self, earlier: &Self) -> bool {
        let counters = |of: &Self| {
            let deaths = DeathReason::ALL.iter().map(|reason| of.died_of(*reason));
            let others = [
                of.enqueued,
                of.acked,
                of.cancelled,
                of.purged,
                of.relayed,
                of.replaced,
                of.failed,
                of.snoozed,
                of.released,
                of.crashed,
                of.redriven,
            ];
            others.into_iter().chain(deaths).chain(of.lateness).collect::<Vec<_>>()
        };
        counters(self).iter().zip(counters(earlier)).any(|(now, before)| *now < before)
    }

    /// Counts a delivery that is late by `late_ms` milliseconds.
    pub(crate) fn count_delivery(&mut self, lateness: Duration) {
        let late_ms = lateness.as_millis();
        let bound = late_ms.checked_ilog2().unwrap_or(0);
        let bucket = usize::try_from(bound).unwrap_or(usize::MAX).min(Self::LATENESS_BUCKETS - 1);
        self.lateness[bucket] += 1;
    }

    /// Counts a death.
    pub(crate) const fn count_death(&mut self, reason: DeathReason) {
        let counter = match reason {
            DeathReason::MaxFailures => &mut self.died_max_failures,
            DeathReason::MaxCrashes => &mut self.died_max_crashes,
            DeathReason::Rejected => &mut self.died_rejected,
            DeathReason::Undecodable => &mut self.died_undecodable,
            DeathReason::Expired => &mut self.died_expired,
            DeathReason::Unreadable => &mut self.died_unreadable,
        };
        *counter += 1;
    }
}

/// Adds the counters of another queue. Saturates: a damaged counter may hold any number.
impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        /// Names every counter, so that none is forgotten.
        macro_rules! add {
            ($($counter:ident),*) => {
                let Self { lateness, $($counter),* } = other;
                $(self.$counter = self.$counter.saturating_add($counter);)*
                for (count, more) in self.lateness.iter_mut().zip(lateness) {
                    *count = count.saturating_add(more);
                }
            };
        }
        add!(
            enqueued,
            acked,
            cancelled,
            purged,
            relayed,
            replaced,
            failed,
            snoozed,
            released,
            crashed,
            redriven,
            died_max_failures,
            died_max_crashes,
            died_rejected,
            died_undecodable,
            died_expired,
            died_unreadable
        );
    }
}

/// Saturates: a damaged counter may hold any number.
fn sum(counters: impl IntoIterator<Item = u64>) -> u64 {
    counters.into_iter().fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delivery_is_counted_below_the_bound_of_its_bucket() {
        for late_ms in [0, 1, 2, 3, 4, 1_000, 32_767, 32_768, 65_535, u64::MAX] {
            let mut totals = Totals::default();
            totals.count_delivery(Duration::from_millis(late_ms));
            assert_eq!(totals.delivered(), 1);
            let bucket = totals.lateness.iter().position(|count| *count == 1).unwrap();
            let least = bucket.checked_sub(1).and_then(Totals::lateness_bound);
            assert!(
                least.is_none_or(|least| least <= Duration::from_millis(late_ms)),
                "{late_ms} in {bucket}"
            );
            let most = Totals::lateness_bound(bucket);
            assert!(
                most.is_none_or(|most| Duration::from_millis(late_ms) < most),
                "{late_ms} in {bucket}"
            );
            assert_eq!(most.is_none(), late_ms >= 32_768, "{late_ms} in {bucket}");
        }
        assert_eq!(Totals::lateness_bound(0), Some(Duration::from_millis(2)));
        assert_eq!(Totals::lateness_bound(usize::MAX), None);
    }

    #[test]
    fn deaths_are_counted_by_reason() {
        let mut totals = Totals::default();
        for (times, &reason) in (1..).zip(DeathReason::ALL) {
            (0..times).for_each(|_| totals.count_death(reason));
            assert_eq!(totals.died_of(reason), times);
        }
        assert_eq!(totals.died(), 21);
        totals.died_expired = u64::MAX;
        assert_eq!(totals.died(), u64::MAX, "damaged counters do no harm");
    }
}
