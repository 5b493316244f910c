//! What was last read of a queue, for all who want to see it at the same time.

use std::time::Duration;

use delayline::{Forecast, Stats, Timestamp};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::context::counted;
use crate::dashboard::Served;

/// A value that is read again when it is too old.
#[derive(Debug)]
pub(crate) struct Latest<T>(Mutex<Option<(Instant, T)>>);

impl<T> Default for Latest<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T: Clone> Latest<T> {
    /// The value if it is at most as old, else what `read` returns. Whoever comes while it is read
    /// waits for the same one.
    async fn within(&self, age: Duration, read: impl Future<Output = T>) -> T {
        let mut latest = self.0.lock().await;
        if let Some((taken, value)) = &*latest
            && taken.elapsed() < age
        {
            return value.clone();
        }
        let value = read.await;
        *latest = Some((Instant::now(), value.clone()));
        value
    }
}

impl Served {
    /// The counts, at most a second old, and their instant by the server's clock. `None` if the queue
    /// cannot be counted.
    pub(crate) async fn counts(&self) -> Option<(Stats, Timestamp)> {
        self.counts.within(COUNTS_AGE, async { counted(&self.queue).await.ok() }).await
    }

    /// What falls due, as `read` returns it or at most ten seconds old.
    pub(crate) async fn forecast<E>(
        &self,
        read: impl Future<Output = Result<Forecast, E>>,
    ) -> Option<Forecast> {
        self.forecast.within(FORECAST_AGE, async { read.await.ok() }).await
    }
}

const COUNTS_AGE: Duration = Duration::from_secs(1);
const FORECAST_AGE: Duration = Duration::from_secs(10);
