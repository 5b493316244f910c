//! Delays of failed messages whose handlers return no delay.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use delayline_core::{Millis, RetryPolicy};

/// A policy, or a function of the caller.
#[derive(Clone)]
pub(crate) enum Retry {
    Policy(RetryPolicy),
    Custom(Arc<Delay>),
}

/// The delay for a number of failures and the latest error.
type Delay = dyn Fn(u32, &str) -> Duration + Send + Sync;

impl Retry {
    /// The delay after the `failures`-th failure.
    pub(super) fn delay(&self, failures: u32, error: &str) -> Millis {
        self.spread_delay(failures, error, || fastrand::u64(..))
    }

    /// Like `delay`, with all jitter at its maximum.
    #[cfg(feature = "testing")]
    pub(crate) fn longest_delay(&self, failures: u32, error: &str) -> Millis {
        self.spread_delay(failures, error, || u64::MAX)
    }

    fn spread_delay(&self, failures: u32, error: &str, random: impl Fn() -> u64) -> Millis {
        let delay = match self {
            Self::Policy(policy) => policy.delay(failures, random),
            Self::Custom(delay) => {
                catch_unwind(AssertUnwindSafe(|| delay(failures, error))).unwrap_or_else(|panic| {
                    // Dropping the panic's payload could panic again.
                    std::mem::forget(panic);
                    tracing::error!("the retry function panicked; the default policy is used");
                    RetryPolicy::default().delay(failures, random)
                })
            }
        };
        Millis::try_from(delay).unwrap_or(Millis::MAX)
    }
}

impl fmt::Debug for Retry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(policy) => policy.fmt(f),
            Self::Custom(_) => f.write_str("Custom"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_custom_delay_is_bounded_and_a_panic_falls_back_to_the_default() {
        let longest = Retry::Custom(Arc::new(|_, _| Duration::MAX));
        assert_eq!(longest.delay(1, ""), Millis::MAX);
        let broken = Retry::Custom(Arc::new(|_, _| panic!("no")));
        assert!(broken.delay(1, "") <= Millis::saturating(1_000));
    }
}
