//! What the load of a queue means for its server.

use std::time::Duration;

use delayline::admin::{History, HistoryPoint, Stats, Survey, TopologyKind, Totals};
use delayline::limits::MAX_SHARDS;
use delayline_json::{Span, lateness_series};

use super::findings::{Findings, Verdict, good_unless};
use super::servers::{Fields, is_primary, number};

/// The measured load of a queue.
pub(super) struct Load<'a> {
    pub(super) stats: &'a Stats,
    pub(super) minutes: &'a History,
    pub(super) hours: &'a History,
    /// The number of shards, if it has some.
    pub(super) shards: Option<u32>,
}

pub(super) fn check(survey: &Survey, load: &Load<'_>, findings: &mut Findings) {
    let info = primary(survey);
    if let Some(info) = info {
        memory(info, load, findings);
    }
    lateness(load.minutes, findings);
    leases(load.hours, findings);
    nodes(load.minutes, load.shards.unwrap_or(1), findings);
    if let Some(info) = info {
        replicas(info, load.hours, findings);
    }
}

/// What the server that has the queue says of itself, if only one can have it.
fn primary(survey: &Survey) -> Option<&Fields> {
    if survey.kind == TopologyKind::Cluster {
        return None;
    }
    let primary = survey.servers.iter().find(|server| is_primary(survey, server))?;
    primary.info.as_ref().ok()
}

/// When the memory is full, if the queue grows on as in the last day.
fn memory(info: &Fields, load: &Load<'_>, findings: &mut Findings) {
    let growth = growth(load.hours);
    let check = "memory ahead";
    if growth == 0 {
        return findings.add(check, Verdict::Good, "the queue did not grow in the last day", "");
    }
    let used = number(info, "used_memory");
    let stored = messages(load.stats);
    // Other data of the server counts as well, so the messages are at most this large.
    let data = used.saturating_sub(number(info, "used_memory_startup"));
    let daily = u128::from(growth) * u128::from(data) / u128::from(stored.max(1));
    let grew = format!("{growth} messages more than a day ago, about {} a day", mib(daily));
    let limit = number(info, "maxmemory");
    if limit == 0 {
        let advice = "set maxmemory, so that a full server refuses messages and still takes acks";
        return findings.add(check, Verdict::Beware, format!("{grew}; no limit"), advice);
    }
    let days = u128::from(limit.saturating_sub(used)) / daily.max(1);
    let detail = match days {
        0 => format!("full within a day: {grew}"),
        1 => format!("full in 1 day: {grew}"),
        days if days < FAR_DAYS => format!("full in {days} days: {grew}"),
        _ => format!("room for more than a year: {grew}"),
    };
    let advice = "add workers, purge dead letters, or raise maxmemory";
    findings.add(check, good_unless(days < SOON_DAYS), detail, advice);
}

/// How many messages there are more than a day ago; 0 if there are not more.
fn growth(hours: &History) -> u64 {
    day(hours).map_or(0, |[before, last]| stored(last).saturating_sub(stored(before)))
}

/// The states a day ago, or when the history begins, and now.
fn day(hours: &History) -> Option<[&HistoryPoint; 2]> {
    let last = hours.points.last()?;
    let day_ago = last.at.as_ms().saturating_sub(DAY_MS);
    // A point is the state before the first change of its unit, and a unit without a point changed
    // nothing. So the next point has the state of an instant without one.
    let before = hours.points.iter().find(|point| point.at.as_ms() >= day_ago)?;
    Some([before, last])
}

/// The lateness of the last hour against that of the hour before.
fn lateness(minutes: &History, findings: &mut Findings) {
    let rows = lateness_series(Span::SixHours, minutes);
    let hour = |back: usize| -> Vec<u64> {
        let of = |row: &Vec<u64>| {
            let end = row.len().saturating_sub(back * PARTS_IN_AN_HOUR);
            row[end.saturating_sub(PARTS_IN_AN_HOUR)..end].iter().sum()
        };
        rows.iter().map(of).collect()
    };
    let (now, before) = (bucket(&hour(0)), bucket(&hour(1)));
    let told = |bucket: Option<usize>| match bucket.map(Totals::lateness_bound) {
        None => "no deliveries".to_owned(),
        Some(Some(bound)) => format!("99 % below {bound:?}"),
        Some(None) => "more than 1 % by half a minute or more".to_owned(),
    };
    let detail = format!("{} in the last hour, {} in the hour before", told(now), told(before));
    let is_late = now.is_some_and(|bucket| bound(bucket) > NOTICED);
    let is_worse = now.zip(before).is_some_and(|(now, before)| now >= before + WORSE_BUCKETS);
    let advice = "add workers or slots, or see what the handlers wait for: the queue's page in the \
                  dashboard has six hours of it";
    findings.add("lateness", good_unless(is_late && is_worse), detail, advice);
}

/// The bucket below whose bound 99 % are.
fn bucket(counts: &[u64]) -> Option<usize> {
    let all: u128 = counts.iter().map(|count| u128::from(*count)).sum();
    let mut below = 0;
    counts.iter().position(|count| {
        below += u128::from(*count);
        below > 0 && below * 100 >= all * 99
    })
}

fn bound(bucket: usize) -> Duration {
    Totals::lateness_bound(bucket).unwrap_or(Duration::MAX)
}

/// Whether many leases of the last day have expired.
fn leases(hours: &History, findings: &mut Findings) {
    let crashed = in_a_day(hours, |totals| totals.crashed);
    let delivered = in_a_day(hours, Totals::delivered);
    let detail = format!("{crashed} of {delivered} deliveries in the last day");
    let is_often = crashed > 0 && u128::from(crashed) * 100 >= u128::from(delivered);
    let advice = "workers die, or handlers run longer than their time limit and lease: raise the \
                  lease, or give handlers a time limit below it";
    findings.add("expired leases", good_unless(is_often), detail, advice);
}

/// Whether the queue is busier than one node of a cluster can be.
fn nodes(minutes: &History, shards: u32, findings: &mut Findings) {
    let rate = busiest(minutes);
    let nodes = rate.div_ceil(NODE_RATE).max(1);
    let mut detail = format!("at most {rate} messages a second in a minute of the last six hours");
    let is_enough = nodes <= shards.into();
    if is_enough {
        detail += if nodes == 1 { ": one node is enough" } else { ": its shards are enough" };
    } else {
        // Several shards for each node, so that nodes share them evenly.
        let shards = (nodes * 4).next_power_of_two().min(MAX_SHARDS.into());
        detail = format!("{detail}: {shards} shards on {nodes} nodes would do");
    }
    let advice = "send and claim in batches of 100, or use several queues; if that is not enough, \
                  move the messages to a queue with shards: `delayline import queue`";
    findings.add("nodes", good_unless(!is_enough), detail, advice);
}

/// Messages sent or delivered per second, in the busiest minute.
fn busiest(minutes: &History) -> u64 {
    let pairs = minutes.points.windows(2).filter_map(|pair| <&[_; 2]>::try_from(pair).ok());
    let rates = pairs.map(|[before, after]| {
        let sent = after.totals.enqueued.saturating_sub(before.totals.enqueued);
        let delivered = after.totals.delivered().saturating_sub(before.totals.delivered());
        // All of it in the minute of the first point, however much later the next one is.
        sent.max(delivered) / 60
    });
    rates.max().unwrap_or_default()
}

/// Whether a busy queue has only one server.
fn replicas(info: &Fields, hours: &History, findings: &mut Findings) {
    let sent = in_a_day(hours, |totals| totals.enqueued);
    let replicas = number(info, "connected_slaves");
    let detail = format!("replicas: {replicas}; messages in the last day: {sent}");
    let advice = "while its only server is down, nothing is sent or delivered: add a replica and \
                  sentinels, or a cluster";
    findings.add("failover", good_unless(replicas == 0 && sent >= BUSY), detail, advice);
}

/// How often something happened in the last day.
fn in_a_day(hours: &History, counter: impl Fn(&Totals) -> u64) -> u64 {
    let count = |[before, last]: [&HistoryPoint; 2]| {
        counter(&last.totals).saturating_sub(counter(&before.totals))
    };
    day(hours).map_or(0, count)
}

fn stored(point: &HistoryPoint) -> u64 {
    [point.ready, point.leased, point.dead]
        .iter()
        .fold(point.scheduled, |sum, count| sum.saturating_add(*count))
}

fn messages(stats: &Stats) -> u64 {
    [stats.ready, stats.leased, stats.dead]
        .iter()
        .fold(stats.scheduled, |sum, count| sum.saturating_add(*count))
}

fn mib(bytes: u128) -> String {
    if bytes < 1 << 20 { format!("{} KiB", bytes >> 10) } else { format!("{} MiB", bytes >> 20) }
}

const DAY_MS: u64 = 86_400_000;

/// Of six minutes each.
const PARTS_IN_AN_HOUR: usize = 10;

/// Two buckets are four times as late.
const WORSE_BUCKETS: usize = 2;

/// Lateness that people notice.
const NOTICED: Duration = Duration::from_millis(500);

/// When something should be done about memory.
const SOON_DAYS: u128 = 30;
const FAR_DAYS: u128 = 365;

/// Messages a second with which one node is busy: half of what the benchmarks show for one core in
/// batches of 100.
const NODE_RATE: u64 = 40_000;

/// Messages in a day that make a queue busy.
const BUSY: u64 = 100_000;

#[cfg(test)]
mod tests {
    use delayline::Timestamp;

    use super::*;

    fn point(minute: u64, waiting: u64, sent: u64, crashed: u64) -> HistoryPoint {
        let mut point = HistoryPoint::default();
        point.at = Timestamp::from_ms((100_000 + minute) * 60_000).unwrap();
        point.scheduled = waiting;
        (point.totals.enqueued, point.totals.crashed) = (sent, crashed);
        point
    }

    fn found(check: impl FnOnce(&mut Findings)) -> (Verdict, String) {
        let mut findings = Findings::default();
        check(&mut findings);
        let finding = findings.0.pop().unwrap();
        (finding.verdict, finding.detail)
    }

    #[test]
    fn a_growing_queue_fills_the_memory_some_day() {
        let hours = History::new(vec![point(0, 1_000, 0, 0), point(1_440, 2_000, 0, 0)]);
        assert_eq!(growth(&hours), 1_000);
        // A queue that is younger than a day has grown from nothing.
        assert_eq!(growth(&History::new(vec![point(0, 0, 0, 0), point(60, 7, 0, 0)])), 7);
        assert_eq!(growth(&History::new(vec![point(0, 9, 0, 0), point(1_500, 7, 0, 0)])), 0);
        assert_eq!(growth(&History::default()), 0);
        let mut stats = Stats::default();
        stats.scheduled = 2_000;
        let load =
            Load { stats: &stats, minutes: &History::default(), hours: &hours, shards: None };
        // 2,000 messages take 20 MiB: another 10 MiB a day.
        for (limit, verdict, expected) in [
            (110_u64, Verdict::Beware, "full in 9 days: "),
            (25, Verdict::Beware, "full within a day: "),
            (31, Verdict::Beware, "full in 1 day: "),
            (1_000, Verdict::Good, "full in 98 days: "),
            (9_000, Verdict::Good, "room for more than a year: "),
            (0, Verdict::Beware, "1000 messages more than a day ago, about 10 MiB a day; no limit"),
        ] {
            let info = [("used_memory", 20 << 20), ("maxmemory", limit << 20)];
            let info = info.into_iter().map(|(name, value)| (name.to_owned(), value.to_string()));
            let (is, detail) = found(|it| memory(&info.collect(), &load, it));
            assert_eq!(is, verdict, "{detail}");
            assert!(detail.starts_with(expected), "{detail}");
        }
    }

    #[test]
    fn what_happened_before_a_quiet_time_belongs_to_the_unit_of_its_first_point() {
        // 120,000 messages were sent 26 hours ago, and 60 an hour ago.
        let hours = [point(0, 0, 0, 0), point(1_500, 9, 120_000, 0), point(1_560, 9, 120_060, 0)];
        let hours = History::new(hours.to_vec());
        assert_eq!((growth(&hours), in_a_day(&hours, |totals| totals.enqueued)), (0, 60));
        assert_eq!(busiest(&hours), 2_000, "within one minute");
    }

    #[test]
    fn lateness_is_compared_with_the_hour_before() {
        let late = |now: [(usize, u64); 2], before: [(usize, u64); 2]| {
            let mut points = [30, 100, 130].map(|minute| point(minute, 0, 0, 0));
            before.iter().for_each(|(bucket, count)| points[1].totals.lateness[*bucket] += count);
            points[2].totals = points[1].totals;
            now.iter().for_each(|(bucket, count)| points[2].totals.lateness[*bucket] += count);
            let points = points.to_vec();
            found(|it| lateness(&History::new(points), it))
        };
        let (verdict, detail) = late([(0, 100), (12, 5)], [(0, 100), (1, 0)]);
        assert_eq!(verdict, Verdict::Beware, "{detail}");
        assert!(detail.contains("99 % below 8.192s in the last hour, 99 % below 2ms"), "{detail}");
        assert_eq!(late([(5, 100), (1, 0)], [(0, 100), (1, 0)]).0, Verdict::Good);
        assert_eq!(late([(12, 100), (1, 0)], [(12, 100), (1, 0)]).0, Verdict::Good);
        let (verdict, detail) = late([(0, 0), (1, 0)], [(0, 0), (1, 0)]);
        assert_eq!(verdict, Verdict::Good);
        assert!(detail.starts_with("no deliveries in the last hour"), "{detail}");
    }

    #[test]
    fn a_queue_that_keeps_more_than_a_node_busy_needs_shards() {
        let minutes = |a_second: u64| {
            let busy = [point(0, 0, 0, 0), point(1, 0, a_second * 60, 0)];
            History::new([&busy[..], &[point(9, 0, a_second * 60 + 7, 0)]].concat())
        };
        let check = |a_second, shards| found(|it| nodes(&minutes(a_second), shards, it));
        assert_eq!(check(40_000, 1).0, Verdict::Good);
        let (verdict, detail) = check(90_000, 1);
        assert_eq!(verdict, Verdict::Beware);
        assert!(detail.ends_with(": 16 shards on 3 nodes would do"), "{detail}");
        assert_eq!(check(90_000, 2).0, Verdict::Beware);
        let (verdict, detail) = check(90_000, 16);
        assert_eq!(verdict, Verdict::Good);
        assert!(detail.ends_with(": its shards are enough"), "{detail}");
        assert_eq!(found(|it| nodes(&History::default(), 1, it)).0, Verdict::Good);
    }

    #[test]
    fn expired_leases_and_a_lone_server_are_shown_under_load() {
        let day = |sent: u64, crashed: u64| {
            let mut last = point(1_440, 0, sent, crashed);
            last.totals.lateness[0] = 1_000;
            History::new(vec![point(0, 0, 0, 0), last])
        };
        assert_eq!(found(|it| leases(&day(0, 50), it)).0, Verdict::Beware);
        assert_eq!(found(|it| leases(&day(0, 1), it)).0, Verdict::Good);
        assert_eq!(found(|it| leases(&History::default(), it)).0, Verdict::Good);
        let verdict = |sent, count: &str| {
            let info = Fields::from([("connected_slaves".to_owned(), count.to_owned())]);
            found(|it| replicas(&info, &day(sent, 0), it)).0
        };
        assert_eq!(verdict(200_000, "0"), Verdict::Beware);
        assert_eq!(verdict(200_000, "1"), Verdict::Good);
        assert_eq!(verdict(50, "0"), Verdict::Good);
    }
}
