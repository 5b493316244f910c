//! Settlements: what handlers have answered, on its way to the queue.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use delayline_core::{
    ErrorKind, Op, Outcome as Settling, Queueing, Reply, Settled, Settlement, Status,
};
use tokio::time::Instant;

use super::Summary;
use super::flight::{Flight, Landed};
use super::pace::{new_pauses, warn};
use crate::batches::next_batch;
use crate::pause::Pauses;

/// Settlements that the queue has not confirmed. What comes in while an operation is under way goes
/// out together in the next one. What fails is sent again unchanged, which is harmless (G8).
pub(super) struct Settles {
    waiting: VecDeque<Settlement>,
    pub(super) flight: Flight,
    under_way: usize,
    /// After a failure: not before.
    retry_at: Option<Instant>,
    pauses: Pauses,
}

impl Settles {
    pub(super) fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            flight: Flight::default(),
            under_way: 0,
            retry_at: None,
            pauses: new_pauses(),
        }
    }

    pub(super) fn push(&mut self, settlement: Settlement) {
        self.waiting.push_back(settlement);
    }

    /// How many are not confirmed.
    pub(super) fn len(&self) -> usize {
        self.waiting.len().saturating_add(self.under_way)
    }

    /// Whether the latest try has failed. Then nothing new should be claimed.
    pub(super) const fn is_failing(&self) -> bool {
        self.retry_at.is_some()
    }

    /// When [`send_at`](Self::send_at) wants to be called next.
    pub(super) const fn next(&self) -> Option<Instant> {
        if self.flight.is_idle() { self.retry_at } else { None }
    }

    pub(super) fn send_at(&mut self, now: Instant, backend: &Arc<dyn Queueing>) {
        let early = self.retry_at.is_some_and(|retry_at| now < retry_at);
        if self.waiting.is_empty() || early || !self.flight.is_idle() {
            return;
        }
        let batch = next_batch(&mut self.waiting, |item| &item.id, |_| 0);
        self.under_way = batch.len();
        self.flight.launch(backend, Op::Settle(batch));
    }

    /// Answers how soon a message that was settled is due again, if one is.
    pub(super) fn landed(&mut self, landed: Landed, summary: &mut Summary) -> Option<Duration> {
        self.under_way = 0;
        let Op::Settle(items) = landed.op else { return None };
        let error = match landed.result.map(|applied| applied.reply) {
            Ok(Reply::Settle(settled)) if settled.len() == items.len() => {
                self.retry_at = None;
                self.pauses.reset();
                let pairs = items.iter().zip(settled);
                return pairs.filter_map(|(item, settled)| note(item, settled, summary)).min();
            }
            Ok(_) => None,
            Err(error) => Some(error),
        };
        // Waiting does not make a settlement valid that is not.
        if let Some(ErrorKind::Invalid(violation)) = error.as_ref().map(delayline_core::Error::kind)
        {
            tracing::error!(%violation, "settlements dropped; their leases will run out");
            summary.lost = summary.lost.saturating_add(count(items.len()));
            return None;
        }
        warn("messages could not be settled", error);
        items.into_iter().rev().for_each(|item| self.waiting.push_front(item));
        self.retry_at = Some(Instant::now() + self.pauses.next());
        None
    }
}

/// Counts a settlement; answers when the message is due again, if it is.
fn note(item: &Settlement, settled: Settled, summary: &mut Summary) -> Option<Duration> {
    let status = match settled {
        Settled::Done { status } => Some(status),
        Settled::AlreadyDone => None,
        Settled::Stale | Settled::Missing => {
            tracing::warn!(id = %item.id, epoch = item.lease.epoch, "settled too late");
            summary.lost = summary.lost.saturating_add(1);
            return None;
        }
    };
    let (counter, again) = match &item.outcome {
        Settling::Ack => (&mut summary.acked, None),
        Settling::Retry { delay, .. } => (&mut summary.failed, Some(*delay)),
        Settling::Snooze { delay } => (&mut summary.snoozed, Some(*delay)),
        Settling::Release => (&mut summary.released, Some(delayline_core::Millis::ZERO)),
        Settling::Reject { .. } => (&mut summary.rejected, None),
    };
    *counter = counter.saturating_add(1);
    match status {
        Some(Status::Dead) => summary.dead = summary.dead.saturating_add(1),
        Some(Status::Scheduled | Status::Ready) => return again.map(Duration::from),
        _ => {}
    }
    None
}

pub(super) fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}
