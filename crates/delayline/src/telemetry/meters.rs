//! The metrics, with one function for each measurement. Without the feature `metrics` they do
//! nothing. The table in the parent module lists their names and meanings.

use std::time::Duration;

use delayline_core::{DeathReason, Enqueued, Outcome, Stats, Timestamp};
use tokio::time::Instant;

/// Registers the meaning and the unit of each metric with the installed exporter. Call it once,
/// after installing the exporter.
#[cfg(feature = "metrics")]
pub fn describe() {
    use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};
    let histograms = [
        (CALL, Unit::Seconds, "One operation, from the request to the reply"),
        (BATCH, Unit::Count, "Messages of one operation"),
        (LATENESS, Unit::Seconds, "From the due instant of a delivery to its claim"),
        (HANDLER, Unit::Seconds, "A handler, from its start to its outcome"),
        (JOB, Unit::Seconds, "A handler by the kind of its message, from its start to its outcome"),
        #[cfg(feature = "metrics-otel")]
        (otel::OPERATION, Unit::Seconds, "Duration of messaging operation initiated by a client"),
        #[cfg(feature = "metrics-otel")]
        (otel::PROCESS, Unit::Seconds, "Duration of processing operation"),
    ];
    for (name, unit, text) in histograms {
        describe_histogram!(name, unit, text);
    }
    let counters = [
        (REPEATS, "Operations retried after a failure"),
        (ENQUEUED, "Messages sent"),
        (SETTLED, "Leases ended"),
        (RETRIES, "Messages retried after a failure"),
        (DEAD, "Messages that became dead letters by a settlement or claim of this process"),
        (LOST, "Settlements and extensions that were too late"),
        (DOORBELL, "Waits for a hint"),
        (OVERLOADED, "Sends refused because too many waited"),
        #[cfg(feature = "schedules")]
        (TICKS, "Instants of schedules, by result"),
    ];
    for (name, text) in counters {
        describe_counter!(name, Unit::Count, text);
    }
    describe_gauge!(MESSAGES, Unit::Count, "Messages of the queue by state");
    describe_gauge!(OLDEST, Unit::Seconds, "How long the oldest unclaimed message has been due");
    describe_gauge!(PAUSED, Unit::Count, "1 while claims are stopped");
    describe_gauge!(
        GROUPS,
        Unit::Count,
        "Groups that wait for a turn, a slot or the end of a hold"
    );
    describe_gauge!(
        SKEW,
        Unit::Seconds,
        "How much longer the slowest shard's oldest message has been due than the fastest's"
    );
    describe_gauge!(HELD, Unit::Count, "1 while a hold stops deliveries");
    describe_gauge!(LEASED_LIMIT, Unit::Count, "Maximum number of messages leased at once");
    describe_gauge!(
        GROUP_LIMIT,
        Unit::Count,
        "Maximum number of messages of one group leased at once"
    );
    describe_gauge!(RATE_LIMIT, Unit::CountPerSecond, "Maximum deliveries per second");
    describe_gauge!(BURST_LIMIT, Unit::Count, "Maximum deliveries at once within the rate limit");
}

/// Defines functions that have a body only with the feature `metrics`.
macro_rules! meters {
    ($($(#[$doc:meta])* $vis:vis fn $name:ident($($arg:ident: $type:ty),*) $body:block)*) => {$(
        $(#[$doc])*
        #[cfg(feature = "metrics")]
        $vis fn $name($($arg: $type),*) $body

        $(#[$doc])*
        #[cfg(not(feature = "metrics"))]
        $vis const fn $name($(_: $type),*) {}
    )*};
}

meters! {
    /// An operation has ended; `result` is `ok` or an error class.
    pub(super) fn call(queue: &Label, op: &'static str, result: &'static str, took: Duration) {
        let labels = [queue.label(), metrics::Label::from_static_parts("op", op),
            metrics::Label::from_static_parts("result", result)];
        metrics::histogram!(CALL, labels.iter()).record(took.as_secs_f64());
        #[cfg(feature = "metrics-otel")]
        otel::operation(queue, op, result, took);
    }

    /// A handler that began then has ended.
    pub(super) fn handled(queue: &Label, kind: Option<&'static str>, outcome: &Outcome, since: Instant) {
        let took = since.elapsed();
        let (queue_label, outcome_label) =
            (queue.label(), metrics::Label::from_static_parts("outcome", name_of(outcome)));
        if let Some(kind) = kind {
            let kind = metrics::Label::from_static_parts("kind", kind);
            let labels = [queue_label.clone(), kind, outcome_label.clone()];
            metrics::histogram!(JOB, labels.iter()).record(took.as_secs_f64());
        }
        let labels = [queue_label, outcome_label];
        metrics::histogram!(HANDLER, labels.iter()).record(took.as_secs_f64());
        #[cfg(feature = "metrics-otel")]
        otel::process(queue, super::conventions::failure(outcome), took);
    }

    /// An operation is sent again.
    pub(crate) fn repeated(queue: &Label, op: &'static str) {
        let labels = [queue.label(), metrics::Label::from_static_parts("op", op)];
        metrics::counter!(REPEATS, labels.iter()).increment(1);
    }

    /// An operation affected this many messages.
    pub(super) fn batch(queue: &Label, op: &'static str, messages: usize) {
        let labels = [queue.label(), metrics::Label::from_static_parts("op", op)];
        // A batch has 1,000 messages at most.
        let messages = u32::try_from(messages).unwrap_or(u32::MAX);
        metrics::histogram!(BATCH, labels.iter()).record(f64::from(messages));
    }

    /// A message was leased this late.
    pub(super) fn claimed(queue: &Label, lateness: Duration) {
        metrics::histogram!(LATENESS, [queue.label()].iter()).record(lateness.as_secs_f64());
    }

    /// A message was sent.
    pub(super) fn enqueued(queue: &Label, outcome: Enqueued) {
        let result = metrics::Label::from_static_parts("result", outcome.name());
        let labels = [queue.label(), result];
        metrics::counter!(ENQUEUED, labels.iter()).increment(1);
    }

    /// The holder of a lease has ended it.
    pub(super) fn settled(queue: &Label, outcome: &Outcome) {
        let outcome = metrics::Label::from_static_parts("outcome", name_of(outcome));
        metrics::counter!(SETTLED, [queue.label(), outcome].iter()).increment(1);
    }

    /// A message will be retried after a failure.
    pub(super) fn retried(queue: &Label) {
        metrics::counter!(RETRIES, [queue.label()].iter()).increment(1);
    }

    /// Instants of a schedule for this queue were `sent`, sent `late`, `missed` or `skipped`.
    #[cfg(feature = "schedules")]
    pub(crate) fn ticks(queue: &Label, result: &'static str, count: u64) {
        let labels = [queue.label(), metrics::Label::from_static_parts("result", result)];
        metrics::counter!(TICKS, labels.iter()).increment(count);
    }

    /// A message became a dead letter.
    pub(super) fn dead(queue: &Label, reason: DeathReason) {
        let labels = [queue.label(), metrics::Label::from_static_parts("reason", reason.name())];
        metrics::counter!(DEAD, labels.iter()).increment(1);
    }

    /// A lease was used after this process had lost it.
    pub(super) fn lease_lost(queue: &Label) {
        metrics::counter!(LOST, [queue.label()].iter()).increment(1);
    }

    /// A wait for a hint has ended: `hit`, `miss` or `error`.
    pub(super) fn hint(queue: &Label, result: &'static str) {
        let labels = [queue.label(), metrics::Label::from_static_parts("result", result)];
        metrics::counter!(DOORBELL, labels.iter()).increment(1);
    }

    /// A send was refused because too many were waiting.
    pub(crate) fn overloaded(queue: &Label) {
        metrics::counter!(OVERLOADED, [queue.label()].iter()).increment(1);
    }

    /// The instant of the count, by the queue's clock.
    pub(crate) fn depths(queue: &Label, stats: &Stats, at: Timestamp) {
        let states = [("scheduled", stats.scheduled), ("ready", stats.ready),
            ("leased", stats.leased), ("dead", stats.dead)];
        for (state, count) in states {
            let labels = [queue.label(), metrics::Label::from_static_parts("state", state)];
            // A gauge is a float; counts up to 2^32 are exact in it, and no queue holds more.
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            metrics::gauge!(MESSAGES, labels.iter()).set(f64::from(count));
        }
        let age = stats.earliest_due.map(|due| at.since(due)).unwrap_or_default();
        metrics::gauge!(OLDEST, [queue.label()].iter()).set(age.as_secs_f64());
        metrics::gauge!(PAUSED, [queue.label()].iter()).set(f64::from(u8::from(stats.paused)));
        let groups = u32::try_from(stats.waiting_groups).unwrap_or(u32::MAX);
        metrics::gauge!(GROUPS, [queue.label()].iter()).set(f64::from(groups));
        if let Some(skew) = stats.shard_skew {
            let skew = Duration::from(skew).as_secs_f64();
            metrics::gauge!(SKEW, [queue.label()].iter()).set(skew);
        }
        let delayline_core::Limits { leased, each_group, rate, held_until, .. } = stats.limits;
        let is_held = f64::from(u8::from(held_until.is_some()));
        metrics::gauge!(HELD, [queue.label()].iter()).set(is_held);
        // A gauge cannot be withdrawn when a limit is removed.
        let leased = leased.map_or(f64::INFINITY, f64::from);
        metrics::gauge!(LEASED_LIMIT, [queue.label()].iter()).set(leased);
        let each_group = each_group.map_or(f64::INFINITY, f64::from);
        metrics::gauge!(GROUP_LIMIT, [queue.label()].iter()).set(each_group);
        let (per_second, burst) = rate.map_or((f64::INFINITY, f64::INFINITY), |rate| {
            (f64::from(rate.count) / rate.per().as_secs_f64(), rate.burst.into())
        });
        metrics::gauge!(RATE_LIMIT, [queue.label()].iter()).set(per_second);
        metrics::gauge!(BURST_LIMIT, [queue.label()].iter()).set(burst);
    }
}

#[cfg(feature = "metrics")]
const fn name_of(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Ack => "ack",
        Outcome::Retry { .. } => "retry",
        Outcome::Undecodable { .. } => "undecodable",
        Outcome::Snooze { .. } => "snooze",
        Outcome::Release => "release",
        Outcome::Reject { .. } => "reject",
        _ => "other",
    }
}

/// A queue's name, as the value of the label `queue`.
#[derive(Clone, Debug)]
pub(crate) struct Label(std::sync::Arc<str>);

impl Label {
    pub(crate) fn new(queue: &str) -> Self {
        Self(queue.into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    #[cfg(feature = "metrics")]
    fn label(&self) -> metrics::Label {
        metrics::Label::new("queue", std::sync::Arc::clone(&self.0))
    }
}

/// The metric names, unused without the feature.
#[cfg(feature = "metrics")]
mod names {
    pub(super) const CALL: &str = "delayline_call_duration_seconds";
    pub(super) const HANDLER: &str = "delayline_handler_duration_seconds";
    pub(super) const JOB: &str = "delayline_job_duration_seconds";
    pub(super) const REPEATS: &str = "delayline_call_repeats_total";
    pub(super) const BATCH: &str = "delayline_batch_messages";
    pub(super) const LATENESS: &str = "delayline_lateness_seconds";
    pub(super) const ENQUEUED: &str = "delayline_enqueued_total";
    pub(super) const SETTLED: &str = "delayline_settled_total";
    pub(super) const RETRIES: &str = "delayline_retries_total";
    pub(super) const DEAD: &str = "delayline_dead_total";
    pub(super) const LOST: &str = "delayline_leases_lost_total";
    pub(super) const DOORBELL: &str = "delayline_doorbell_total";
    pub(super) const OVERLOADED: &str = "delayline_overloaded_total";
    #[cfg(feature = "schedules")]
    pub(super) const TICKS: &str = "delayline_schedule_ticks_total";
    pub(super) const MESSAGES: &str = "delayline_messages";
    pub(super) const OLDEST: &str = "delayline_oldest_due_age_seconds";
    pub(super) const PAUSED: &str = "delayline_paused";
    pub(super) const GROUPS: &str = "delayline_waiting_groups";
    pub(super) const SKEW: &str = "delayline_shard_skew_seconds";
    pub(super) const HELD: &str = "delayline_held";
    pub(super) const LEASED_LIMIT: &str = "delayline_limit_leased";
    pub(super) const GROUP_LIMIT: &str = "delayline_limit_each_group";
    pub(super) const RATE_LIMIT: &str = "delayline_limit_rate_per_second";
    pub(super) const BURST_LIMIT: &str = "delayline_limit_burst";
}

#[cfg(feature = "metrics")]
use names::*;

/// The same durations under the names of OpenTelemetry's conventions for messaging.
#[cfg(feature = "metrics-otel")]
mod otel {
    use std::sync::Arc;
    use std::time::Duration;

    use super::Label;
    use crate::telemetry::conventions::SYSTEM;

    pub(super) const OPERATION: &str = "messaging.client.operation.duration";
    pub(super) const PROCESS: &str = "messaging.process.duration";

    /// An operation has ended; `result` is `ok` or an error class.
    pub(super) fn operation(queue: &Label, op: &'static str, result: &'static str, took: Duration) {
        let kind = match op {
            "enqueue" => Some("send"),
            "claim" => Some("receive"),
            "settle" | "hand_off" => Some("settle"),
            _ => None,
        };
        record(OPERATION, queue, op, kind, Some(result).filter(|it| *it != "ok"), took);
    }

    /// A handler has ended.
    pub(super) fn process(queue: &Label, error: Option<&'static str>, took: Duration) {
        record(PROCESS, queue, "process", Some("process"), error, took);
    }

    fn record(
        metric: &'static str,
        queue: &Label,
        operation: &'static str,
        kind: Option<&'static str>,
        error: Option<&'static str>,
        took: Duration,
    ) {
        let fixed = metrics::Label::from_static_parts;
        let destination = metrics::Label::new("messaging.destination.name", Arc::clone(&queue.0));
        let mut labels = vec![
            fixed("messaging.system", SYSTEM),
            fixed("messaging.operation.name", operation),
            destination,
        ];
        labels.extend(kind.map(|kind| fixed("messaging.operation.type", kind)));
        labels.extend(error.map(|error| fixed("error.type", error)));
        metrics::histogram!(metric, labels).record(took.as_secs_f64());
    }
}
