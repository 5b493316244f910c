//! Whether the task that refreshes the topology still makes progress.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, timeout};

/// How often a task shows that its runtime is being run.
const BEAT: Duration = Duration::from_secs(1);
/// After this time without a beat, another task takes over.
const LONGEST_SILENCE_MS: u64 = 5_000;

/// Lets one task at a time work for all callers.
///
/// The runtime of that task may not be run any more, as can happen between two calls of `block_on`.
/// So the task notes when it was active, and a caller on another runtime can start a new one.
pub(super) struct Turns {
    origin: Instant,
    /// The latest beat, in milliseconds since `origin`; 0 without a task.
    beat: AtomicU64,
}

/// The right to work. It ends when another task takes over.
pub(super) struct Turn {
    turns: Arc<Turns>,
    beat: u64,
    /// Whether it was taken from a task that was silent.
    pub(super) is_taken: bool,
}

impl Turns {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { origin: Instant::now(), beat: AtomicU64::new(0) })
    }

    /// Returns the turn, unless a task has it that is active.
    pub(super) fn claim(self: &Arc<Self>) -> Option<Turn> {
        let (latest, beat) = (self.beat.load(Ordering::Relaxed), self.now());
        if latest != 0 && beat < latest + LONGEST_SILENCE_MS {
            return None;
        }
        let turn = || Turn { turns: Arc::clone(self), beat, is_taken: latest != 0 };
        self.replace(latest, beat).then(turn)
    }

    fn replace(&self, latest: u64, beat: u64) -> bool {
        self.beat.compare_exchange(latest, beat, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    fn now(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX).max(1)
    }
}

impl Turn {
    /// Returns the output of `work`, or `None` as soon as another task has taken over.
    pub(super) async fn during<F: Future>(&mut self, work: F) -> Option<F::Output> {
        let mut work = pin!(work);
        loop {
            let output = timeout(BEAT, &mut work).await;
            let beat = self.turns.now();
            if !self.turns.replace(self.beat, beat) {
                return None;
            }
            self.beat = beat;
            if let Ok(output) = output {
                return Some(output);
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.replace(self.beat, 0);
    }
}
