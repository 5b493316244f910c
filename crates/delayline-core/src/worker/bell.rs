//! Hints that there may be something to claim: when to wait for one, and when to hand it on.

use std::time::Duration;

use super::Moment;
use super::plan::FAILURES;
use super::rng::Rng;
use crate::{Backoff, Error, ErrorKind};

/// Waits for one hint at a time. A hint that cannot be used here is handed on, so that processes
/// with free slots do not miss it.
#[derive(Debug)]
pub(super) struct Bell {
    waiting_since: Option<Moment>,
    /// When the last wait ended.
    waited: Moment,
    /// No new wait starts earlier.
    next: Moment,
    /// The backend gives no hints.
    mute: bool,
    /// A hint that has not been followed by a claim.
    pub(super) hint: bool,
    /// Whether the open claim follows a hint, or a promise to the queue.
    pub(super) used: bool,
    /// Whether a hint is being handed on.
    pub(super) ringing: bool,
    backoff: Backoff,
}

impl Bell {
    pub(super) const fn new() -> Self {
        Self {
            waiting_since: None,
            waited: Moment::START,
            next: Moment::START,
            mute: false,
            hint: false,
            used: false,
            ringing: false,
            backoff: FAILURES,
        }
    }

    /// When to wait for a hint, if one would be useful.
    pub(super) const fn next(&self) -> Option<Moment> {
        if self.mute || self.hint || self.waiting_since.is_some() { None } else { Some(self.next) }
    }

    /// Since when the queue has gone without a wait, not counting the pause between two waits.
    pub(super) fn unheard_since(&self) -> Option<Moment> {
        self.waiting_since.is_none().then(|| self.waited.after(SHORTEST_WAIT))
    }

    pub(super) const fn wait(&mut self, now: Moment) {
        self.waiting_since = Some(now);
    }

    pub(super) fn waited(&mut self, now: Moment, result: &Result<bool, Error>, rng: &mut Rng) {
        let since = self.waiting_since.take().unwrap_or(now);
        self.waited = now;
        match result {
            Ok(hint) => {
                self.backoff.reset();
                self.hint |= *hint;
                // A backend that returns "none" at once must not be asked in a hot loop.
                self.next = if *hint { now } else { since.after(SHORTEST_WAIT) };
            }
            Err(error) if matches!(error.kind(), ErrorKind::Unsupported(_)) => self.mute = true,
            Err(_) => self.next = now.after(self.backoff.next(rng.chance())),
        }
    }
}

const SHORTEST_WAIT: Duration = Duration::from_millis(100);
