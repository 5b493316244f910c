//! What happened in a queue between two counts.

use std::cmp::Reverse;
use std::time::Duration;

use delayline::admin::{Stats, Totals};
use delayline::backend::{Op, Reply};
use delayline::codec::Raw;
use delayline::{Bytes, Queue, Timestamp};
use delayline_json::harmless_line;
use serde_json::{Value, json};

/// The counts of a queue, and their instant by the clock of its server.
#[derive(Clone, Copy)]
pub(super) struct Counted {
    stats: Stats,
    at: Timestamp,
}

impl Counted {
    /// Counts a queue; the error is in words.
    pub(super) async fn read(queue: &Queue<Bytes, Raw>) -> Result<Self, String> {
        let applied = queue.apply(&Op::Stats).await.map_err(|error| error.to_string())?;
        match applied.reply {
            Reply::Stats(stats) => Ok(Self { stats: *stats, at: applied.at }),
            _ => Err("the reply belongs to another operation".to_owned()),
        }
    }
}

/// A queue in a table.
pub(super) struct Row {
    queue: String,
    counts: Result<Counts, String>,
}

struct Counts {
    now: Counted,
    rates: Option<Rates>,
}

/// Events since the earlier count.
struct Rates {
    sent: u64,
    acked: u64,
    failed: u64,
    time: Duration,
    late: Option<Late>,
}

/// Lateness below which 99 % of some deliveries were; `None` if it has no bound.
struct Late(Option<Duration>);

impl Row {
    pub(super) const HEADS: &'static [&'static str] = &[
        "QUEUE",
        "SCHEDULED",
        "READY",
        "LEASED",
        "DEAD",
        "SENT/S",
        "ACKED/S",
        "FAILED/S",
        "LATE",
        "OLDEST",
        "",
    ];

    /// A queue by two counts. The earlier one may be missing.
    pub(super) fn new(queue: &str, then: &Option<Counted>, now: &Result<Counted, String>) -> Self {
        let rates = |now: &Counted| then.as_ref().and_then(|then| Rates::between(then, now));
        let counts = now.clone().map(|now| Counts { rates: rates(&now), now });
        Self { queue: queue.to_owned(), counts }
    }

    /// Sorts queues that cannot be counted before the others, and the others by their longest wait.
    pub(super) fn order(&self) -> (Reverse<Option<Duration>>, Reverse<u64>, String) {
        let (waited, ready) = match &self.counts {
            Ok(counts) => (counts.oldest().unwrap_or_default(), counts.now.stats.ready),
            Err(_) => (Duration::MAX, 0),
        };
        (Reverse(Some(waited)), Reverse(ready), self.queue.clone())
    }

    /// As many cells as there are heads.
    pub(super) fn cells(&self) -> Vec<String> {
        let mut cells = vec![harmless_line(&self.queue)];
        match &self.counts {
            Err(why) => {
                cells.resize(Self::HEADS.len() - 1, "-".to_owned());
                cells.push(harmless_line(why));
            }
            Ok(counts) => {
                let stats = &counts.now.stats;
                let levels = [stats.scheduled, stats.ready, stats.leased, stats.dead];
                cells.extend(levels.map(|count| count.to_string()));
                let rates = counts.rates.as_ref();
                let none = || "-".to_owned();
                let rate = |count: fn(&Rates) -> u64| {
                    rates.map_or_else(none, |it| per_second(count(it), it.time))
                };
                cells.push(rate(|it| it.sent));
                cells.push(rate(|it| it.acked));
                cells.push(rate(|it| it.failed));
                cells.push(rates.and_then(|it| it.late.as_ref()).map_or_else(none, Late::told));
                cells.push(counts.oldest().map_or_else(none, short));
                cells.push(counts.state().to_owned());
            }
        }
        cells
    }

    pub(super) fn json(&self) -> Value {
        let counts = match &self.counts {
            Ok(counts) => counts,
            Err(why) => return json!({ "queue": self.queue, "error": why }),
        };
        let mut object = delayline_json::stats(&self.queue, &counts.now.stats);
        object["at"] = counts.now.at.to_string().into();
        object["oldest_ms"] = counts.oldest().map(ms).into();
        if let Some(rates) = &counts.rates {
            let late = rates.late.as_ref().map(|late| late.0.map(ms));
            object["rates"] = json!({
                "in_ms": ms(rates.time),
                "sent": rates.sent,
                "acked": rates.acked,
                "failed": rates.failed,
                "late_99_below_ms": late.flatten(),
            });
        }
        object
    }
}

impl Counts {
    /// How long the oldest ready message has been due.
    fn oldest(&self) -> Option<Duration> {
        let Counted { stats, at } = &self.now;
        let due = stats.earliest_due.filter(|due| stats.ready > 0 && due <= at)?;
        Some(at.since(due))
    }

    fn state(&self) -> &'static str {
        match &self.now.stats {
            stats if stats.paused => "paused",
            stats if stats.limits.held_until.is_some() => "held",
            _ => "",
        }
    }
}

impl Rates {
    /// `None` if no time has passed, such as after a clock has stepped back.
    fn between(then: &Counted, now: &Counted) -> Option<Self> {
        let time = now.at.since(then.at);
        let (before, after) = (&then.stats.totals, &now.stats.totals);
        let count = |of: fn(&Totals) -> u64| of(after).saturating_sub(of(before));
        (!time.is_zero()).then(|| Self {
            sent: count(|totals| totals.enqueued),
            acked: count(|totals| totals.acked),
            failed: count(|totals| totals.failed.saturating_add(totals.crashed)),
            time,
            late: Late::between(before, after),
        })
    }
}

impl Late {
    /// `None` if nothing was delivered.
    fn between(before: &Totals, after: &Totals) -> Option<Self> {
        let pairs = after.lateness.iter().zip(before.lateness);
        let counts: Vec<u64> = pairs.map(|(now, then)| now.saturating_sub(then)).collect();
        let all: u128 = counts.iter().map(|count| u128::from(*count)).sum();
        let mut below = 0;
        let bucket = counts.iter().position(|count| {
            below += u128::from(*count);
            below > 0 && below * 100 >= all * 99
        })?;
        Some(Self(Totals::lateness_bound(bucket)))
    }

    fn told(&self) -> String {
        match self.0 {
            Some(bound) => format!("<{}", short(bound)),
            None => "long".to_owned(),
        }
    }
}

/// A rate with one decimal if it is small.
fn per_second(count: u64, time: Duration) -> String {
    let tenths = u128::from(count) * 10_000 / time.as_millis().max(1);
    if tenths < 1_000 {
        format!("{}.{}", tenths / 10, tenths % 10)
    } else {
        (tenths / 10).to_string()
    }
}

/// A duration by its largest units.
fn short(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{}ms", duration.as_millis()),
        1..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d{}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64, sent: u64, late: [(usize, u64); 2]) -> Counted {
        let mut stats = Stats::default();
        (stats.totals.enqueued, stats.ready) = (sent, 2);
        late.into_iter().for_each(|(bucket, count)| stats.totals.lateness[bucket] = count);
        stats.earliest_due = Some(Timestamp::from_ms(500).unwrap());
        Counted { stats, at: Timestamp::from_ms(ms).unwrap() }
    }

    #[test]
    fn rates_are_those_of_the_time_between_two_counts() {
        let then = at(1_000, 10, [(0, 5), (3, 0)]);
        let now = at(3_000, 17, [(0, 104), (3, 1)]);
        let row = Row::new("a\u{1b}b", &Some(then), &Ok(now));
        let cells = row.cells();
        assert_eq!(cells.len(), Row::HEADS.len());
        let expected = ["a\\u{1b}b", "0", "2", "0", "0", "3.5", "0.0", "0.0", "<2ms", "2s", ""];
        assert_eq!(cells, expected);
        assert_eq!(row.json()["rates"]["sent"], 7);
        // Without an earlier count, after a clock has stepped back, and without a server.
        let clocks = [None, Some(at(9_000, 1, [(0, 0), (1, 0)]))];
        for then in clocks {
            assert_eq!(Row::new("a", &then, &Ok(now)).cells()[5], "-");
        }
        let lost = Row::new("b", &Some(then), &Err("unreachable".to_owned()));
        assert_eq!(lost.cells().last().unwrap(), "unreachable");
        assert!(lost.order() < row.order() && lost.json()["error"] == "unreachable");
    }

    #[test]
    fn the_last_bucket_of_lateness_has_no_bound() {
        let then = at(1_000, 0, [(0, 0), (15, 0)]);
        let now = at(2_000, 0, [(0, 1), (15, 9)]);
        assert_eq!(Row::new("a", &Some(then), &Ok(now)).cells()[8], "long");
        for (text, seconds) in
            [("0ms", 0), ("59s", 59), ("1m1s", 61), ("2h0m", 7_200), ("1d1h", 90_000)]
        {
            assert_eq!(short(Duration::from_secs(seconds)), text);
        }
        assert_eq!(per_second(1_000, Duration::from_secs(2)), "500");
    }
}
