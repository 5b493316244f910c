//! A queue that is shown, and its latest readings.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use delayline::admin::{Forecast, History, Resolution, Stats};
use delayline::backend::{Op, Reply};
use delayline::codec::Raw;
use delayline::message::MessageInfo;
use delayline::{Bytes, Error, Queue, Timestamp};
use delayline_json::{FORECAST_DELAYS, Span, forecast_delays};

use crate::bulk::Slot;
use crate::failure::Failure;
use crate::latest::{Counted, Latest};
use crate::pull::polls::Polls;

/// A queue, and its latest readings.
pub(crate) struct Served {
    pub(crate) queue: Queue<Bytes, Raw>,
    pub(crate) counts: Latest<(Stats, Timestamp)>,
    pub(crate) counted: Counted,
    pub(crate) forecast: Latest<Forecast>,
    pub(crate) leases: Latest<Arc<Result<Leases, Error>>>,
    pub(crate) minutes: Latest<History>,
    pub(crate) hours: Latest<History>,
    pub(crate) job: Slot,
    pub(crate) polls: Arc<Polls>,
}

impl Served {
    /// Nothing was read of it yet.
    pub(crate) fn new(queue: Queue<Bytes, Raw>) -> Self {
        let (counts, counted, forecast, leases, minutes, hours, job, polls) = Default::default();
        let queue = queue.patience(PATIENCE);
        Self { queue, counts, counted, forecast, leases, minutes, hours, job, polls }
    }

    /// Counts the queue, and keeps the counts.
    async fn count(&self) -> Result<(Stats, Timestamp), Failure> {
        let (stats, at) = counted(&self.queue).await?;
        self.counted.keep(stats, at);
        Ok((stats, at))
    }

    /// The counts, at most a second old, and their instant by the server's clock. `None` if the
    /// queue cannot be counted.
    pub(crate) async fn counts(&self) -> Option<(Stats, Timestamp)> {
        self.counts.within(COUNTS_AGE, self.count()).await
    }

    /// The counts for a page, read now; those of [`counts`](Self::counts) for an open page that
    /// asks again.
    pub(crate) async fn counts_for(&self, is_live: bool) -> Result<(Stats, Timestamp), Failure> {
        match if is_live { self.counts().await } else { None } {
            Some(counts) => Ok(counts),
            None => self.counts.anew(self.count()).await,
        }
    }

    /// The leases that end first, at most a second old.
    pub(crate) async fn leases(&self) -> Result<Leases, Failure> {
        let read = async {
            let leases = delayline_admin::leased(&self.queue, MOST_LEASES).await;
            Ok::<_, Infallible>(Arc::new(leases))
        };
        let leases = self.leases.within(COUNTS_AGE, read).await.ok_or(Failure::Aborted)?;
        Ok(leases.as_ref().clone()?)
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

    /// What happened in a span; at most a minute old for an open page that asks again, and `None`
    /// if it could not be read.
    pub(crate) async fn history_for(
        &self,
        span: Span,
        is_live: bool,
    ) -> Result<Option<History>, Failure> {
        if is_live {
            return Ok(self.recent_history(span).await);
        }
        let resolution = span.resolution();
        let read = async { Ok(self.queue.history(resolution).await?) };
        self.latest(resolution).anew(read).await.map(Some)
    }

    /// What happened in a span, at most a minute old, and `None` if it could not be read.
    pub(crate) async fn recent_history(&self, span: Span) -> Option<History> {
        let resolution = span.resolution();
        let read = self.queue.history(resolution);
        self.latest(resolution).within(HISTORY_AGE, read).await
    }

    const fn latest(&self, resolution: Resolution) -> &Latest<History> {
        match resolution {
            Resolution::Minutes => &self.minutes,
            _ => &self.hours,
        }
    }
}

/// Leased messages, and whether there are more.
pub(crate) type Leases = (Vec<MessageInfo>, bool);

/// The counts of a queue, and the instant of the server's clock at which they were true.
pub(crate) async fn counted(queue: &Queue<Bytes, Raw>) -> Result<(Stats, Timestamp), Failure> {
    let applied = queue.apply(&Op::Stats).await?;
    match applied.reply {
        Reply::Stats(stats) => Ok((*stats, applied.at)),
        _ => Err(Failure::Protocol),
    }
}

/// How long a request is repeated while the server is unreachable.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// Leases that are read of each queue.
pub(crate) const MOST_LEASES: usize = 100;

const COUNTS_AGE: Duration = Duration::from_secs(1);
const FORECAST_AGE: Duration = Duration::from_secs(10);
const HISTORY_AGE: Duration = Duration::from_secs(60);
