//! Past and future of a queue on one axis, step by step.

use delayline::Timestamp;
use delayline::admin::{History, Stats, Totals};
use delayline::backend::Millis;

use crate::history::{Parts, Span, lateness_bucket, lateness_series, part_of};

/// A step of an axis of time that has the present in its middle. All steps of an axis are equally
/// long.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Step {
    /// When it begins.
    pub from: Timestamp,
    /// When the next step begins.
    pub until: Timestamp,
    /// What happened. `None` if the step has not begun.
    pub past: Option<Past>,
    /// Number of scheduled messages that fall due, in the rest of the step if it has begun. `None`
    /// if the step has ended, or if that is unknown.
    pub due: Option<u64>,
}

/// What happened in a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Past {
    /// Messages that were sent.
    pub sent: u64,
    /// Deliveries.
    pub delivered: u64,
    /// Messages that were acked.
    pub acked: u64,
    /// Leases that ended in a failure or a rejection, or expired.
    pub failed: u64,
    /// Messages that became dead letters.
    pub died: u64,
    /// Messages that waited at its end, due or not.
    pub waiting: u64,
    /// The bucket of [`Totals::lateness`] that 50 % of the deliveries did not exceed. `None` if
    /// nothing was delivered.
    pub p50: Option<usize>,
    /// The same for 99 %.
    pub p99: Option<usize>,
    /// Nothing was delivered or relayed, and due messages were known to wait before and after.
    pub is_stalled: bool,
}

/// Returns the steps of `span` before now and as many after it; the step that is now is one of
/// both. `due` has the number of messages that fall due in each step from this one on; `None` if
/// that is unknown. Returns no step if the history has no point.
#[must_use]
pub fn steps(span: Span, history: &History, due: Option<&[u64]>) -> Vec<Step> {
    let Some(parts) = Parts::of(span, history) else { return Vec::new() };
    let flow = |counter: fn(&Totals) -> u64| parts.flow(history, counter);
    let (sent, acked, died) = (flow(|it| it.enqueued), flow(|it| it.acked), flow(Totals::died));
    let (delivered, failed) = (flow(Totals::delivered), flow(failures));
    let waiting = parts.level(history, |point| point.scheduled.saturating_add(point.ready));
    let taken = flow(taken);
    let ready_before = parts.kept_ready(history, gone);
    let ready_after = parts.level(history, |point| point.ready);
    let late = lateness_series(span, history);
    let count = parts.count;
    let length = part_of(span).as_ms();
    let instant = |number: u64| Timestamp::from_ms(number.saturating_mul(length));
    let first = (parts.now + 1).saturating_sub(u64::try_from(count).unwrap_or(u64::MAX));
    let step = |number: usize| {
        let at = first.saturating_add(u64::try_from(number).ok()?);
        let of = |series: &[u64]| series.get(number).copied().unwrap_or_default();
        let late: Vec<u64> = late.iter().map(|row| of(row)).collect();
        let past = Past {
            sent: of(&sent),
            delivered: of(&delivered),
            acked: of(&acked),
            failed: of(&failed),
            died: of(&died),
            waiting: of(&waiting),
            p50: lateness_bucket(&late, 50),
            p99: lateness_bucket(&late, 99),
            is_stalled: of(&taken) == 0 && of(&ready_before) > 0 && of(&ready_after) > 0,
        };
        let ahead = (number + 1).checked_sub(count);
        Some(Step {
            from: instant(at).ok()?,
            until: instant(at.saturating_add(1)).ok()?,
            past: (number < count).then_some(past),
            due: ahead.zip(due).map(|(ahead, due)| due.get(ahead).copied().unwrap_or_default()),
        })
    };
    (0..(2 * count).saturating_sub(1)).map_while(step).collect()
}

/// Deliveries and relays: a relay claims nothing.
fn taken(totals: &Totals) -> u64 {
    totals.delivered().saturating_add(totals.relayed)
}

/// How often something may have taken a message from the ready ones.
fn gone(totals: &Totals) -> u64 {
    let Totals { cancelled, replaced, died_expired, died_unreadable, .. } = totals;
    [cancelled, replaced, died_expired, died_unreadable]
        .iter()
        .fold(taken(totals), |sum, it| sum.saturating_add(**it))
}

/// Returns whether messages were delivered or relayed in the last minutes, or, by a history of
/// hours, in this hour. Then something takes them, although its process may not be listed.
#[must_use]
pub fn is_consumed(span: Span, stats: &Stats, now: Timestamp, history: &History) -> bool {
    let unit = span.resolution().unit_ms();
    let start = now.as_ms().saturating_sub(MINUTES * MINUTE) / unit * unit;
    taken(&stats.totals) > taken(&totals_at(stats, history, start))
}

/// The totals at an instant. A unit without a point changed nothing, so the next point has them.
fn totals_at(stats: &Stats, history: &History, ms: u64) -> Totals {
    let point = history.points.iter().find(|point| point.at.as_ms() >= ms);
    point.map_or(stats.totals, |point| point.totals)
}

/// Returns the number of leases that ended in a failure or a rejection, or expired.
#[must_use]
pub fn failures(totals: &Totals) -> u64 {
    let Totals { failed, crashed, died_rejected, died_undecodable, .. } = totals;
    [crashed, died_rejected, died_undecodable]
        .iter()
        .fold(*failed, |sum, it| sum.saturating_add(**it))
}

/// Returns the delays of the forecast whose counts [`steps`] takes, and the number of the step that
/// is now: steps are numbered from 1970 on.
///
/// A forecast also counts messages that are due at the end of a delay, and the server makes it some
/// time after `now`. The delays end that much before the steps. Otherwise messages at a round time,
/// which begins a step, would be in the step before.
#[must_use]
pub fn step_delays(span: Span, now: Timestamp) -> (u64, Vec<Millis>) {
    let length = part_of(span).as_ms();
    let number = now.as_ms() / length;
    let rest = length - now.as_ms() % length;
    let before_end = |n: u64| (rest + n * length).saturating_sub(1 + MOST_CALL);
    let delays = (0..span.parts()).map(|n| Millis::saturating(before_end(n)));
    (number, delays.collect())
}

/// What happened on a queue in the last minutes and in the last hour.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Figures {
    /// Messages sent a minute, over the last five minutes.
    pub sent_a_minute: f64,
    /// Messages acked a minute, over the last five minutes.
    pub done_a_minute: f64,
    /// Failures, rejections and expired leases of the last hour.
    pub failed: u64,
    /// Deliveries of the last hour by lateness.
    pub lateness: Vec<u64>,
}

impl Figures {
    /// Takes the figures from the counts of a queue at an instant, and its history by the minute.
    #[must_use]
    pub fn of(stats: &Stats, now: Timestamp, history: &History) -> Self {
        let (now, totals) = (now.as_ms(), &stats.totals);
        let at = |ms: u64| totals_at(stats, history, ms);
        let start = now.saturating_sub(MINUTES * MINUTE) / MINUTE * MINUTE;
        let (before, hour_ago) = (at(start), at(now.saturating_sub(60 * MINUTE)));
        #[expect(clippy::cast_precision_loss, reason = "a rate with three digits")]
        let rate = |count: u64, before: u64| {
            count.saturating_sub(before) as f64 * MINUTE as f64 / (now - start).max(1) as f64
        };
        let lateness = totals.lateness.iter().zip(hour_ago.lateness);
        Self {
            sent_a_minute: rate(totals.enqueued, before.enqueued),
            done_a_minute: rate(totals.acked, before.acked),
            failed: failures(totals).saturating_sub(failures(&hour_ago)),
            lateness: lateness.map(|(count, before)| count.saturating_sub(before)).collect(),
        }
    }
}

const MINUTE: u64 = 60_000;
/// How many ms after its delays were computed a forecast may be made.
const MOST_CALL: u64 = 250;
/// The time over which rates are taken.
const MINUTES: u64 = 5;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use delayline::admin::HistoryPoint;

    use super::*;

    fn point(minute: u64, acked: u64, late: usize, ready: u64) -> HistoryPoint {
        let mut point = HistoryPoint::default();
        point.at =
            Timestamp::from_ms(minute * MINUTE + if minute == 1_007 { 15_000 } else { 0 }).unwrap();
        (point.ready, point.scheduled) = (ready, 2);
        (point.totals.acked, point.totals.lateness[late]) = (acked, acked);
        point
    }

    #[test]
    fn past_and_future_meet_in_the_step_that_is_now() {
        let points = vec![point(1_000, 0, 3, 0), point(1_001, 4, 3, 7), point(1_007, 5, 3, 7)];
        let history = History::new(points);
        let steps = steps(Span::Hour, &history, Some(&[3, 0, 9]));
        assert_eq!(steps.len(), 119);
        assert!(steps.windows(2).all(|pair| pair[0].until == pair[1].from));
        let now = &steps[59];
        assert_eq!(now.from.as_ms(), 1_007 * MINUTE);
        assert_eq!((now.due, now.past.is_some()), (Some(3), true));
        assert_eq!((steps[58].due, &steps[60].past, steps[61].due), (None, &None, Some(9)));
        assert_eq!(steps[118].due, Some(0), "beyond the forecast");
        let unknown = super::steps(Span::Hour, &history, None);
        assert!(unknown.iter().all(|step| step.due.is_none()), "it is unknown what falls due");
        let at = |minute: usize| steps[minute + 59 - 1_007].past.clone().unwrap();
        assert_eq!((at(1_000).acked, at(1_000).p50, at(1_000).waiting), (4, Some(3), 9));
        assert_eq!((at(1_001).acked, at(1_001).is_stalled), (1, false));
        assert_eq!((at(1_003).p99, at(1_003).is_stalled), (None, true));
        assert!(!at(999).is_stalled, "nothing waited before the first point");
    }

    #[test]
    fn a_queue_is_not_stalled_while_what_was_due_is_taken() {
        // A message at the beginning of every hour, which is taken at once, and one an hour later.
        let is_stalled = |take: fn(&mut Totals)| {
            let mut points = [60, 120].map(|minute| point(minute, 0, 3, 1));
            take(&mut points[1].totals);
            let steps = steps(Span::Hour, &History::new(points.to_vec()), None);
            steps[..59].iter().filter_map(|it| it.past.as_ref()).any(|past| past.is_stalled)
        };
        assert!(is_stalled(|_| {}), "nothing took it");
        assert!(!is_stalled(|totals| totals.lateness[0] = 1), "delivered");
        assert!(!is_stalled(|totals| totals.relayed = 1), "relayed");
        assert!(!is_stalled(|totals| totals.cancelled = 1), "cancelled");
        // More are due than a relay takes.
        let mut points = [100, 101, 120].map(|minute| point(minute, 0, 3, 9));
        (points[1].totals.relayed, points[2].totals.relayed) = (0, 1);
        let steps = steps(Span::Hour, &History::new(points.to_vec()), None);
        let at = |minute: usize| steps[minute + 59 - 120].past.as_ref().unwrap().is_stalled;
        assert_eq!([100, 101, 102].map(at), [true, false, true]);
    }

    #[test]
    fn what_was_delivered_or_relayed_lately_has_a_consumer() {
        let history = History::new(vec![point(60, 0, 3, 0), point(62, 1, 3, 0)]);
        let is_consumed = |span, minute: u64, relayed| {
            let mut stats = Stats::default();
            (stats.totals, stats.totals.relayed) = (history.points[1].totals, relayed);
            is_consumed(span, &stats, Timestamp::from_ms(minute * MINUTE).unwrap(), &history)
        };
        assert!(is_consumed(Span::Hour, 65, 0) && !is_consumed(Span::Hour, 66, 0));
        assert!(is_consumed(Span::Hour, 67, 1), "relayed since");
        assert!(is_consumed(Span::Day, 66, 0), "in this hour");
        assert!(!is_consumed(Span::Day, 130, 0));
    }

    #[test]
    fn a_message_at_the_end_of_a_step_is_in_the_next_one() {
        let now = Timestamp::from_ms(7 * 6 * MINUTE + 1_000).unwrap();
        let (number, delays) = step_delays(Span::SixHours, now);
        assert_eq!((number, delays.len()), (7, 60));
        // The server makes the forecast 200 ms later, and counts the ends of the delays, too.
        let last = |n: usize| now.as_ms() + 200 + delays[n].as_ms();
        let ends = [8, 9].map(|step| step * 6 * MINUTE);
        assert!(last(0) < ends[0] && last(0) + 100 > ends[0], "{}", last(0));
        assert!(last(1) < ends[1] && last(1) + 100 > ends[1], "{}", last(1));
        let at_the_end = Timestamp::from_ms(8 * 6 * MINUTE - 1).unwrap();
        assert_eq!(step_delays(Span::SixHours, at_the_end).1[0].as_ms(), 0);
        for span in Span::ALL {
            assert!(step_delays(span, now).1.len() <= delayline::limits::MAX_FORECAST);
        }
    }

    #[test]
    fn a_percentile_is_in_a_bucket() {
        let mut counts = [0; Totals::LATENESS_BUCKETS];
        assert_eq!(lateness_bucket(&counts, 99), None);
        (counts[0], counts[4], counts[15]) = (98, 1, 1);
        assert_eq!(
            [50, 98, 99, 100].map(|it| lateness_bucket(&counts, it).unwrap()),
            [0, 0, 4, 15]
        );
        assert!(steps(Span::Day, &History::default(), Some(&[1])).is_empty());
        counts = [u64::MAX; Totals::LATENESS_BUCKETS];
        assert_eq!(lateness_bucket(&counts, 50), Some(7));
    }

    #[test]
    fn figures_are_of_the_last_minutes_and_of_the_last_hour() {
        let at = |ms| Timestamp::from_ms(ms).unwrap();
        let point = |minute: u64, acked: u64, failed: u64| {
            let mut point = HistoryPoint::default();
            point.at = at(minute * MINUTE);
            (point.totals.acked, point.totals.failed) = (acked, failed);
            point.totals.lateness[3] = acked;
            point
        };
        let points = vec![point(900, 0, 1), point(950, 10, 4), point(998, 20, 4)];
        let history = History::new(points);
        let mut stats = Stats::default();
        (stats.totals.acked, stats.totals.failed, stats.totals.lateness[3]) = (50, 6, 50);
        // From the beginning of minute 995, after which nothing happened before minute 998.
        let figures = Figures::of(&stats, at(1_000 * MINUTE + MINUTE), &history);
        assert_eq!((figures.done_a_minute, figures.sent_a_minute), (6.0, 0.0));
        assert_eq!((figures.failed, figures.lateness[3]), (2, 40), "since minute 941");
        let none = Figures::of(&stats, at(1), &History::default());
        assert_eq!((none.done_a_minute, none.failed), (0.0, 0));
    }
}
