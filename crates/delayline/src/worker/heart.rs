//! Heartbeats: prolongs the leases of running handlers, and tells them of lost ones.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use delayline_core::{Extend, Extended, Lease, MessageId, Millis, Op, Queueing, Reply};
use tokio::task;
use tokio::time::Instant;

use super::CancelReason;
use super::control::Control;
use super::flight::{Flight, Landed};
use super::pace::{new_pauses, warn};
use crate::pause::Pauses;

/// The leases of all running handlers. A handler that ends, however it does, is removed, and with
/// it the reason to prolong its lease.
pub(super) struct Heart {
    lease: Millis,
    held: HashMap<task::Id, Held>,
    /// The latest handler of each message.
    latest: HashMap<MessageId, task::Id>,
    /// The extension under way, and the handlers that it is for.
    pub(super) flight: Flight,
    extending: Vec<task::Id>,
    /// After a failure: not before.
    retry_at: Option<Instant>,
    pauses: Pauses,
    /// When there is something to be done at the earliest.
    next: Option<Instant>,
}

/// A running handler.
pub(super) struct Held {
    pub(super) id: MessageId,
    pub(super) lease: Lease,
    pub(super) failures: u32,
    pub(super) control: Arc<Control>,
    /// When the lease was surely given last: before the claim or extension was sent.
    pub(super) since: Instant,
    pub(super) grip: Grip,
}

/// What is known of a lease.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Grip {
    /// It holds.
    Firm,
    /// It has run out by this process's clock; the queue may not have taken it back (G7).
    RunOut,
    /// The queue says that it is no longer the current one (G6).
    Gone,
}

impl Heart {
    pub(super) fn new(lease: Millis) -> Self {
        Self {
            lease,
            held: HashMap::new(),
            latest: HashMap::new(),
            flight: Flight::default(),
            extending: Vec::new(),
            retry_at: None,
            pauses: new_pauses(),
            next: None,
        }
    }

    pub(super) fn insert(&mut self, task: task::Id, held: Held) {
        let first_beat = held.since + self.beat();
        self.next = Some(self.next.map_or(first_beat, |next| next.min(first_beat)));
        // A message that comes again has cost an earlier handler in this process its lease.
        let earlier = self.latest.insert(held.id.clone(), task);
        if let Some(earlier) = earlier.and_then(|task| self.held.get_mut(&task)) {
            earlier.lose(Grip::Gone);
        }
        self.held.insert(task, held);
    }

    pub(super) fn remove(&mut self, task: task::Id) -> Option<Held> {
        let held = self.held.remove(&task)?;
        if self.latest.get(&held.id) == Some(&task) {
            self.latest.remove(&held.id);
        }
        Some(held)
    }

    pub(super) fn cancel_all(&self, reason: CancelReason) {
        for held in self.held.values() {
            held.control.cancel(reason);
        }
    }

    /// When [`beat_at`](Self::beat_at) wants to be called next.
    pub(super) const fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Gives up leases that have run out, and sends an extension if it is time.
    pub(super) fn beat_at(&mut self, now: Instant, backend: &Arc<dyn Queueing>) {
        if self.next.is_none_or(|next| now < next) {
            return;
        }
        let (lease, beat) = (Duration::from(self.lease), self.beat());
        for held in self.held.values_mut() {
            if now >= held.since + lease {
                held.lose(Grip::RunOut);
            }
        }
        let ready = self.flight.is_idle() && self.retry_at.is_none_or(|retry_at| now >= retry_at);
        let firm = || self.held.iter().filter(|(_, held)| held.grip == Grip::Firm);
        if ready && firm().any(|(_, held)| now >= held.since + beat) {
            // The others come along, unless they are quite fresh: one extension instead of many.
            let leases = firm().filter(|(_, held)| now >= held.since + beat / 2);
            let (tasks, leases) =
                leases.map(|(task, held)| (*task, (held.id.clone(), held.lease))).unzip();
            self.extending = tasks;
            self.flight.launch(backend, Op::Extend(Extend { leases, lease: self.lease }));
        }
        self.plan();
    }

    pub(super) fn landed(&mut self, landed: Landed) {
        let tasks = std::mem::take(&mut self.extending);
        match landed.result.map(|applied| applied.reply) {
            Ok(Reply::Extend(items)) => {
                self.retry_at = None;
                self.pauses.reset();
                for (task, extended) in tasks.into_iter().zip(items) {
                    let Some(held) = self.held.get_mut(&task) else { continue };
                    match extended {
                        Extended::Done { cancel_requested, .. } => {
                            held.since = landed.sent_at;
                            if cancel_requested {
                                held.control.cancel(CancelReason::Requested);
                            }
                        }
                        Extended::Stale | Extended::Missing => held.lose(Grip::Gone),
                    }
                }
            }
            other => {
                warn("the leases could not be extended", other.err());
                self.retry_at = Some(Instant::now() + self.pauses.next());
            }
        }
        self.plan();
    }

    /// Leases that hold are prolonged after a third of their time. While that cannot be done, the
    /// next thing to happen is that one runs out.
    fn plan(&mut self) {
        let firm = self.held.values().filter(|held| held.grip == Grip::Firm);
        self.next = firm.map(|held| held.since).min().map(|oldest| {
            let end = oldest + Duration::from(self.lease);
            let beat = oldest + self.beat();
            if self.flight.is_idle() {
                self.retry_at.map_or(beat, |retry_at| beat.max(retry_at)).min(end)
            } else {
                end
            }
        });
    }

    fn beat(&self) -> Duration {
        Duration::from(self.lease) / 3
    }
}

impl Held {
    fn lose(&mut self, grip: Grip) {
        if self.grip == Grip::Firm {
            tracing::warn!(id = %self.id, epoch = self.lease.epoch, "the lease is lost");
        }
        self.control.cancel(CancelReason::LeaseLost);
        self.grip = grip;
    }
}
