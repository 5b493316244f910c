//! The latest readings of a queue, shared by all visitors who see it at the same time.

use std::fmt;
use std::sync::{Mutex as StdMutex, PoisonError};
use std::time::Duration;

use delayline::Timestamp;
use delayline::admin::Stats;
use tokio::sync::Mutex;
use tokio::time::Instant;
use xxhash_rust::xxh3::xxh3_64;

/// A value that is read again when it is too old; without one if it could not be read.
#[derive(Debug)]
pub(crate) struct Latest<T> {
    value: StdMutex<Option<(Instant, Option<T>)>>,
    /// Held while the value is being read.
    turn: Mutex<()>,
}

impl<T> Default for Latest<T> {
    fn default() -> Self {
        Self { value: StdMutex::default(), turn: Mutex::default() }
    }
}

impl<T: Clone> Latest<T> {
    /// Returns the value if it is at most this old, and otherwise a new one from `read`. Callers
    /// that arrive while it is being read wait for the same value.
    pub(crate) async fn within<E>(
        &self,
        age: Duration,
        read: impl Future<Output = Result<T, E>>,
    ) -> Option<T> {
        let _turn = self.turn.lock().await;
        if !self.is_older(age) {
            return self.younger_than(Duration::MAX);
        }
        let value = read.await.ok();
        self.keep(value.clone());
        value
    }

    /// Returns the latest value if it is younger than this, also while another one is being read.
    pub(crate) fn younger_than(&self, most: Duration) -> Option<T> {
        let value = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        let value = value.as_ref().filter(|(taken, _)| taken.elapsed() < most);
        value.and_then(|(_, value)| value.clone())
    }

    /// Returns `true` if the latest value is older than this, or there is none.
    pub(crate) fn is_older(&self, age: Duration) -> bool {
        let value = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        value.as_ref().is_none_or(|(taken, _)| taken.elapsed() >= age)
    }

    /// Returns a new value from `read`, and keeps it: no later caller gets an older one.
    pub(crate) async fn anew<E>(&self, read: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let value = read.await?;
        let _turn = self.turn.lock().await;
        self.keep(Some(value.clone()));
        Ok(value)
    }

    fn keep(&self, value: Option<T>) {
        let mut latest = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        *latest = Some((Instant::now(), value));
    }
}

/// Differs when the counts of queues do; a queue without counts cannot be reached.
pub(crate) fn stamp(counts: &[impl fmt::Debug]) -> String {
    format!("{:016x}", xxh3_64(format!("{counts:?}").as_bytes()))
}

/// The last counts of a queue, which stay while it cannot be counted.
#[derive(Debug)]
pub(crate) struct Counted {
    /// When the queue was first to be counted.
    first: Instant,
    last: StdMutex<Option<(Instant, Stats, Timestamp)>>,
}

impl Default for Counted {
    fn default() -> Self {
        Self { first: Instant::now(), last: StdMutex::default() }
    }
}

impl Counted {
    /// The last counts with the time by the server's clock now, if there are any, and their age:
    /// how long there are none, if so.
    pub(crate) fn last(&self) -> (Option<(Stats, Timestamp)>, Duration) {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((taken, stats, at)) = last else { return (None, self.first.elapsed()) };
        let age = taken.elapsed();
        let passed = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        let now = Timestamp::from_ms(at.as_ms().saturating_add(passed)).unwrap_or(at);
        (Some((stats, now)), age)
    }

    /// The last counts and their own instant, if they are younger than this. Against a later
    /// instant, each message that was due when they were read would seem late.
    pub(crate) fn younger_than(&self, most: Duration) -> Option<(Stats, Timestamp)> {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.filter(|(taken, ..)| taken.elapsed() < most).map(|(_, stats, at)| (stats, at))
    }

    /// Keeps counts that were read now.
    pub(crate) fn keep(&self, stats: Stats, at: Timestamp) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some((Instant::now(), stats, at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn counts_are_judged_by_their_own_instant() {
        let (counted, at) = (Counted::default(), Timestamp::from_ms(5_000).unwrap());
        assert_eq!(counted.younger_than(Duration::MAX), None);
        counted.keep(Stats::default(), at);
        tokio::time::advance(Duration::from_secs(59)).await;
        assert_eq!(counted.younger_than(Duration::from_secs(60)), Some((Stats::default(), at)));
        assert_eq!(counted.last().0.unwrap().1.as_ms(), 64_000, "metrics take the time now");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(counted.younger_than(Duration::from_secs(60)), None);
    }
}
