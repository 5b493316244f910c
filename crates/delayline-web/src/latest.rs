//! What was last read of a queue, for all who want to see it at the same time.

use std::sync::PoisonError;
use std::time::Duration;

use delayline::{Forecast, History, Resolution, Stats, Timestamp};
use delayline_json::{FORECAST_DELAYS, forecast_delays};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::context::counted;
use crate::dashboard::Served;
use crate::failure::Failure;

/// A value that is read again when it is too old; without one if it could not be read.
#[derive(Debug)]
pub(crate) struct Latest<T>(Mutex<Option<(Instant, Option<T>)>>);

impl<T> Default for Latest<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T: Clone> Latest<T> {
    /// The value if it is at most as old, else what `read` returns. Whoever comes while it is read
    /// waits for the same one.
    pub(crate) async fn within<E>(
        &self,
        age: Duration,
        read: impl Future<Output = Result<T, E>>,
    ) -> Option<T> {
        let mut latest = self.0.lock().await;
        if let Some((taken, value)) = &*latest
            && taken.elapsed() < age
        {
            return value.clone();
        }
        let value = read.await.ok();
        *latest = Some((Instant::now(), value.clone()));
        value
    }

    /// What `read` returns. It is kept, so that nobody gets an older one from now on.
    async fn anew<E>(&self, read: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let value = read.await?;
        *self.0.lock().await = Some((Instant::now(), Some(value.clone())));
        Ok(value)
    }
}

/// The last counts of a queue, which stay while it cannot be counted.
#[derive(Debug)]
pub(crate) struct Counted {
    /// When the queue was first to be counted.
    first: Instant,
    last: std::sync::Mutex<Option<(Instant, Stats, Timestamp)>>,
}

impl Default for Counted {
    fn default() -> Self {
        Self { first: Instant::now(), last: std::sync::Mutex::default() }
    }
}

impl Counted {
    /// The last counts with the time by the server's clock now, if there are any, and their age: how
    /// long there are none, if so.
    pub(crate) fn last(&self) -> (Option<(Stats, Timestamp)>, Duration) {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((taken, stats, at)) = last else { return (None, self.first.elapsed()) };
        let age = taken.elapsed();
        let passed = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        let now = Timestamp::from_ms(at.as_ms().saturating_add(passed)).unwrap_or(at);
        (Some((stats, now)), age)
    }
}

impl Served {
    /// Counts the queue, and keeps the counts.
    async fn count(&self) -> Result<(Stats, Timestamp), Failure> {
        let (stats, at) = counted(&self.queue).await?;
        let mut last = self.counted.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some((Instant::now(), stats, at));
        Ok((stats, at))
    }

    /// The counts, at most a second old, and their instant by the server's clock. `None` if the queue
    /// cannot be counted.
    pub(crate) async fn counts(&self) -> Option<(Stats, Timestamp)> {
        self.counts.within(COUNTS_AGE, self.count()).await
    }

    /// The counts for a page, read now; those of [`counts`](Self::counts) for an open page that asks
    /// again.
    pub(crate) async fn counts_for(&self, is_live: bool) -> Result<(Stats, Timestamp), Failure> {
        match if is_live { self.counts().await } else { None } {
            Some(counts) => Ok(counts),
            None => self.counts.anew(self.count()).await,
        }
    }

    /// What falls due; at most ten seconds old for an open page that asks again, and `None` if it
    /// could not be read.
    pub(crate) async fn forecast_for(&self, is_live: bool) -> Result<Option<Forecast>, Failure> {
        let read = async {
            let delays = forecast_delays(FORECAST_DELAYS).map_err(Failure::Wrong)?;
            Ok(self.queue.forecast(delays).await?)
        };
        if is_live {
            return Ok(self.forecast.within(FORECAST_AGE, read).await);
        }
        self.forecast.anew(read).await.map(Some)
    }

    /// What happened in the last six hours; at most a minute old for an open page that asks again,
    /// and `None` if it could not be read.
    pub(crate) async fn history_for(&self, is_live: bool) -> Result<Option<History>, Failure> {
        let read = async { Ok(self.queue.history(Resolution::Minutes).await?) };
        if is_live {
            return Ok(self.history.within(HISTORY_AGE, read).await);
        }
        self.history.anew(read).await.map(Some)
    }
}

const COUNTS_AGE: Duration = Duration::from_secs(1);
const FORECAST_AGE: Duration = Duration::from_secs(10);
const HISTORY_AGE: Duration = Duration::from_secs(60);
