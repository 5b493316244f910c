//! Retry policies.

use arbitrary::Unstructured;
use delayline_core::{Backoff, Jitter, Millis, RetryPolicy};

/// Reads the bytes as a policy and a series of failures.
///
/// # Panics
///
/// A wait is longer than the cap, or shorter than the policy allows, or the waits without jitter
/// shrink.
pub fn retry_delay(data: &[u8]) {
    let mut data = Unstructured::new(data);
    let (Ok(backoff), Ok(jitter)) = (data.arbitrary::<u8>(), data.arbitrary::<u8>()) else {
        return;
    };
    let (Ok(base), Ok(cap)) = (data.arbitrary(), data.arbitrary()) else { return };
    let policy = RetryPolicy {
        backoff: [Backoff::Fixed, Backoff::Linear, Backoff::Exponential][usize::from(backoff % 3)],
        jitter: [Jitter::None, Jitter::Full, Jitter::Decorrelated][usize::from(jitter % 3)],
        base: Millis::saturating(base),
        cap: Millis::saturating(cap),
    };
    let mut previous = Millis::ZERO;
    let mut latest = 0;
    while let (Ok(failures), Ok(random)) = (data.arbitrary::<u32>(), data.arbitrary()) {
        let delay = policy.delay(failures, previous, random);
        assert!(delay <= policy.cap, "{policy:?} {failures} {previous:?} {random}: {delay:?}");
        if policy.jitter == Jitter::Decorrelated {
            assert!(delay >= policy.base.min(policy.cap), "{policy:?}: {delay:?}");
        }
        if policy.jitter == Jitter::None {
            assert!(failures < latest || delay >= previous, "{policy:?} {failures}: {delay:?}");
        }
        (previous, latest) = (delay, failures);
        if data.is_empty() {
            break;
        }
    }
}
