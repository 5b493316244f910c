//! `/metrics` for Prometheus, `/health` and `/ready`, from the counts of each queue.

mod storage;
mod text;

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use delayline::Timestamp;
use delayline::admin::{Stats, Totals};
use delayline::message::DeathReason;
use tokio::time::timeout;

use self::text::head;
use crate::context::Context;
use crate::directory::{Known, Queues, Search};
use crate::lock::locked;
use crate::shared::Shared;

/// A queue, as far as it could be counted.
struct Sample<'a> {
    name: &'a str,
    /// Whether it could be counted now.
    up: bool,
    /// The last counts, and the time by the server's clock.
    last: Option<(Stats, Timestamp)>,
    /// How long ago it was counted, or was first to be.
    age: Duration,
}

/// The counts of each queue, at most a second old if it answers.
async fn sample(queues: &Queues) -> Vec<Sample<'_>> {
    let all = queues.iter().map(|(name, served)| async move {
        // A scrape that takes too long would lose the metrics of all queues.
        let counts = timeout(MOST_WAIT, served.counts()).await;
        let up = counts.is_ok_and(|counts| counts.is_some());
        let (last, age) = served.counted.last();
        Sample { name, up, last, age }
    });
    futures_util::future::join_all(all).await
}

/// Answers 200 if every queue can be counted, and the queues can be listed if they are looked for;
/// 503 otherwise.
pub(crate) async fn health(State(shared): State<Arc<Shared>>) -> Response {
    let known = shared.directory.known().await;
    if !sample(&known.queues).await.iter().all(|sample| sample.up) {
        unavailable("a queue cannot be reached\n")
    } else if !is_listed(&known) {
        unavailable("the queues cannot be listed\n")
    } else {
        "ok\n".into_response()
    }
}

/// Returns 200 if a queue can be counted, or if there are no queues and they can be listed; 503
/// otherwise.
///
/// All replicas see the same queues. If one queue made a replica unready, it would make all
/// unready, and the other queues could not be reached either.
pub(crate) async fn ready(State(shared): State<Arc<Shared>>) -> Response {
    let known = shared.directory.known().await;
    let samples = sample(&known.queues).await;
    if samples.iter().any(|sample| sample.up) {
        "ok\n".into_response()
    } else if !samples.is_empty() {
        unavailable("no queue can be reached\n")
    } else if !is_listed(&known) {
        unavailable("the queues cannot be listed\n")
    } else if known.search.as_ref().is_some_and(|it| !it.refused.is_empty()) {
        unavailable("no queue can be opened\n")
    } else {
        "ok\n".into_response()
    }
}

/// Returns whether the list of queues was last read without a failure, if queues are looked for.
fn is_listed(known: &Known) -> bool {
    known.search.as_ref().is_none_or(|it| it.read.is_some() && it.failure.is_none())
}

fn unavailable(why: &'static str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, why).into_response()
}

pub(crate) async fn metrics(context: Context) -> Response {
    let mut queues = Arc::clone(&context.known.queues);
    // Alerts about its schedules ask whether it is paused or cannot be reached.
    if let (Ok((name, _)), Some(served)) = (context.schedules(), &context.shared.schedules_served)
        && !queues.contains_key(name)
    {
        Arc::make_mut(&mut queues).insert(name.to_owned(), Arc::clone(served));
    }
    let samples = sample(&queues).await;
    let mut out = exposition(&samples);
    if let Some(search) = &context.known.search {
        discovery(&mut out, search);
    }
    if let Ok((queue, schedules)) = context.schedules() {
        let read = timeout(MOST_WAIT, schedules.overdue()).await;
        // As for counts: a gap would end an alert that waits for its time.
        let mut last = locked(&context.shared.overdue);
        *last = read.ok().and_then(Result::ok).or(*last);
        if let Some(overdue) = *last {
            let help = "Time since the first instant whose message no scheduler has sent";
            head(&mut out, OVERDUE, "gauge", help);
            let _ = writeln!(out, "{OVERDUE}{{queue=\"{queue}\"}} {}", overdue.as_secs_f64());
        }
    }
    if let Some(connection) = context.storage()
        && let Ok(Some(status)) = connection.directory_status().await
    {
        storage::exposition(&mut out, &status);
    }
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], out).into_response()
}

/// How the search for queues has gone. A list that was never read has no age.
fn discovery(out: &mut String, search: &Search) {
    let help = "1 if the list of queues was read, and has all queues of the server";
    head(out, LISTED, "gauge", help);
    let _ = writeln!(out, "{LISTED} {}", u64::from(search.is_complete()));
    head(out, LIST_AGE, "gauge", "Time since the list of queues was read");
    if let Some(read) = search.read {
        let _ = writeln!(out, "{LIST_AGE} {}", read.elapsed().as_secs_f64());
    }
}

/// The metrics in the text format of Prometheus. A queue's name needs no escapes.
///
/// A queue that cannot be counted keeps its last counts, or else one failed count would end an
/// alert that waits for its time.
fn exposition(samples: &[Sample<'_>]) -> String {
    let mut out = String::new();
    let known = || samples.iter().filter_map(|sample| Some((sample.name, sample.last?)));
    head(&mut out, UP, "gauge", "1 if the queue could be counted");
    for Sample { name, up, .. } in samples {
        line(&mut out, UP, &format!("queue=\"{name}\""), u64::from(*up));
    }
    head(&mut out, COUNT_AGE, "gauge", "Time since the queue was counted");
    for Sample { name, age, .. } in samples {
        let _ = writeln!(out, "{COUNT_AGE}{{queue=\"{name}\"}} {}", age.as_secs_f64());
    }
    head(&mut out, MESSAGES, "gauge", "Messages of the queue by state");
    for (name, (stats, _)) in known() {
        let states = [
            ("scheduled", stats.scheduled),
            ("ready", stats.ready),
            ("leased", stats.leased),
            ("dead", stats.dead),
        ];
        for (state, count) in states {
            line(&mut out, MESSAGES, &format!("queue=\"{name}\",state=\"{state}\""), count);
        }
    }
    head(&mut out, OLDEST, "gauge", "How long the oldest unclaimed message has been due");
    for (name, (stats, at)) in known() {
        let age = stats.earliest_due.map_or(Duration::ZERO, |due| at.since(due));
        let _ = writeln!(out, "{OLDEST}{{queue=\"{name}\"}} {}", age.as_secs_f64());
    }
    head(&mut out, PAUSED, "gauge", "1 while deliveries are stopped");
    for (name, (stats, _)) in known() {
        line(&mut out, PAUSED, &format!("queue=\"{name}\""), u64::from(stats.paused));
    }
    head(&mut out, GROUPS, "gauge", "Groups that wait for their turn, a slot or the end of a hold");
    for (name, (stats, _)) in known() {
        line(&mut out, GROUPS, &format!("queue=\"{name}\""), stats.waiting_groups);
    }
    head(
        &mut out,
        SKEW,
        "gauge",
        "How much longer the slowest shard's oldest message has been due than the fastest's",
    );
    for (name, (stats, _)) in known() {
        if let Some(skew) = stats.shard_skew {
            let skew = Duration::from(skew).as_secs_f64();
            let _ = writeln!(out, "{SKEW}{{queue=\"{name}\"}} {skew}");
        }
    }
    head(&mut out, HELD, "gauge", "1 while a hold stops deliveries");
    for (name, (stats, _)) in known() {
        let held = u64::from(stats.limits.held_until.is_some());
        line(&mut out, HELD, &format!("queue=\"{name}\""), held);
    }
    limits(&mut out, known());
    for (metric, help, value) in TOTALS {
        head(&mut out, metric, "counter", help);
        for (name, (stats, _)) in known() {
            line(&mut out, metric, &format!("queue=\"{name}\""), value(&stats));
        }
    }
    head(&mut out, DIED, "counter", "Messages that became dead letters, by reason");
    for (name, (stats, _)) in known() {
        for &reason in DeathReason::ALL {
            let labels = format!("queue=\"{name}\",reason=\"{}\"", reason.name());
            line(&mut out, DIED, &labels, stats.totals.died_of(reason));
        }
    }
    head(&mut out, LATENESS, "histogram", "Time from the due time of a delivery to its claim");
    for (name, (stats, _)) in known() {
        lateness(&mut out, name, &stats.totals);
    }
    out
}

/// The limits of the queues that have some.
fn limits<'a>(
    out: &mut String,
    known: impl Iterator<Item = (&'a str, (Stats, Timestamp))> + Clone,
) {
    head(out, LEASED_LIMIT, "gauge", "Maximum number of messages leased at once, if limited");
    for (name, (stats, _)) in known.clone() {
        if let Some(most) = stats.limits.leased {
            line(out, LEASED_LIMIT, &format!("queue=\"{name}\""), most.into());
        }
    }
    head(
        out,
        GROUP_LIMIT,
        "gauge",
        "Maximum number of messages of one group leased at once, if limited",
    );
    for (name, (stats, _)) in known.clone() {
        if let Some(most) = stats.limits.each_group {
            line(out, GROUP_LIMIT, &format!("queue=\"{name}\""), most.into());
        }
    }
    head(out, RATE_LIMIT, "gauge", "Maximum deliveries per second, if limited");
    for (name, (stats, _)) in known.clone() {
        if let Some(rate) = stats.limits.rate {
            let per_second = f64::from(rate.count) / rate.per().as_secs_f64();
            let _ = writeln!(out, "{RATE_LIMIT}{{queue=\"{name}\"}} {per_second}");
        }
    }
    head(out, BURST_LIMIT, "gauge", "Maximum deliveries at once within the rate limit");
    for (name, (stats, _)) in known {
        if let Some(rate) = stats.limits.rate {
            line(out, BURST_LIMIT, &format!("queue=\"{name}\""), rate.burst.into());
        }
    }
}

/// A histogram without a sum, which the server does not keep.
fn lateness(out: &mut String, queue: &str, totals: &Totals) {
    let mut below = 0_u64;
    for (bucket, count) in totals.lateness.iter().enumerate() {
        below = below.saturating_add(*count);
        // A bucket ends a millisecond before its bound, and `le` includes.
        let bound = Totals::lateness_bound(bucket);
        let bound = bound.map(|bound| bound.saturating_sub(Duration::from_millis(1)));
        let bound = bound.map_or_else(|| "+Inf".to_owned(), |it| it.as_secs_f64().to_string());
        let labels = format!("queue=\"{queue}\",le=\"{bound}\"");
        line(out, &format!("{LATENESS}_bucket"), &labels, below);
    }
    line(out, &format!("{LATENESS}_count"), &format!("queue=\"{queue}\""), below);
}

fn line(out: &mut String, metric: &str, labels: &str, value: u64) {
    let _ = writeln!(out, "{metric}{{{labels}}} {value}");
}

/// How long a scrape or a health check waits for a count.
const MOST_WAIT: Duration = Duration::from_secs(1);

const OVERDUE: &str = "delayline_schedules_overdue_seconds";
const LISTED: &str = "delayline_discovery_complete";
const LIST_AGE: &str = "delayline_discovery_age_seconds";
const UP: &str = "delayline_queue_up";
const COUNT_AGE: &str = "delayline_queue_count_age_seconds";
const MESSAGES: &str = "delayline_messages";
const OLDEST: &str = "delayline_oldest_due_age_seconds";
const PAUSED: &str = "delayline_paused";
const GROUPS: &str = "delayline_waiting_groups";
const SKEW: &str = "delayline_shard_skew_seconds";
const HELD: &str = "delayline_held";
const LEASED_LIMIT: &str = "delayline_limit_leased";
const GROUP_LIMIT: &str = "delayline_limit_each_group";
const RATE_LIMIT: &str = "delayline_limit_rate_per_second";
const BURST_LIMIT: &str = "delayline_limit_burst";
const DIED: &str = "delayline_queue_died_total";
const LATENESS: &str = "delayline_queue_lateness_seconds";

type Total = (&'static str, &'static str, fn(&Stats) -> u64);

/// Counted by the server, so they continue where they were after a restart of this process.
const TOTALS: [Total; 12] = [
    ("delayline_queue_enqueued_total", "Messages ever sent", |stats| stats.totals.enqueued),
    ("delayline_queue_delivered_total", "Leases ever granted", |stats| stats.totals.delivered()),
    ("delayline_queue_acked_total", "Messages ever acked", |stats| stats.totals.acked),
    ("delayline_queue_failed_total", "Leases that ended in a failure", |stats| stats.totals.failed),
    ("delayline_queue_snoozed_total", "Leases that ended in a snooze", |stats| {
        stats.totals.snoozed
    }),
    ("delayline_queue_released_total", "Leases that were released", |stats| stats.totals.released),
    ("delayline_queue_crashed_total", "Leases that expired", |stats| stats.totals.crashed),
    ("delayline_queue_cancelled_total", "Messages ever cancelled", |stats| stats.totals.cancelled),
    ("delayline_queue_purged_total", "Dead letters ever purged", |stats| stats.totals.purged),
    ("delayline_queue_redriven_total", "Dead letters ever redriven", |stats| stats.totals.redriven),
    ("delayline_queue_relayed_total", "Messages ever relayed", |stats| stats.totals.relayed),
    ("delayline_queue_replaced_total", "Messages that gave way to an update", |stats| {
        stats.totals.replaced
    }),
];
