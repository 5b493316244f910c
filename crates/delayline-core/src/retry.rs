//! How long a failed message waits before the next attempt: pure functions of the number of
//! failures, the previous delay, and a random number that the caller passes in.

use crate::Millis;

/// How the delay grows with the number of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backoff {
    /// Always `base`.
    Fixed,
    /// `base` times the number of failures.
    Linear,
    /// `base`, doubled for each failure after the first.
    Exponential,
}

/// How the delay is randomised, so that messages that failed together are not retried together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jitter {
    /// No jitter.
    None,
    /// Uniform between zero and the delay.
    Full,
    /// Uniform between `base` and three times the previous delay, whatever the backoff.
    Decorrelated,
}

/// How long a failed message waits.
///
/// The default is exponential with full jitter, from 1 s to one hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// How the delay grows.
    pub backoff: Backoff,
    /// How the delay is randomised.
    pub jitter: Jitter,
    /// The first delay.
    pub base: Millis,
    /// The longest delay, including jitter.
    pub cap: Millis,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            backoff: Backoff::Exponential,
            jitter: Jitter::Full,
            base: Millis::saturating(1_000),
            cap: Millis::saturating(3_600_000),
        }
    }
}

impl RetryPolicy {
    /// Always `delay`, without jitter.
    #[must_use]
    pub const fn fixed(delay: Millis) -> Self {
        Self { backoff: Backoff::Fixed, jitter: Jitter::None, base: delay, cap: delay }
    }

    /// Returns the delay after the `failures`-th failure (the first is 1), where `previous` is the
    /// previous delay and `random` is any 64 random bits.
    #[must_use]
    pub fn delay(&self, failures: u32, previous: Millis, random: u64) -> Millis {
        let (base, cap) = (self.base.as_ms(), self.cap.as_ms());
        let failures = failures.max(1);
        let full = match self.backoff {
            Backoff::Fixed => base,
            Backoff::Linear => base.saturating_mul(u64::from(failures)),
            Backoff::Exponential => {
                base.saturating_mul(1_u64.checked_shl(failures - 1).unwrap_or(u64::MAX))
            }
        };
        let delay = match self.jitter {
            Jitter::None => full,
            Jitter::Full => spread(0, full.min(cap), random),
            Jitter::Decorrelated => {
                spread(base, previous.as_ms().max(base).saturating_mul(3), random)
            }
        };
        Millis::saturating(delay.min(cap))
    }
}

/// Maps `random` evenly to `least..=most`.
fn spread(least: u64, most: u64, random: u64) -> u64 {
    let width = u128::from(most.saturating_sub(least)) + 1;
    let offset = (u128::from(random) * width) >> 64;
    least.saturating_add(u64::try_from(offset).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(backoff: Backoff, jitter: Jitter) -> RetryPolicy {
        RetryPolicy {
            backoff,
            jitter,
            base: Millis::saturating(100),
            cap: Millis::saturating(5_000),
        }
    }

    fn delays(policy: RetryPolicy, random: u64) -> Vec<u64> {
        let mut previous = Millis::ZERO;
        [1, 2, 3, 10, u32::MAX]
            .map(|failures| {
                previous = policy.delay(failures, previous, random);
                previous.as_ms()
            })
            .to_vec()
    }

    #[test]
    fn waits_grow_as_the_backoff_says_up_to_the_cap() {
        assert_eq!(delays(policy(Backoff::Fixed, Jitter::None), 0), [100; 5]);
        assert_eq!(delays(policy(Backoff::Linear, Jitter::None), 0), [100, 200, 300, 1_000, 5_000]);
        assert_eq!(
            delays(policy(Backoff::Exponential, Jitter::None), 0),
            [100, 200, 400, 5_000, 5_000]
        );
    }

    #[test]
    fn full_jitter_reaches_from_zero_to_the_wait() {
        let policy = policy(Backoff::Exponential, Jitter::Full);
        assert_eq!(delays(policy, 0), [0; 5]);
        assert_eq!(delays(policy, u64::MAX), [100, 200, 400, 5_000, 5_000]);
        assert_eq!(delays(policy, 1 << 63), [50, 100, 200, 2_500, 2_500]);
    }

    #[test]
    fn decorrelated_jitter_reaches_from_the_base_to_three_times_the_wait_before() {
        let policy = policy(Backoff::Exponential, Jitter::Decorrelated);
        assert_eq!(delays(policy, 0), [100; 5]);
        assert_eq!(delays(policy, u64::MAX), [300, 900, 2_700, 5_000, 5_000]);
    }
}
