//! The delay of a failed message before the next attempt: a pure function of the number of failures
//! and of random numbers that the caller passes in.

use std::time::Duration;

use crate::Millis;

/// The delay of a failed message before its retry.
///
/// The default is [`exponential`](Self::exponential) from 1 s: up to 1 s after the first failure, 2
/// s after the second, 4 s after the third, and so on up to one hour.
///
/// Durations are rounded up to the millisecond and limited to 100 years. Without a delay, failed
/// messages are retried at once.
///
/// ```
/// use std::time::Duration;
///
/// use delayline_core::{Jitter, RetryPolicy};
///
/// let policy = RetryPolicy::exponential(Duration::from_secs(5))
///     .max_delay(Duration::from_secs(600))
///     .jitter(Jitter::None);
/// assert_eq!(policy.delay(1, || 0), Duration::from_secs(5));
/// assert_eq!(policy.delay(3, || 0), Duration::from_secs(20));
/// assert_eq!(policy.delay(30, || 0), Duration::from_secs(600));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    growth: Growth,
    jitter: Jitter,
    base: Millis,
    longest: Millis,
}

/// How the delay grows with the number of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Growth {
    None,
    Linear,
    Exponential,
}

/// The randomization of delays, so that messages that failed together are not retried together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Jitter {
    /// No jitter.
    None,
    /// Uniform between zero and the delay.
    Full,
    /// Uniform between the first delay and three times the previous one, independent of how the
    /// delay grows.
    Decorrelated,
}

impl RetryPolicy {
    /// Always `delay`, without jitter.
    #[must_use]
    pub fn fixed(delay: Duration) -> Self {
        let delay = millis(delay);
        Self { growth: Growth::None, jitter: Jitter::None, base: delay, longest: delay }
    }

    /// `base` times the number of failures, at most one hour, with full jitter.
    #[must_use]
    pub fn linear(base: Duration) -> Self {
        Self { growth: Growth::Linear, ..Self::exponential(base) }
    }

    /// `base`, doubled for each failure after the first, at most one hour, with full jitter.
    #[must_use]
    pub fn exponential(base: Duration) -> Self {
        Self {
            growth: Growth::Exponential,
            jitter: Jitter::Full,
            base: millis(base),
            longest: Millis::saturating(3_600_000),
        }
    }

    /// Sets the longest delay, including jitter.
    #[must_use]
    pub fn max_delay(mut self, longest: Duration) -> Self {
        self.longest = millis(longest);
        self
    }

    /// Sets the jitter.
    #[must_use]
    pub const fn jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// Returns the delay after the `failures`-th failure (the first is 1). `random` returns any 64
    /// random bits, new ones for each call.
    #[must_use]
    pub fn delay(&self, failures: u32, mut random: impl FnMut() -> u64) -> Duration {
        let (base, longest) = (self.base.as_ms(), self.longest.as_ms());
        let failures = failures.max(1);
        let full = match self.growth {
            Growth::None => base,
            Growth::Linear => base.saturating_mul(u64::from(failures)),
            Growth::Exponential => {
                base.saturating_mul(1_u64.checked_shl(failures - 1).unwrap_or(u64::MAX))
            }
        };
        let ms = match self.jitter {
            Jitter::None => full,
            Jitter::Full => spread(0, full.min(longest), random()),
            // The previous delay is not stored: a walk of as many random steps has the same spread.
            Jitter::Decorrelated => (0..failures.min(LONGEST_WALK)).fold(0, |previous, _| {
                let most = previous.max(base).saturating_mul(3);
                spread(base, most, random()).min(longest)
            }),
        };
        Millis::saturating(ms.min(longest)).into()
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::exponential(Duration::from_secs(1))
    }
}

fn millis(duration: Duration) -> Millis {
    Millis::try_from(duration).unwrap_or(Millis::MAX)
}

/// Maps `random` evenly to `least..=most`.
fn spread(least: u64, most: u64, random: u64) -> u64 {
    let width = u128::from(most.saturating_sub(least)) + 1;
    let offset = (u128::from(random) * width) >> 64;
    least.saturating_add(u64::try_from(offset).unwrap_or(u64::MAX))
}

/// The spread of a walk reaches the longest delay long before.
const LONGEST_WALK: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Duration = Duration::from_millis(100);

    fn delays(policy: RetryPolicy, random: u64) -> Vec<u128> {
        let policy = policy.max_delay(Duration::from_secs(5));
        [1, 2, 3, 10, u32::MAX].map(|n| policy.delay(n, || random).as_millis()).to_vec()
    }

    #[test]
    fn waits_grow_up_to_the_longest() {
        let [fixed, linear, exponential] =
            [RetryPolicy::fixed, RetryPolicy::linear, RetryPolicy::exponential]
                .map(|policy| delays(policy(BASE).jitter(Jitter::None), 0));
        assert_eq!(fixed, [100; 5]);
        assert_eq!(linear, [100, 200, 300, 1_000, 5_000]);
        assert_eq!(exponential, [100, 200, 400, 5_000, 5_000]);
    }

    #[test]
    fn full_jitter_reaches_from_zero_to_the_wait() {
        let policy = RetryPolicy::exponential(BASE);
        assert_eq!(delays(policy, 0), [0; 5]);
        assert_eq!(delays(policy, u64::MAX), [100, 200, 400, 5_000, 5_000]);
        assert_eq!(delays(policy, 1 << 63), [50, 100, 200, 2_500, 2_500]);
    }

    #[test]
    fn decorrelated_jitter_reaches_from_the_base_to_three_times_the_wait_before() {
        let policy = RetryPolicy::exponential(BASE).jitter(Jitter::Decorrelated);
        assert_eq!(delays(policy, 0), [100; 5]);
        assert_eq!(delays(policy, u64::MAX), [300, 900, 2_700, 5_000, 5_000]);
    }

    #[test]
    fn any_duration_is_a_policy() {
        let longest = RetryPolicy::linear(Duration::MAX).jitter(Jitter::None);
        assert_eq!(longest.delay(u32::MAX, || 0), Duration::from_secs(3_600));
        assert_eq!(RetryPolicy::fixed(Duration::MAX).delay(1, || 0), Millis::MAX.into());
        let short = RetryPolicy::fixed(Duration::from_nanos(1));
        assert_eq!(short.delay(1, || 0), Duration::from_millis(1));
    }
}
