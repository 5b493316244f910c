//! The configuration of a worker.

use std::num::NonZeroU16;
use std::time::Duration;

use crate::limits::{SAFETY_POLL_MS, WORKER_POLL_MS};
use crate::{Backoff, ConsumerName, Millis};

/// How a worker operates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The maximum number of handlers at once: 1 to [`MAX_BATCH`](crate::limits::MAX_BATCH).
    pub slots: usize,
    /// The queues, which share the slots.
    pub queues: Vec<QueuePlan>,
    /// Whether to end when no queue has scheduled, ready or leased messages any more.
    pub until_empty: bool,
}

/// How a worker operates on one queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuePlan {
    /// The worker's name in the queue's claim journal. Every worker needs its own (G16).
    pub consumer: ConsumerName,
    /// The duration of leases: [`MIN_LEASE_MS`](crate::limits::MIN_LEASE_MS) to
    /// [`MAX_LEASE_MS`](crate::limits::MAX_LEASE_MS). The worker renews them every third of it.
    pub lease: Millis,
    /// The relative share of this queue while several queues compete for the slots.
    pub weight: NonZeroU16,
    /// The maximum number of handlers of this queue at once.
    pub most: usize,
    /// The longest time until a running handler learns that its message was cancelled, plus a round
    /// trip: leases are renewed at least this often. Otherwise only every third of a lease.
    pub cancel_within: Option<Duration>,
    /// The age beyond which a lease is no longer extended.
    pub max_lease_age: Option<Duration>,
    /// The time after which a running handler is reported as stuck.
    pub stuck_after: Option<Duration>,
    /// Whether parts of the queue can fail alone, as shards do. Then the items of a failed
    /// operation are repeated one by one, and other work continues.
    pub has_parts: bool,
}

impl Plan {
    /// The longest time between polls of a queue while nothing is known to become due; this makes
    /// up for lost hints (G22). It grows with the number of queues, up to twenty, so that an idle
    /// process sends at most half a command per second.
    pub(super) fn longest_poll(&self) -> Duration {
        let queues = u32::try_from(self.queues.len()).unwrap_or(u32::MAX);
        POLL.max(POLL.saturating_mul(queues) / 2).min(LONGEST_POLL)
    }

    /// The longest single wait for hints. All queues can be heard in one wait, which is renewed to
    /// detect a dead connection.
    pub(super) const fn longest_wait(&self) -> Duration {
        if self.queues.len() > 1 { POLL.saturating_mul(4) } else { POLL }
    }
}

/// For one queue.
const POLL: Duration = Duration::from_millis(WORKER_POLL_MS);
/// A little before the queue stops counting on a sleeper.
const LONGEST_POLL: Duration = Duration::from_millis(SAFETY_POLL_MS * 5 / 6);

/// The pauses between attempts of a failing call.
pub(super) const FAILURES: Backoff =
    Backoff::new(Duration::from_millis(100), Duration::from_secs(2));

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use super::*;

    #[test]
    fn many_queues_are_looked_at_less_often_each_and_in_time() {
        let queue = QueuePlan {
            consumer: ConsumerName::new("worker").unwrap(),
            lease: Millis::saturating(30_000),
            weight: NonZeroU16::MIN,
            most: 1,
            cancel_within: None,
            max_lease_age: None,
            stuck_after: None,
            has_parts: false,
        };
        let times = |queues: usize| {
            let plan = Plan { slots: 1, queues: vec![queue.clone(); queues], until_empty: false };
            (plan.longest_poll().as_secs(), plan.longest_wait().as_secs())
        };
        assert_eq!([1, 2, 4, 20, 100].map(times), [(5, 5), (5, 20), (10, 20), (50, 20), (50, 20)]);
    }
}
