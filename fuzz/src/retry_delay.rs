//! Retry policies.

use std::time::Duration;

use arbitrary::Unstructured;
use delayline_core::{Jitter, Millis, RetryPolicy};

/// Reads the bytes as a policy and a series of failures.
///
/// # Panics
///
/// A wait is longer than the longest, or shorter than the policy allows, or the waits without
/// jitter shrink.
pub fn retry_delay(data: &[u8]) {
    let mut data = Unstructured::new(data);
    let (Ok(growth), Ok(jitter)) = (data.arbitrary::<u8>(), data.arbitrary::<u8>()) else {
        return;
    };
    let (Ok(base), Ok(longest)) = (data.arbitrary(), data.arbitrary()) else { return };
    let (base, longest) = (Duration::from_millis(base), Duration::from_millis(longest));
    let policies = [RetryPolicy::fixed, RetryPolicy::linear, RetryPolicy::exponential];
    let jitter = [Jitter::None, Jitter::Full, Jitter::Decorrelated][usize::from(jitter % 3)];
    let policy = policies[usize::from(growth % 3)](base).max_delay(longest).jitter(jitter);
    let longest = longest.min(Millis::MAX.into());
    let mut latest = (0, Duration::ZERO);
    while let (Ok(failures), Ok(mut random)) = (data.arbitrary::<u32>(), data.arbitrary::<u64>()) {
        let delay = policy.delay(failures, || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            random
        });
        assert!(delay <= longest, "{policy:?} {failures} {random}: {delay:?}");
        if jitter == Jitter::Decorrelated {
            assert!(delay >= base.min(longest), "{policy:?}: {delay:?}");
        }
        if jitter == Jitter::None {
            assert!(failures < latest.0 || delay >= latest.1, "{policy:?} {failures}: {delay:?}");
        }
        latest = (failures, delay);
        if data.is_empty() {
            break;
        }
    }
}
