//! What a worker is to do.

use std::num::NonZeroU16;
use std::time::Duration;

use crate::limits::SAFETY_POLL_MS;
use crate::{ConsumerName, Millis};

/// How a worker is to work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// How many handlers run at once: 1 to [`MAX_BATCH`](crate::limits::MAX_BATCH).
    pub slots: usize,
    /// The queues, which share the slots.
    pub queues: Vec<QueuePlan>,
    /// Whether to end when no queue has a scheduled, ready or leased message any more.
    pub until_empty: bool,
}

/// How a worker is to work on one queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuePlan {
    /// The worker's name in the queue's journal of claims. No two workers share one (G16).
    pub consumer: ConsumerName,
    /// How long the leases last:
    /// [`MIN_LEASE_MS`](crate::limits::MIN_LEASE_MS) to
    /// [`MAX_LEASE_MS`](crate::limits::MAX_LEASE_MS). They are prolonged after a third of it.
    pub lease: Millis,
    /// The share of this queue's messages while several queues have more than there are slots.
    pub weight: NonZeroU16,
    /// How many handlers of this queue run at once, at the most.
    pub most: usize,
    /// How long a lease is prolonged at the most.
    pub max_lease_age: Option<Duration>,
    /// When a handler that still runs is reported as stuck.
    pub stuck_after: Option<Duration>,
}

impl Plan {
    /// How long a queue goes without a look when nothing is known to become due: it repairs lost
    /// hints (G22). With up to twenty queues it grows, so that a process with nothing to do sends
    /// half a command a second at the most.
    pub(super) fn longest_poll(&self) -> Duration {
        let queues = u32::try_from(self.queues.len()).unwrap_or(u32::MAX);
        POLL.max(POLL.saturating_mul(queues) / 2).min(LONGEST_POLL)
    }

    /// How long to wait for hints at once. All queues can be heard in one wait, which is renewed to
    /// find out whether its connection lives.
    pub(super) const fn longest_wait(&self) -> Duration {
        if self.queues.len() > 1 { POLL.saturating_mul(4) } else { POLL }
    }
}

/// Of one queue.
const POLL: Duration = Duration::from_secs(5);
/// Some time before the queue stops to count on a sleeper.
const LONGEST_POLL: Duration = Duration::from_millis(SAFETY_POLL_MS * 5 / 6);

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
            max_lease_age: None,
            stuck_after: None,
        };
        let times = |queues: usize| {
            let plan = Plan { slots: 1, queues: vec![queue.clone(); queues], until_empty: false };
            (plan.longest_poll().as_secs(), plan.longest_wait().as_secs())
        };
        assert_eq!([1, 2, 4, 20, 100].map(times), [(5, 5), (5, 20), (10, 20), (50, 20), (50, 20)]);
    }
}
