//! Counts of a queue.

use std::time::Duration;

use delayline::admin::{Forecast, Limits, Stats, Totals};
use delayline::backend::{Millis, Op};
use serde_json::{Value, json};

use crate::duration;

/// The counts of a queue under their names: how many messages have each state now, and how often
/// each thing has happened so far.
#[must_use]
pub fn counts(stats: &Stats) -> [(&'static str, u64); 22] {
    let totals = &stats.totals;
    [
        ("scheduled", stats.scheduled),
        ("ready", stats.ready),
        ("leased", stats.leased),
        ("dead", stats.dead),
        ("enqueued_total", totals.enqueued),
        ("delivered_total", totals.delivered()),
        ("acked_total", totals.acked),
        ("failed_total", totals.failed),
        ("snoozed_total", totals.snoozed),
        ("released_total", totals.released),
        ("crashed_total", totals.crashed),
        ("cancelled_total", totals.cancelled),
        ("purged_total", totals.purged),
        ("relayed_total", totals.relayed),
        ("replaced_total", totals.replaced),
        ("redriven_total", totals.redriven),
        ("died_max_failures_total", totals.died_max_failures),
        ("died_max_crashes_total", totals.died_max_crashes),
        ("died_rejected_total", totals.died_rejected),
        ("died_undecodable_total", totals.died_undecodable),
        ("died_expired_total", totals.died_expired),
        ("died_unreadable_total", totals.died_unreadable),
    ]
}

/// How many deliveries were how late: for each bucket the bound below which they were late, in ms
/// (`null` for the last, which has none), and how many there were.
#[must_use]
pub fn lateness(totals: &Totals) -> Value {
    let bucket = |(bucket, count): (usize, &u64)| {
        let bound = Totals::lateness_bound(bucket).map(|bound| bound.as_millis());
        json!({ "below_ms": bound.and_then(|ms| u64::try_from(ms).ok()), "count": count })
    };
    totals.lateness.iter().enumerate().map(bucket).collect()
}

/// The delays of a forecast, if no others are given.
pub const FORECAST_DELAYS: &str = "1m,10m,1h,6h,1 day,7 days";

/// Reads the delays of a forecast, separated by commas.
///
/// # Errors
///
/// Like [`duration`](crate::duration), and if a queue would refuse the forecast.
pub fn forecast_delays(text: &str) -> Result<Vec<Duration>, String> {
    let delays = text.split(',').map(|delay| duration(delay.trim()));
    let delays: Vec<Duration> = delays.collect::<Result<_, _>>()?;
    let stored = delays.iter().copied().map(Millis::try_from).collect::<Result<_, _>>();
    let checked = stored.and_then(|stored| Op::Forecast(stored).validate());
    checked.map_err(|why| why.to_string())?;
    Ok(delays)
}

/// Returns, for each delay of a forecast, the number of messages that fall due within it, including
/// the shorter delays but not the ready messages.
#[must_use]
pub fn falling_due(forecast: &Forecast) -> Vec<u64> {
    let add = |sum: &mut u64, count: &u64| {
        *sum = sum.saturating_add(*count);
        Some(*sum)
    };
    forecast.due.iter().scan(0, add).collect()
}

/// When the waiting messages are due: how many are ready, due within each delay but not within the
/// one before, and due later.
#[must_use]
pub fn forecast(queue: &str, delays: &[Duration], forecast: &Forecast) -> Value {
    let due = delays.iter().zip(&forecast.due).map(|(delay, count)| {
        let ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        json!({ "within_ms": ms, "count": count })
    });
    json!({
        "queue": queue,
        "ready": forecast.ready,
        "due": due.collect::<Vec<_>>(),
        "later": forecast.later,
    })
}

/// The limits of a queue, as an object; null stands for no limit.
#[must_use]
pub fn limits(limits: &Limits) -> Value {
    let rate = limits.rate.map(
        |rate| json!({ "count": rate.count, "per_ms": rate.per().as_millis(), "burst": rate.burst }),
    );
    json!({
        "leased": limits.leased,
        "each_group": limits.each_group,
        "in_order": limits.in_order,
        "rate": rate,
        "rate_open_at": limits.rate_open_at.map(|instant| instant.to_string()),
        "held_until": limits.held_until.map(|instant| instant.to_string()),
    })
}

/// The counts, the deliveries by lateness, whether the queue is paused, its limits, and the
/// earliest due instant, as an object.
#[must_use]
pub fn stats(queue: &str, stats: &Stats) -> Value {
    let mut object = json!({
        "queue": queue,
        "paused": stats.paused,
        "limits": limits(&stats.limits),
        "earliest_due": stats.earliest_due.map(|instant| instant.to_string()),
        "waiting_groups": stats.waiting_groups,
        "shard_skew_ms": stats.shard_skew.map(Millis::as_ms),
        "lateness": lateness(&stats.totals),
    });
    for (name, count) in counts(stats) {
        object[name] = json!(count);
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_count_is_under_its_name() {
        let mut queue = Stats::default();
        (queue.scheduled, queue.ready, queue.leased, queue.dead) = (1, 2, 3, 4);
        let totals = &mut queue.totals;
        (totals.enqueued, totals.acked, totals.failed) = (5, 7, 8);
        (totals.snoozed, totals.released, totals.crashed) = (9, 10, 11);
        (totals.cancelled, totals.purged, totals.relayed) = (12, 13, 14);
        (totals.replaced, totals.redriven) = (15, 16);
        (totals.died_max_failures, totals.died_max_crashes) = (17, 18);
        (totals.died_rejected, totals.died_undecodable) = (19, 20);
        (totals.died_expired, totals.died_unreadable) = (21, 22);
        // Deliveries are the sum of the buckets.
        (totals.lateness[0], totals.lateness[1]) = (4, 2);
        let names = [
            "scheduled",
            "ready",
            "leased",
            "dead",
            "enqueued_total",
            "delivered_total",
            "acked_total",
            "failed_total",
            "snoozed_total",
            "released_total",
            "crashed_total",
            "cancelled_total",
            "purged_total",
            "relayed_total",
            "replaced_total",
            "redriven_total",
            "died_max_failures_total",
            "died_max_crashes_total",
            "died_rejected_total",
            "died_undecodable_total",
            "died_expired_total",
            "died_unreadable_total",
        ];
        let object = stats("orders", &queue);
        for (name, count) in names.into_iter().zip(1_u64..) {
            assert_eq!(object[name], count, "{name}");
        }
        assert_eq!(counts(&queue).map(|(name, _)| name), names);
        assert_eq!((&object["queue"], &object["paused"]), (&json!("orders"), &json!(false)));
        assert_eq!(object["lateness"][1], json!({"below_ms": 4, "count": 2}));
        assert_eq!(object["lateness"][15], json!({"below_ms": null, "count": 0}));
        let mut none = json!({"leased": null, "each_group": null, "in_order": false, "rate": null,
            "rate_open_at": null, "held_until": null});
        assert_eq!(object["limits"], none);
        (queue.limits.each_group, queue.limits.in_order) = (Some(2), true);
        (none["each_group"], none["in_order"]) = (json!(2), json!(true));
        assert_eq!(limits(&queue.limits), none);
    }
}
