//! How fast letters are dealt with.

use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior, interval};

/// How many letters go into one operation, and when the next one may be sent.
#[derive(Debug)]
pub struct RateLimit {
    batch: usize,
    ticks: Option<Interval>,
}

impl RateLimit {
    /// At most `rate` letters a second on average, spread over the second; as fast as the server
    /// answers if there is none. Needs a runtime of tokio.
    #[must_use]
    pub fn new(rate: Option<u32>) -> Self {
        let Some(rate) = rate.filter(|&rate| rate > 0) else {
            return Self { batch: BATCH, ticks: None };
        };
        let batch = (rate / OPERATIONS_A_SECOND).clamp(1, 1_000);
        let mut ticks = interval(Duration::from_secs(u64::from(batch)) / rate);
        // Delays are not made up for.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { batch: usize::try_from(batch).unwrap_or(BATCH), ticks: Some(ticks) }
    }

    /// How many letters go into one operation.
    #[must_use]
    pub const fn batch(&self) -> usize {
        self.batch
    }

    /// Waits until the next operation may be sent. If the future is dropped, call it again.
    pub async fn wait(&mut self) {
        if let Some(ticks) = &mut self.ticks {
            ticks.tick().await;
        }
    }
}

const BATCH: usize = 100;
const OPERATIONS_A_SECOND: u32 = 10;

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_rate_is_kept_on_average_and_within_small_steps() {
        for rate in [1, 7, 50, 333, 100_000] {
            let mut rate_limit = RateLimit::new(Some(rate));
            let start = Instant::now();
            let mut sent = 0;
            while start.elapsed() < Duration::from_secs(10) {
                rate_limit.wait().await;
                sent += rate_limit.batch();
            }
            let most = usize::try_from(rate).unwrap() * 10;
            // The timer has a resolution of 1 ms, and is never early.
            assert!(sent <= most + 2 * rate_limit.batch(), "{rate}: {sent}");
            assert!(sent >= most * 9 / 10, "{rate}: {sent}");
        }
    }
}
