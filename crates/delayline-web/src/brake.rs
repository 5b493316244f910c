//! Slows down clients that guess secrets.

use std::hash::{BuildHasher as _, Hash, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Counts failed logins. Each key has ten of them at once, and then one each second.
///
/// Keys share 4,096 places by their hashes. So guesses under ever new names take no memory and push
/// no other key out. Successful logins that must not wait for the failures of others have as many
/// places.
pub struct Brake {
    hasher: RandomState,
    /// When the failures of each place are forgotten.
    places: Vec<Mutex<Option<Instant>>>,
    /// The hash of the latest login of each place, and when it is forgotten.
    passed: Vec<Mutex<Option<(u64, Instant)>>>,
}

impl Default for Brake {
    fn default() -> Self {
        let places = (0..PLACES).map(|_| Mutex::default()).collect();
        let passed = (0..PLACES).map(|_| Mutex::default()).collect();
        Self { hasher: RandomState::new(), places, passed }
    }
}

impl Brake {
    /// Returns what `check` returns, after a wait if there were many failures; `None` without a
    /// check if the wait would be longer than [`MOST_WAIT`]. `Err` is a failure.
    pub async fn check<T, E>(
        &self,
        key: impl Hash,
        check: impl FnOnce() -> Result<T, E>,
    ) -> Option<Result<T, E>> {
        let place = self.places.get(place(self.hasher.hash_one(key)))?;
        let wait = {
            let mut until = place.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            let begin = until.filter(|until| *until > now).unwrap_or(now);
            let wait = begin.duration_since(now).saturating_sub(PERIOD * (BURST - 1));
            if wait > MOST_WAIT {
                return None;
            }
            if wait.is_zero() {
                // Under the lock, so that concurrent successes do not count as failures meanwhile.
                let result = check();
                if result.is_err() {
                    *until = Some(begin + PERIOD);
                }
                return Some(result);
            }
            // It counts as a failure before it is checked, so that disconnecting during the wait
            // saves a client nothing.
            *until = Some(begin + PERIOD);
            wait
        };
        sleep(wait).await;
        let result = check();
        if result.is_ok() {
            let mut until = place.lock().unwrap_or_else(PoisonError::into_inner);
            *until = until.and_then(|until| until.checked_sub(PERIOD));
        }
        Some(result)
    }

    /// Remembers a login that has succeeded.
    pub fn passed(&self, login: impl Hash) {
        let hash = self.hasher.hash_one(login);
        if let Some(place) = self.passed.get(place(hash)) {
            let until = Instant::now() + REMEMBERED;
            *place.lock().unwrap_or_else(PoisonError::into_inner) = Some((hash, until));
        }
    }

    /// Returns `true` if this login has succeeded lately. Another one may have the same hash.
    pub fn has_passed(&self, login: impl Hash) -> bool {
        let hash = self.hasher.hash_one(login);
        let place = self.passed.get(place(hash));
        let latest = place.and_then(|it| *it.lock().unwrap_or_else(PoisonError::into_inner));
        latest.is_some_and(|(known, until)| known == hash && until > Instant::now())
    }
}

fn place(hash: u64) -> usize {
    usize::try_from(hash % PLACES).unwrap_or_default()
}

const BURST: u32 = 10;
const PERIOD: Duration = Duration::from_secs(1);
const MOST_WAIT: Duration = Duration::from_secs(5);
/// How long a successful login is remembered.
const REMEMBERED: Duration = Duration::from_secs(3_600);
const PLACES: u64 = 4_096;

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    async fn fail(brake: &Brake, key: &str) -> Option<Result<(), ()>> {
        brake.check(key, || Err(())).await
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_slowed_and_then_refused_until_some_time_has_passed() {
        let brake = Brake::default();
        let begin = Instant::now();
        for _ in 0..BURST {
            assert_eq!(fail(&brake, "anna").await, Some(Err(())));
        }
        assert_eq!(begin.elapsed(), Duration::ZERO);
        for number in 1..=5 {
            assert_eq!(fail(&brake, "anna").await, Some(Err(())));
            assert_eq!(begin.elapsed(), PERIOD * number);
        }
        // Concurrent attempts wait one after the other.
        let all = futures_util::future::join_all((0..50).map(|_| fail(&brake, "anna"))).await;
        assert_eq!(all.iter().filter(|it| it.is_some()).count(), 5);
        // Another one has nothing to do with that.
        let begin = Instant::now();
        assert_eq!(fail(&brake, "berta").await, Some(Err(())));
        assert_eq!(begin.elapsed(), Duration::ZERO);
        sleep(PERIOD * BURST * 2).await;
        let begin = Instant::now();
        assert_eq!(fail(&brake, "anna").await, Some(Err(())));
        assert_eq!(begin.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_successes_do_not_wait_for_each_other() {
        let brake = Brake::default();
        let begin = Instant::now();
        let check = || brake.check("anna", || Ok::<_, ()>(7));
        let all = futures_util::future::join_all((0..1_000).map(|_| check())).await;
        assert!(all.iter().all(|it| *it == Some(Ok(7))));
        assert_eq!(begin.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_goes_away_has_had_its_turn_and_success_costs_nothing() {
        let brake = Brake::default();
        for _ in 0..1_000 {
            assert_eq!(brake.check("anna", || Ok::<_, ()>(7)).await, Some(Ok(7)));
        }
        for _ in 0..BURST {
            fail(&brake, "anna").await;
        }
        for _ in 0..5 {
            let gone = timeout(Duration::from_millis(1), fail(&brake, "anna")).await;
            assert!(gone.is_err());
        }
        assert_eq!(fail(&brake, "anna").await, None);
    }
}
