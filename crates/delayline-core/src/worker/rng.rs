//! All randomness of a worker, derived from one seed.

use std::time::Duration;

use crate::{ClaimId, ProcessId};

/// A pseudo-random generator. Its 2^128 numbers never repeat.
#[derive(Debug)]
pub(super) struct Rng {
    state: u128,
    process: ProcessId,
}

impl Rng {
    pub(super) const fn new(seed: [u8; 16]) -> Self {
        Self { state: u128::from_be_bytes(seed), process: ClaimId::from_bytes(seed).process() }
    }

    /// The process of the seed, and a number that no other claim id of this seed has within 2^64:
    /// the lower half of the state, which the odd lower half of [`STEP`] leads through all numbers.
    pub(super) fn claim_id(&mut self) -> ClaimId {
        self.next();
        let mut bytes = self.state.to_be_bytes();
        for (byte, of_process) in bytes.iter_mut().zip(self.process.as_bytes()) {
            *byte = *of_process;
        }
        ClaimId::from_bytes(bytes)
    }

    /// Evenly distributed over all numbers.
    pub(super) fn chance(&mut self) -> u32 {
        u32::try_from(self.next() >> 96).unwrap_or(u32::MAX)
    }

    /// Evenly distributed over `least..=most`.
    pub(super) fn between(&mut self, least: Duration, most: Duration) -> Duration {
        let offset = most.saturating_sub(least).saturating_mul(self.chance()) / u32::MAX;
        least.saturating_add(offset)
    }

    /// `most` or up to a tenth less, so that workers that started together drift apart.
    pub(super) fn nearly(&mut self, most: Duration) -> Duration {
        self.between(most * 9 / 10, most)
    }

    /// Steps through all numbers, and scrambles them one-to-one.
    const fn next(&mut self) -> u128 {
        self.state = self.state.wrapping_add(STEP);
        let mut number = self.state;
        number = (number ^ (number >> 63)).wrapping_mul(FACTOR);
        number = (number ^ (number >> 65)).wrapping_mul(FACTOR);
        number ^ (number >> 64)
    }
}

/// Both are odd, which a full period and a one-to-one scramble require.
const STEP: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
const FACTOR: u128 = 0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Runs can be identified by their seeds only as long as a seed means the same.
    #[test]
    fn a_seed_means_the_same_in_every_version() {
        let ids: Vec<_> = {
            let mut rng = Rng::new(*b"sixteen bytes...");
            (0..2).map(|_| format!("{:?}", rng.claim_id())).collect()
        };
        let expected = [
            "ClaimId(7369787465656e20561634c5d01bf663)",
            "ClaimId(7369787465656e2049b2f5262d09be98)",
        ];
        assert_eq!(ids, expected);
    }

    #[test]
    fn every_bit_is_even() {
        let mut rng = Rng::new([0; 16]);
        let mut ones = [0_u32; 128];
        for _ in 0..4_000 {
            let number = rng.next();
            for (bit, ones) in ones.iter_mut().enumerate() {
                *ones += u32::from(number >> bit & 1 == 1);
            }
        }
        assert!(ones.iter().all(|ones| (1_800..2_200).contains(ones)), "{ones:?}");
    }

    #[test]
    fn numbers_differ_and_spread_evenly() {
        let mut rng = Rng::new([0; 16]);
        let ids: HashSet<_> = (0..10_000).map(|_| rng.claim_id()).collect();
        assert_eq!(ids.len(), 10_000);
        assert!(ids.iter().all(|id| id.process() == ProcessId::from_bytes([0; 8])));
        let (low, high) = (Duration::from_millis(100), Duration::from_millis(200));
        let drawn: Vec<_> = (0..10_000).map(|_| rng.between(low, high)).collect();
        assert!(drawn.iter().all(|drawn| (low..=high).contains(drawn)));
        let mean = drawn.iter().sum::<Duration>() / 10_000;
        assert!(mean > Duration::from_millis(148) && mean < Duration::from_millis(152), "{mean:?}");
        assert_eq!(rng.between(high, low), high);
    }
}
