//! Counts of a queue.

use std::time::Duration;

use delayline::{Forecast, Stats};
use serde_json::{Value, json};

use crate::{duration, rfc3339};

/// The counts of a queue under their names: how many messages have each state now, and how many
/// ever met each fate.
#[must_use]
pub fn counts(stats: &Stats) -> [(&'static str, u64); 10] {
    [
        ("scheduled", stats.scheduled),
        ("ready", stats.ready),
        ("leased", stats.leased),
        ("dead", stats.dead),
        ("enqueued_total", stats.enqueued_total),
        ("acked_total", stats.acked_total),
        ("cancelled_total", stats.cancelled_total),
        ("purged_total", stats.purged_total),
        ("relayed_total", stats.relayed_total),
        ("expired_total", stats.expired_total),
    ]
}

/// The delays of a forecast, if no others are given.
pub const FORECAST_DELAYS: &str = "1m,10m,1h,6h,1 day,7 days";

/// Reads the delays of a forecast, separated by commas.
///
/// # Errors
///
/// Like [`duration`](crate::duration).
pub fn forecast_delays(text: &str) -> Result<Vec<Duration>, String> {
    text.split(',').map(|delay| duration(delay.trim())).collect()
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

/// The counts, whether the queue is paused, and the earliest due instant, as an object.
#[must_use]
pub fn stats(queue: &str, stats: &Stats) -> Value {
    let mut object = json!({
        "queue": queue,
        "paused": stats.paused,
        "earliest_due": stats.earliest_due.map(rfc3339),
    });
    for (name, count) in counts(stats) {
        object[name] = json!(count);
    }
    object
}
