//! How long syncs of the log take.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The syncs of a log since its directory was opened: a histogram of their durations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Syncs {
    /// The number of syncs per bucket. The last bucket has those beyond all bounds.
    counts: [u64; BOUNDS_US.len() + 1],
    /// The sum of all durations, in microseconds.
    sum_us: u64,
    /// The longest one, in microseconds.
    max_us: u64,
}

impl Syncs {
    pub(crate) fn add(&mut self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.counts[BOUNDS_US.partition_point(|bound| *bound < us)] += 1;
        self.sum_us = self.sum_us.saturating_add(us);
        self.max_us = self.max_us.max(us);
    }

    /// Returns the number of syncs.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the duration of all syncs together.
    #[must_use]
    pub const fn sum(&self) -> Duration {
        Duration::from_micros(self.sum_us)
    }

    /// Returns the duration of the longest sync.
    #[must_use]
    pub const fn max(&self) -> Duration {
        Duration::from_micros(self.max_us)
    }

    /// Returns the upper bound of each bucket, which `None` lacks, and the number of syncs that
    /// took at most that long: cumulative, as Prometheus expects it.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<Duration>, u64)> {
        let bounds = BOUNDS_US.iter().map(|bound| Some(Duration::from_micros(*bound)));
        let counts = self.counts.iter().scan(0, |below, count| {
            *below += count;
            Some(*below)
        });
        bounds.chain([None]).zip(counts)
    }

    /// Returns a duration that this share of the syncs, between 0 and 1, did not exceed: the upper
    /// bound of a bucket, or the longest sync if that is shorter. Zero if there were none.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Duration {
        #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
        let reached = |below: u64| below as f64 >= share * self.count() as f64;
        let bound = self.buckets().find(|(_, below)| reached(*below)).and_then(|(bound, _)| bound);
        bound.map_or_else(|| self.max(), |bound| bound.min(self.max()))
    }
}

/// The upper bounds of the buckets, in microseconds.
const BOUNDS_US: [u64; 16] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_bounds_of_buckets_up_to_the_longest_sync() {
        let mut syncs = Syncs::default();
        assert_eq!((syncs.count(), syncs.quantile(0.5)), (0, Duration::ZERO));
        (0..98).for_each(|_| syncs.add(Duration::from_micros(90)));
        syncs.add(Duration::from_millis(7));
        syncs.add(Duration::from_secs(60));
        assert_eq!(syncs.quantile(0.5), Duration::from_micros(100));
        assert_eq!(syncs.quantile(0.99), Duration::from_millis(10));
        assert_eq!(syncs.quantile(1.0), Duration::from_secs(60));
        assert_eq!(syncs.max(), Duration::from_secs(60));
        assert_eq!(syncs.sum(), Duration::from_micros(98 * 90 + 7_000 + 60_000_000));
        assert_eq!(syncs.buckets().last(), Some((None, 100)));
        assert_eq!(syncs.buckets().nth(1), Some((Some(Duration::from_micros(100)), 98)));
    }
}
