//! The past of a queue.

use std::time::Duration;

use delayline::admin::{History, HistoryPoint, Resolution, Stats, Totals};
use delayline::backend::Millis;
use serde_json::{Value, json};

use crate::stats::counts;

/// Every point: its time, its counts under the names of [`counts`], and its deliveries by lateness.
/// The bounds of the lateness buckets are given once.
#[must_use]
pub fn history(queue: &str, resolution: Resolution, history: &History) -> Value {
    let bounds = (0..Totals::LATENESS_BUCKETS).map(Totals::lateness_bound);
    let bounds: Vec<_> =
        bounds.map(|bound| bound.and_then(|it| u64::try_from(it.as_millis()).ok())).collect();
    json!({
        "queue": queue,
        "resolution": resolution.name(),
        "lateness_below_ms": bounds,
        "points": history.points.iter().map(point).collect::<Vec<_>>(),
    })
}

fn point(point: &HistoryPoint) -> Value {
    let mut stats = Stats::default();
    (stats.scheduled, stats.ready) = (point.scheduled, point.ready);
    (stats.leased, stats.dead) = (point.leased, point.dead);
    stats.totals = point.totals;
    let mut object = json!({ "at": point.at.to_string(), "lateness": point.totals.lateness });
    for (name, count) in counts(&stats) {
        object[name] = json!(count);
    }
    object
}

/// For each part of the time of a history, the number of events, or the number of messages at its
/// end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Series {
    /// The counted event: `sent`, `delivered` and so on.
    pub name: &'static str,
    /// Whether it counts messages that were there, and not things that happened.
    pub is_level: bool,
    /// The counts, from the oldest part to the present one.
    pub parts: Vec<u64>,
}

/// How far a plot goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// One hour, in parts of one minute.
    Hour,
    /// Six hours, in parts of six minutes.
    SixHours,
    /// 24 hours, in parts of one hour.
    Day,
    /// 31 days, in parts of twelve hours.
    Month,
}

impl Span {
    /// All spans, the shortest first.
    pub const ALL: [Self; 4] = [Self::Hour, Self::SixHours, Self::Day, Self::Month];

    /// `1h`, `6h`, `24h` or `31d`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hour => "1h",
            Self::SixHours => "6h",
            Self::Day => "24h",
            Self::Month => "31d",
        }
    }

    /// The history that it needs.
    #[must_use]
    pub const fn resolution(self) -> Resolution {
        match self {
            Self::Hour | Self::SixHours => Resolution::Minutes,
            Self::Day | Self::Month => Resolution::Hours,
        }
    }

    const fn units_in_part(self) -> u64 {
        match self {
            Self::SixHours => 6,
            Self::Hour | Self::Day => 1,
            Self::Month => 12,
        }
    }

    pub(crate) const fn parts(self) -> u64 {
        match self {
            Self::Hour => 60,
            Self::Day => 24,
            _ => self.resolution().points() / self.units_in_part(),
        }
    }
}

/// All that a history of this resolution covers.
impl From<Resolution> for Span {
    fn from(resolution: Resolution) -> Self {
        match resolution {
            Resolution::Minutes => Self::SixHours,
            _ => Self::Month,
        }
    }
}

/// The time that one part of [`series`] takes: there are 24 to 62 parts.
#[must_use]
pub fn part_of(span: impl Into<Span>) -> Millis {
    let span = span.into();
    Millis::saturating(span.resolution().unit_ms() * span.units_in_part())
}

/// The parts that the time of a history is divided into.
pub(crate) struct Parts {
    pub(crate) count: usize,
    span: Span,
    /// The number of the part that is now, which is the last one.
    pub(crate) now: u64,
}

impl Parts {
    /// `None` if the history has no point.
    pub(crate) fn of(span: Span, history: &History) -> Option<Self> {
        let mut parts = Self { count: usize::try_from(span.parts()).ok()?, span, now: 0 };
        parts.now = parts.number(history.points.last()?);
        Some(parts)
    }

    fn number(&self, point: &HistoryPoint) -> u64 {
        point.at.as_ms() / part_of(self.span).as_ms()
    }

    /// Which of the parts a point is in.
    fn index(&self, point: &HistoryPoint) -> Option<usize> {
        let age = usize::try_from(self.now.saturating_sub(self.number(point))).ok()?;
        self.count.checked_sub(age.checked_add(1)?)
    }

    /// How often something happened in each part.
    pub(crate) fn flow(&self, history: &History, counter: impl Fn(&Totals) -> u64) -> Vec<u64> {
        let mut parts = vec![0_u64; self.count];
        for pair in history.points.windows(2) {
            // Nothing changed from the end of the first point's unit to the second point.
            let happened = counter(&pair[1].totals).saturating_sub(counter(&pair[0].totals));
            if let Some(part) = self.index(&pair[0]).and_then(|index| parts.get_mut(index)) {
                *part = part.saturating_add(happened);
            }
        }
        parts
    }

    /// What each part ended with.
    pub(crate) fn level(
        &self,
        history: &History,
        level: impl Fn(&HistoryPoint) -> u64,
    ) -> Vec<u64> {
        // Nothing changes between the end of a point's unit and the next point, which says how the
        // parts between them ended.
        let mut parts = vec![history.points.last().map_or(0, &level); self.count];
        for point in history.points.iter().rev() {
            if let Some(before) = self.index(point).and_then(|index| parts.get_mut(..index)) {
                before.fill(level(point));
            }
        }
        parts
    }

    /// For each part, how many messages were surely ready until its end: those of the last point
    /// before it, as far as nothing took them in the unit of that point.
    pub(crate) fn kept_ready(&self, history: &History, taken: impl Fn(&Totals) -> u64) -> Vec<u64> {
        let mut parts = vec![0; self.count];
        let points = &history.points;
        for (number, point) in points.iter().enumerate() {
            let next = points.get(number + 1).unwrap_or(point);
            let gone = taken(&next.totals).saturating_sub(taken(&point.totals));
            let from = self.index(point).unwrap_or_default();
            if let Some(rest) = parts.get_mut(from..) {
                rest.fill(point.ready.saturating_sub(gone));
            }
        }
        parts
    }
}

/// What a history says, as numbers to plot. Empty if the history has no point. Relayed, replaced,
/// cancelled and purged messages are listed only if there are any.
#[must_use]
pub fn series(span: impl Into<Span>, history: &History) -> Vec<Series> {
    let Some(all) = Parts::of(span.into(), history) else { return Vec::new() };
    let flow = |name, counter: fn(&Totals) -> u64| Series {
        name,
        is_level: false,
        parts: all.flow(history, counter),
    };
    let level = |name, level: fn(&HistoryPoint) -> u64| Series {
        name,
        is_level: true,
        parts: all.level(history, level),
    };
    let usual = [
        flow("sent", |totals| totals.enqueued),
        flow("delivered", Totals::delivered),
        flow("acked", |totals| totals.acked),
        flow("failed", |totals| totals.failed),
        flow("crashed", |totals| totals.crashed),
        flow("died", Totals::died),
    ];
    // Few queues have these.
    let others = [
        flow("relayed", |totals| totals.relayed),
        flow("replaced", |totals| totals.replaced),
        flow("cancelled", |totals| totals.cancelled),
        flow("purged", |totals| totals.purged),
    ];
    let levels = [
        // Messages become ready as time passes, which no point shows.
        level("waiting", |point| point.scheduled.saturating_add(point.ready)),
        level("leased", |point| point.leased),
        level("dead", |point| point.dead),
    ];
    let others = others.into_iter().filter(|series| series.parts.iter().any(|count| *count > 0));
    usual.into_iter().chain(others).chain(levels).collect()
}

/// How many deliveries of each part of [`series`] were how late: a row of parts for each bucket of
/// [`Totals::lateness`]. Empty if the history has no point.
#[must_use]
pub fn lateness_series(span: impl Into<Span>, history: &History) -> Vec<Vec<u64>> {
    let Some(parts) = Parts::of(span.into(), history) else { return Vec::new() };
    let row = |bucket: usize| {
        let count = move |totals: &Totals| totals.lateness.get(bucket).copied().unwrap_or_default();
        parts.flow(history, count)
    };
    (0..Totals::LATENESS_BUCKETS).map(row).collect()
}

/// How late the deliveries of a history were, in words: `50 % below 2 ms, 99 % below 64 ms, all
/// below 128 ms`. If some are in the last bucket: `50 % below 2 ms, 99 % below 64 ms, 3 of 4711
/// 32.8 s or more`. `None` if there were none.
#[must_use]
pub fn lateness_in_words(history: &History) -> Option<String> {
    let (first, last) = (history.points.first()?, history.points.last()?);
    let mut counts = last.totals.lateness;
    counts.iter_mut().zip(first.totals.lateness).for_each(|(count, before)| {
        *count = count.saturating_sub(before);
    });
    lateness_shares(&counts)
}

/// Like [`lateness_in_words`], for the counts of the buckets of [`Totals::lateness`].
#[must_use]
pub fn lateness_shares(counts: &[u64]) -> Option<String> {
    let total = sum_by(counts);
    if total == 0 {
        return None;
    }
    let below = |percent| lateness_bucket(counts, percent).and_then(Totals::lateness_bound);
    // A share without a bound reaches into the last bucket, which the end of the sentence is about.
    let shares = [50, 99].into_iter().filter_map(|percent| {
        below(percent).map(|bound| format!("{percent} % below {}", shown(bound)))
    });
    let late = counts.get(Totals::LATENESS_BUCKETS - 1).copied().unwrap_or_default();
    let end = match below(100) {
        Some(bound) => format!("all below {}", shown(bound)),
        None if u128::from(late) == total => format!("all {} or more", shown(LAST_BOUND)),
        None => format!("{late} of {total} {} or more", shown(LAST_BOUND)),
    };
    Some(shares.chain([end]).collect::<Vec<_>>().join(", "))
}

/// The lateness that a bucket of [`Totals::lateness`] begins at: `0 ms`, `2 ms`, `32.8 s`.
#[must_use]
pub fn lateness_from(bucket: usize) -> String {
    let before = bucket.checked_sub(1);
    shown(before.map_or(Duration::ZERO, |it| Totals::lateness_bound(it).unwrap_or(LAST_BOUND)))
}

/// Returns the first bucket of [`Totals::lateness`] that `percent` of the deliveries did not
/// exceed, or `None` if there were none.
#[must_use]
pub fn lateness_bucket(counts: &[u64], percent: u128) -> Option<usize> {
    let total = sum_by(counts);
    let mut sum = 0;
    let reached = |count: &u64| {
        sum += u128::from(*count);
        sum * 100 >= total * percent
    };
    (total > 0).then(|| counts.iter().position(reached)).flatten()
}

/// How late a delivery of a bucket of [`Totals::lateness`] was: `below 4 ms`, `32.8 s or more`.
#[must_use]
pub fn lateness_within(bucket: usize) -> String {
    match Totals::lateness_bound(bucket) {
        Some(bound) => format!("below {}", shown(bound)),
        None => format!("{} or more", shown(LAST_BOUND)),
    }
}

fn sum_by(counts: &[u64]) -> u128 {
    counts.iter().map(|count| u128::from(*count)).sum()
}

/// The bound that the last bucket begins at.
const LAST_BOUND: Duration = match Totals::lateness_bound(Totals::LATENESS_BUCKETS - 2) {
    Some(bound) => bound,
    None => Duration::ZERO,
};

fn shown(bound: Duration) -> String {
    match bound.as_millis() {
        ms if ms < 1_000 => format!("{ms} ms"),
        _ => format!("{:.1} s", bound.as_secs_f64()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use delayline::Timestamp;

    use super::*;

    fn point(minute: u64, enqueued: u64, ready: u64) -> HistoryPoint {
        let mut point = HistoryPoint::default();
        point.at = Timestamp::from_ms(minute * 60_000).unwrap();
        point.ready = ready;
        point.totals.enqueued = enqueued;
        point
    }

    fn hourly(hour: u64, sent: u64, waiting: u64) -> HistoryPoint {
        let mut point = point(0, sent, waiting);
        point.at = Timestamp::from_ms(hour * 3_600_000).unwrap();
        point
    }

    fn parts(points: Vec<HistoryPoint>, name: &str) -> Vec<u64> {
        let all = series(Resolution::Minutes, &History::new(points));
        all.into_iter().find(|series| series.name == name).unwrap().parts
    }

    #[test]
    fn a_history_is_written_point_by_point() {
        let mut before = point(1_000, 5, 1);
        before.totals.lateness[3] = 2;
        let written = history("orders", Resolution::Hours, &History::new(vec![before]));
        assert_eq!(
            (&written["queue"], &written["resolution"]),
            (&json!("orders"), &json!("hours"))
        );
        let bounds = written["lateness_below_ms"].as_array().unwrap();
        assert_eq!((&bounds[0], &bounds[15]), (&json!(2), &Value::Null));
        let shown = &written["points"][0];
        assert_eq!((&shown["at"], &shown["ready"]), (&json!(before.at.to_string()), &json!(1)));
        assert_eq!((&shown["enqueued_total"], &shown["lateness"][3]), (&json!(5), &json!(2)));
    }

    #[test]
    fn what_happened_belongs_to_the_unit_of_its_first_point() {
        let points =
            vec![point(1_000, 5, 1), point(1_001, 6, 2), point(1_336, 9, 3), point(1_337, 19, 4)];
        let sent = parts(points, "sent");
        assert_eq!(sent.len(), 60);
        // The last part begins at minute 1,332, and the one of minute 1,000 at 996.
        assert_eq!((sent[59], sent[3], sent.iter().sum::<u64>()), (10, 4, 14));
    }

    #[test]
    fn levels_are_those_at_the_end_of_each_part() {
        // The values of a point held from the end of the minute of the point before.
        let points =
            vec![point(1_000, 5, 1), point(1_001, 6, 2), point(1_336, 9, 3), point(1_337, 19, 4)];
        let waiting = parts(points, "waiting");
        assert_eq!(waiting, [vec![1; 3], vec![3; 56], vec![4]].concat());
        // 500 messages were sent five hours ago, and nothing has happened since.
        let stalled = vec![point(1_000, 0, 0), point(1_300, 500, 500)];
        assert_eq!(parts(stalled, "waiting"), [vec![0; 9], vec![500; 51]].concat());
        // Two were scheduled, and one of them is ready now.
        let mut points = vec![point(1_000, 2, 0), point(1_001, 2, 1)];
        (points[0].scheduled, points[1].scheduled) = (2, 1);
        assert_eq!(parts(points, "waiting"), [2; 60]);
    }

    #[test]
    fn what_few_queues_have_is_there_if_any_was() {
        let names = |points: Vec<HistoryPoint>| {
            let all = series(Resolution::Minutes, &History::new(points));
            all.iter().map(|series| series.name).collect::<Vec<_>>().join(" ")
        };
        let mut points = vec![point(1_000, 9, 0); 2];
        points[0].totals.relayed = 3;
        points[1].totals.relayed = 3;
        let usual = "sent delivered acked failed crashed died";
        assert_eq!(names(points.clone()), format!("{usual} waiting leased dead"));
        points[1].totals.relayed = 7;
        assert_eq!(names(points.clone()), format!("{usual} relayed waiting leased dead"));
        assert_eq!(parts(points.clone(), "relayed").iter().sum::<u64>(), 4);
        (points[1].totals.cancelled, points[1].totals.purged) = (1, 1);
        points[1].totals.replaced = 1;
        let all = format!("{usual} relayed replaced cancelled purged waiting leased dead");
        assert_eq!(names(points), all);
    }

    #[test]
    fn odd_histories_have_a_plot_too() {
        assert_eq!(series(Resolution::Hours, &History::default()), []);
        // Counters that fell, because a record was lost, and points that are not in order.
        let sent = parts(vec![point(2_000, 9, 0), point(1, 3, 0), point(0, 1, 0)], "sent");
        assert_eq!(sent.iter().sum::<u64>(), 0);
        let alone = parts(vec![point(0, 7, 8)], "waiting");
        assert_eq!(alone, [8; 60]);
        assert_eq!(
            series(Resolution::Hours, &History::new(vec![point(0, 1, 1)]))[0].parts.len(),
            62
        );
    }

    #[test]
    fn a_day_is_the_last_24_hours_of_the_hours() {
        let hours: Vec<_> =
            (0..100_u64).map(|hour| hourly(1_000 + hour, hour * 10, hour)).collect();
        let series = series(Span::Day, &History::new(hours));
        let of = |name: &str| &series.iter().find(|it| it.name == name).unwrap().parts;
        // The last hour has just begun.
        assert_eq!((of("sent").len(), of("sent").iter().sum::<u64>()), (24, 230));
        assert_eq!((of("sent")[0], of("sent")[22], of("sent")[23]), (10, 10, 0));
        assert_eq!((of("waiting")[0], of("waiting")[23]), (77, 99));
        assert_eq!(Span::ALL.map(|span| part_of(span).as_ms() / 60_000), [1, 6, 60, 720]);
    }

    #[test]
    fn lateness_is_counted_by_part_and_bucket() {
        assert_eq!(lateness_series(Resolution::Minutes, &History::default()), [[0; 0]; 0]);
        let mut points = vec![point(1_000, 0, 0), point(1_001, 0, 0), point(1_337, 0, 0)];
        points[0].totals.lateness[3] = 7;
        points[1].totals.lateness[3] = 12;
        points[2].totals.lateness[3] = 13;
        points[2].totals.lateness[15] = 2;
        let rows = lateness_series(Resolution::Minutes, &History::new(points));
        assert_eq!(rows.len(), 16);
        assert!(rows.iter().all(|row| row.len() == 60));
        // The part of minute 1,000 is that of 1,001 as well.
        assert_eq!((rows[3][3], rows[3].iter().sum::<u64>()), (6, 6));
        assert_eq!((rows[15][3], rows[0].iter().sum::<u64>()), (2, 0));
        let starts = [0, 1, 2, 10, 15, 99].map(lateness_from);
        assert_eq!(starts, ["0 ms", "2 ms", "4 ms", "1.0 s", "32.8 s", "32.8 s"]);
    }

    #[test]
    fn lateness_is_told_by_bounds() {
        let words = |counts: [u64; 16]| {
            let mut points = vec![point(0, 0, 0); 2];
            points[0].totals.lateness[0] = 7;
            points[1].totals.lateness = counts;
            points[1].totals.lateness[0] += 7;
            lateness_in_words(&History::new(points))
        };
        assert_eq!(words([0; 16]), None);
        let mut counts = [0; 16];
        (counts[0], counts[5], counts[12]) = (60, 39, 1);
        let expected = "50 % below 2 ms, 99 % below 64 ms, all below 8.2 s";
        assert_eq!(words(counts).as_deref(), Some(expected));
        // Deliveries in the last bucket do not change the words about the others.
        for (late, expected) in [
            (1, "50 % below 2 ms, 99 % below 8.2 s, 1 of 101 32.8 s or more"),
            (3, "50 % below 2 ms, 3 of 103 32.8 s or more"),
            (1_000, "1000 of 1100 32.8 s or more"),
        ] {
            counts[15] = late;
            assert_eq!(words(counts).as_deref(), Some(expected));
        }
        counts = [0; 16];
        counts[15] = 1;
        assert_eq!(words(counts).as_deref(), Some("all 32.8 s or more"));
    }
}
