//! When to claim, and what became of it.

use std::sync::Arc;
use std::time::Duration;

use delayline_core::{Claimed, Op, Queueing, Reply, Timestamp};
use tokio::time::Instant;

use super::builder::Config;
use super::flight::{Flight, Landed};
use super::pace::{new_pauses, poll_period, warn};
use crate::pause::Pauses;

/// One claim at a time. A claim that was not answered is sent again under its own id until it is,
/// so that whatever it has leased is found (G16).
pub(super) struct Claims {
    pub(super) flight: Flight,
    /// A claim to be sent again, and when it was sent first.
    unanswered: Option<(Op, Instant)>,
    /// When the claim under way was sent first.
    first_sent: Option<Instant>,
    /// When to claim next, if there is a free slot.
    due: Instant,
    pauses: Pauses,
}

/// What a claim has brought.
pub(super) struct Catch {
    pub(super) claimed: Claimed,
    /// The server's clock.
    pub(super) at: Timestamp,
    /// The leases are not older than this.
    pub(super) sent_at: Instant,
}

impl Claims {
    pub(super) fn new() -> Self {
        Self {
            flight: Flight::default(),
            unanswered: None,
            first_sent: None,
            due: Instant::now(),
            pauses: new_pauses(),
        }
    }

    /// Whether a claim was sent whose answer is not known.
    pub(super) const fn is_open(&self) -> bool {
        !self.flight.is_idle() || self.unanswered.is_some()
    }

    /// When [`send_at`](Self::send_at) wants to be called next, with `room` free slots.
    pub(super) const fn next(&self, room: usize) -> Option<Instant> {
        let wanted = self.unanswered.is_some() || room > 0;
        if wanted && self.flight.is_idle() { Some(self.due) } else { None }
    }

    /// There may be something to claim after `delay`.
    pub(super) fn hurry(&mut self, now: Instant, delay: Duration) {
        // After a failure the pause counts: a hint does not mend the backend.
        if self.unanswered.is_none() {
            self.due = self.due.min(now + delay);
        }
    }

    /// Claims for `room` free slots, if it is time.
    pub(super) fn send_at(
        &mut self,
        now: Instant,
        room: usize,
        config: &Config,
        backend: &Arc<dyn Queueing>,
    ) {
        if self.next(room).is_none_or(|due| now < due) {
            return;
        }
        // Slots only become free while a claim is open, so a repeated one still fits.
        let (op, first_sent) = self.unanswered.take().unwrap_or_else(|| (config.claim(room), now));
        self.first_sent = Some(first_sent);
        self.flight.launch(backend, op);
    }

    pub(super) fn landed(&mut self, landed: Landed) -> Option<Catch> {
        let now = Instant::now();
        let sent_at = self.first_sent.take().unwrap_or(landed.sent_at);
        let error = match landed.result {
            Ok(applied) => match applied.reply {
                Reply::Claim(claimed) => {
                    self.pauses.reset();
                    self.due = now + time_to(&claimed, applied.at);
                    return Some(Catch { claimed, at: applied.at, sent_at });
                }
                _ => None,
            },
            Err(error) => Some(error),
        };
        warn("nothing could be claimed", error);
        self.unanswered = Some((landed.op, sent_at));
        self.due = now + self.pauses.next();
        None
    }
}

/// How long until the next claim is worth while. Both instants are of the server's clock, so this
/// process's clock does not matter.
fn time_to(claimed: &Claimed, at: Timestamp) -> Duration {
    if claimed.more {
        // More, but nothing for us: other messages are being taken back or buried. That goes on
        // step by step, not as a hot loop.
        return if claimed.deliveries.is_empty() { STEP } else { Duration::ZERO };
    }
    let poll = poll_period();
    claimed.next.map_or(poll, |next| next.since(at).min(poll))
}

const STEP: Duration = Duration::from_millis(1);
