//! A queue that is shown, and its latest readings.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use delayline::admin::{Explanation, Forecast, History, Resolution, Stats};
use delayline::after::Ended;
use delayline::backend::{Op, Reply};
use delayline::codec::Raw;
use delayline::message::MessageInfo;
use delayline::{Bytes, Error, Found, Queue, Timestamp};
use delayline_admin::GroupCount;
use delayline_json::{Span, Step, is_consumed, part_of, step_delays, steps};

use crate::bulk::Slot;
use crate::failure::Failure;
use crate::latest::{Counted, Latest};
use crate::pull::polls::Polls;

/// A queue, and its latest readings.
pub(crate) struct Served {
    pub(crate) queue: Queue<Bytes, Raw>,
    counts: Latest<Result<(Stats, Timestamp), Failure>>,
    pub(crate) counted: Counted,
    /// What falls due, for each span.
    ahead: [Latest<Ahead>; Span::ALL.len()],
    /// Taken by the one reading besides the counts that a row may take.
    turn: Latest<()>,
    groups: Latest<Arc<(Vec<GroupCount>, bool)>>,
    leases: Latest<Arc<Result<Leases, Error>>>,
    minutes: Latest<History>,
    hours: Latest<History>,
    pub(crate) job: Slot,
    pub(crate) polls: Arc<Polls>,
}

impl Served {
    /// Nothing was read of it yet.
    pub(crate) fn new(queue: Queue<Bytes, Raw>) -> Self {
        let (counts, counted, ahead, turn, groups) = Default::default();
        let (leases, minutes, hours, job, polls) = Default::default();
        let queue = queue.patience(PATIENCE);
        Self { queue, counts, counted, ahead, turn, groups, leases, minutes, hours, job, polls }
    }

    /// Counts the queue, and keeps the counts.
    async fn count(&self) -> Result<Result<(Stats, Timestamp), Failure>, Infallible> {
        let counts = counted(&self.queue).await;
        if let Ok((stats, at)) = counts {
            self.counted.keep(stats, at);
        }
        Ok(counts)
    }

    /// The counts, at most a second old, and their instant by the server's clock. `None` if the
    /// queue cannot be counted.
    pub(crate) async fn counts(&self) -> Option<(Stats, Timestamp)> {
        self.counts_within(COUNTS_AGE).await.ok()
    }

    /// The counts, or why there are none, at most this old.
    pub(crate) async fn counts_within(&self, age: Duration) -> Result<(Stats, Timestamp), Failure> {
        self.counts.within(age, self.count()).await.unwrap_or(Err(Failure::Aborted))
    }

    /// The last counts, which tell the place of a queue among many.
    pub(crate) async fn surveyed(&self) -> Option<(Stats, Timestamp)> {
        match self.counted.younger_than(SURVEY_AGE) {
            None => self.counts_within(ROW_AGE).await.ok(),
            last => last,
        }
    }

    /// Reads past and future for a row of the first page: at most one of both in [`ROW_AGE`],
    /// unless the future is unknown.
    pub(crate) async fn read_more(&self, now: Timestamp) {
        let span = Span::SixHours;
        let more = async {
            let is_unknown = self.ahead[span as usize].is_older(KNOWN_AGE);
            let is_old = self.minutes.is_older(HISTORY_AGE);
            if is_old {
                self.recent_history(span, HISTORY_AGE).await;
            }
            if is_unknown || !is_old {
                self.ahead(span, now, Some(ROW_FORECAST_AGE)).await?;
            }
            Ok::<_, Failure>(())
        };
        self.turn.within(ROW_AGE, more).await;
    }

    /// Whether [`is_consumed`](Self::is_consumed) reads nothing.
    pub(crate) fn knows_history(&self) -> bool {
        !self.minutes.is_older(HISTORY_AGE)
    }

    /// Whether messages were taken lately, by a history that is at most a minute old. `None` if it
    /// cannot be read.
    pub(crate) async fn is_consumed(&self, stats: &Stats, now: Timestamp) -> Option<bool> {
        let span = Span::SixHours;
        let history = self.recent_history(span, HISTORY_AGE).await?;
        Some(is_consumed(span, stats, now, &history))
    }

    /// What a row of the first page shows: the counts, and the known past and future. Readings
    /// from the last time that a page was open would be taken for those of now.
    pub(crate) async fn recent(&self) -> Result<Recent, Failure> {
        let (stats, now) = self.counts_within(ROW_AGE).await?;
        let history = self.minutes.younger_than(KNOWN_AGE);
        let ahead = self.ahead[Span::SixHours as usize].younger_than(KNOWN_AGE);
        Ok(Recent { stats, now, history, ahead })
    }

    /// The counts for a page, read now; those of [`counts`](Self::counts) for an open page that
    /// asks again.
    pub(crate) async fn counts_for(&self, is_live: bool) -> Result<(Stats, Timestamp), Failure> {
        if is_live {
            return self.counts_within(COUNTS_AGE).await;
        }
        let Ok(counts) = self.counts.anew(self.count()).await;
        counts
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

    /// What falls due in the steps of a span from now on: read now, or at most this old, and `None`
    /// if it could not be read.
    pub(crate) async fn ahead(
        &self,
        span: Span,
        now: Timestamp,
        age: Option<Duration>,
    ) -> Result<Option<Ahead>, Failure> {
        let read = async {
            // The counts, and with them `now`, may be seconds old.
            let now = self.counted.last().0.map_or(now, |(_, now)| now);
            let (step, delays) = step_delays(span, now);
            let Forecast { due, later, .. } =
                self.queue.forecast(delays.into_iter().map(Duration::from)).await?;
            Ok(Ahead { step, due, later })
        };
        let latest = &self.ahead[span as usize];
        match age {
            Some(age) => Ok(latest.within(age, read).await),
            None => latest.anew(read).await.map(Some),
        }
    }

    /// The groups with waiting or leased messages, at most ten seconds old, and whether all
    /// messages were counted.
    pub(crate) async fn groups(&self) -> Option<Arc<(Vec<GroupCount>, bool)>> {
        let read = async {
            let groups = GroupCount::within(&self.queue, MOST_GROUPED).await?;
            Ok::<_, Error>(Arc::new(groups))
        };
        self.groups.within(FORECAST_AGE, read).await
    }

    /// What happened in a span; at most ten seconds old for an open page that asks again, and
    /// `None` if it could not be read.
    pub(crate) async fn history_for(
        &self,
        span: Span,
        is_live: bool,
    ) -> Result<Option<History>, Failure> {
        if is_live {
            return Ok(self.recent_history(span, FORECAST_AGE).await);
        }
        let resolution = span.resolution();
        let read = async { Ok(self.queue.history(resolution).await?) };
        self.latest(resolution).anew(read).await.map(Some)
    }

    /// What happened in a span, at most this old, and `None` if it could not be read.
    async fn recent_history(&self, span: Span, age: Duration) -> Option<History> {
        let resolution = span.resolution();
        let read = self.queue.history(resolution);
        self.latest(resolution).within(age, read).await
    }

    const fn latest(&self, resolution: Resolution) -> &Latest<History> {
        match resolution {
            Resolution::Minutes => &self.minutes,
            _ => &self.hours,
        }
    }
}

/// What falls due in steps.
#[derive(Clone)]
pub(crate) struct Ahead {
    /// The number of the first step.
    step: u64,
    due: Vec<u64>,
    /// Messages that fall due after the last step.
    pub(crate) later: u64,
}

/// What a row of the first page shows.
pub(crate) struct Recent {
    pub(crate) stats: Stats,
    pub(crate) now: Timestamp,
    pub(crate) history: Option<History>,
    pub(crate) ahead: Option<Ahead>,
}

/// Past and future on one axis, whenever each of both was read.
pub(crate) fn timeline(span: Span, history: &History, ahead: Option<&Ahead>) -> Vec<Step> {
    let (Some(last), Some(ahead)) = (history.points.last(), ahead) else {
        return steps(span, history, ahead.map(|ahead| &*ahead.due));
    };
    let now = last.at.as_ms() / part_of(span).as_ms();
    let before = usize::try_from(ahead.step.saturating_sub(now)).unwrap_or(usize::MAX);
    let over = usize::try_from(now.saturating_sub(ahead.step)).unwrap_or(usize::MAX);
    let none = std::iter::repeat_n(0, before.min(ahead.due.len()));
    let due: Vec<u64> = none.chain(ahead.due.iter().skip(over).copied()).collect();
    steps(span, history, Some(&due))
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

/// Why a message is not delivered; and how far the members have come that it waits for, if it does
/// and they can be queried.
pub(crate) async fn explained(
    queue: &Queue<Bytes, Raw>,
    found: &Found<Bytes>,
) -> Result<(Explanation, Timestamp, Option<Vec<Ended>>), Failure> {
    let (stats, now) = match found.info() {
        Some(info) => queue.stats_near(info).await?,
        None => counted(queue).await?,
    };
    let explanation = Explanation::new(found, now, &stats);
    if let Found::Live(message) = found
        && let Some(waiting) = &message.waiting
        && let Ok(ends) = queue.members_of(waiting).await
    {
        return Ok((explanation.with_ends(&ends), now, Some(ends)));
    }
    Ok((explanation, now, None))
}

/// How long a request is repeated while the server is unreachable.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// Leases that are read of each queue.
pub(crate) const MOST_LEASES: usize = 100;

/// Ready, and leased messages whose groups are counted.
const MOST_GROUPED: usize = 1_000;

const COUNTS_AGE: Duration = Duration::from_secs(1);
/// How old what an open page shows of past and future may be.
pub(crate) const FORECAST_AGE: Duration = Duration::from_secs(10);
/// The same for rows of the first page.
pub(crate) const ROW_AGE: Duration = Duration::from_secs(5);
const ROW_FORECAST_AGE: Duration = Duration::from_secs(15);
const HISTORY_AGE: Duration = Duration::from_secs(60);
/// How old readings of past and future may be that rows show. An open page reads them sooner.
const KNOWN_AGE: Duration = Duration::from_secs(120);
const SURVEY_AGE: Duration = Duration::from_secs(60);
