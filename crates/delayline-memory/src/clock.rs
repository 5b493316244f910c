//! A clock that tests move.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use delayline_core::{Millis, Timestamp};
use tokio::sync::Notify;

/// A clock that stands still until a test moves it. Clones share the time, and so do the queues
/// that [`MemoryBackend::with_clock_of`](crate::MemoryBackend::with_clock_of) creates with it.
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<Mutex<Shared>>);

#[derive(Debug)]
struct Shared {
    now: Timestamp,
    /// The bells of the queues that use this clock.
    bells: Vec<Weak<Notify>>,
}

impl ManualClock {
    /// Creates a clock that shows `start`.
    #[must_use]
    pub fn new(start: Timestamp) -> Self {
        Self(Arc::new(Mutex::new(Shared { now: start, bells: Vec::new() })))
    }

    /// Returns the current time of the clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.lock().now
    }

    /// Moves the clock forward, and wakes a waiting worker of each queue that uses it.
    pub fn advance(&self, by: Millis) {
        let mut shared = self.lock();
        shared.now = shared.now.after(by);
        shared.bells.iter().filter_map(Weak::upgrade).for_each(|bell| bell.notify_one());
    }

    /// Rings this bell whenever the clock moves.
    pub(crate) fn wakes(&self, bell: &Arc<Notify>) {
        let mut shared = self.lock();
        shared.bells.retain(|bell| bell.strong_count() > 0);
        shared.bells.push(Arc::downgrade(bell));
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        // Nothing panics while it is locked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
