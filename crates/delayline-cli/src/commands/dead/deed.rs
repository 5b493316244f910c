//! What can be done with dead letters, and how fast.

use std::time::Duration;

use delayline::{Bytes, MessageId, Purged, Queue, Raw, Redriven};
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::failure::Failure;
use crate::report::Fate;

/// Something to be done with dead letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    /// They are due again.
    Redrive {
        /// From now.
        delay: Duration,
    },
    /// They are deleted.
    Purge,
}

impl Deed {
    pub(super) const fn verb(self) -> &'static str {
        match self {
            Self::Redrive { .. } => "redrive",
            Self::Purge => "purge",
        }
    }

    pub(super) const fn done(self) -> &'static str {
        match self {
            Self::Redrive { .. } => "redriven",
            Self::Purge => "purged",
        }
    }

    pub(super) const fn would(self) -> &'static str {
        match self {
            Self::Redrive { .. } => "would_be_redriven",
            Self::Purge => "would_be_purged",
        }
    }

    /// Does it. What may have been done by a call whose reply was lost is not asked for twice in
    /// vain: it is `not_dead` then, or purged.
    pub(super) async fn apply(
        self,
        queue: &Queue<Bytes, Raw>,
        ids: Vec<MessageId>,
    ) -> Result<Vec<Fate>, Failure> {
        Ok(match self {
            Self::Redrive { delay } => {
                queue.redrive_many_in(ids, delay).await?.into_iter().map(redriven).collect()
            }
            Self::Purge => queue.purge_many(ids).await?.into_iter().map(purged).collect(),
        })
    }
}

const fn redriven(outcome: Redriven) -> Fate {
    match outcome {
        Redriven::Done { due } => Fate::due("redriven", due),
        Redriven::NotDead => Fate::not_done("not_dead"),
        Redriven::Unreadable => Fate::not_done("unreadable"),
        Redriven::NotFound => Fate::not_done("not_found"),
    }
}

const fn purged(outcome: Purged) -> Fate {
    match outcome {
        Purged::Purged => Fate::done("purged"),
        Purged::NotDead => Fate::not_done("not_dead"),
        Purged::NotFound => Fate::not_done("not_found"),
    }
}

/// How many letters go into one operation, and when the next one may be sent.
pub(super) struct Pace {
    pub(super) batch: usize,
    ticks: Option<Interval>,
}

impl Pace {
    /// At most `rate` letters a second on average, spread over the second; as fast as the server
    /// answers if there is none.
    pub(super) fn new(rate: Option<u32>) -> Self {
        let Some(rate) = rate.filter(|&rate| rate > 0) else {
            return Self { batch: BATCH, ticks: None };
        };
        let batch = (rate / OPERATIONS_A_SECOND).clamp(1, 1_000);
        let mut ticks = interval(Duration::from_secs(u64::from(batch)) / rate);
        // What is late is not made up for.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { batch: usize::try_from(batch).unwrap_or(BATCH), ticks: Some(ticks) }
    }

    /// Waits until the next operation may be sent.
    pub(super) async fn wait(&mut self) {
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
            let mut pace = Pace::new(Some(rate));
            let start = Instant::now();
            let mut sent = 0;
            while start.elapsed() < Duration::from_secs(10) {
                pace.wait().await;
                sent += pace.batch;
            }
            let most = usize::try_from(rate).unwrap() * 10;
            // The timer has a resolution of 1 ms, and is never early.
            assert!(sent <= most + 2 * pace.batch, "{rate}: {sent}");
            assert!(sent >= most * 9 / 10, "{rate}: {sent}");
        }
    }
}
