//! Telemetry of a queue: spans, metrics, events, and the trace context of messages.
//!
//! Telemetry covers all calls of a [`Queue`](crate::Queue), its clones and their workers, and needs
//! no code in your program. It contains ids and queue names, but no payloads, header values or
//! passwords.
//!
//! # Spans
//!
//! [`tracing`] spans use the names of OpenTelemetry's conventions for messaging:
//!
//! - `send`, of level `DEBUG`: one message from the call to the result.
//! - `call`, of level `DEBUG`: one operation of the backend. Messages that are sent together share
//!   one `call`, inside a span `group` that follows from their `send`s.
//! - `process`, of level `INFO`: one delivery, from the start of its handler to the outcome. A
//!   handler's log lines are inside it. It has no parent, so each delivery is a separate trace
//!   wherever the worker runs.
//!
//! | field | on | value |
//! |---|---|---|
//! | `messaging.system` | all | `delayline` |
//! | `messaging.operation.name` | all | `send`, `process`, or the operation's name: `enqueue`, `claim`, `settle` and so on |
//! | `messaging.operation.type` | `send`, `process` | `send`, `process` |
//! | `messaging.destination.name` | all | the queue's name, see [`Backend::queue_name`](crate::backend::Backend::queue_name) |
//! | `messaging.batch.message_count` | `call` of a claim or of several messages, `group` | how many messages were sent, claimed, settled and so on |
//! | `messaging.message.id` | `send`, `process`; `call` of one message | the id, printable |
//! | `delayline.epoch` | `process` | the [epoch](crate::Job::epoch) of the delivery |
//! | `delayline.kind` | `process` of [`Jobs`](crate::Jobs) | the kind that handles it, or `unknown` |
//! | `error.type` | `send`, `call`, `process` | if it failed: `not_executed`, `rejected` or `ambiguous`; on `process`, `retry`, `undecodable` or `reject` |
//!
//! For `tracing-opentelemetry`, `otel.name` is the name of the exported span: the operation's name
//! and the queue's, such as `process orders`. `otel.kind` is `producer` for `send`, `consumer` for
//! `process` and `client` for `call`. `otel.status_code` is `ERROR` if there is an `error.type`.
//!
//! # Metrics
//!
//! With the feature `metrics`, which is off by default, metrics go through the `metrics` crate:
//! your program installs the exporter, and `telemetry::describe` registers descriptions and units.
//! The label `queue` is the queue's name; no label has a value from a message. The label `kind` has
//! the kinds that the program handles.
//!
//! | name | kind | labels | meaning |
//! |---|---|---|---|
//! | `delayline_call_duration_seconds` | histogram | `queue`, `op`, `result` | one operation from request to reply: the round trip and the script. `result` is `ok` or an error class |
//! | `delayline_call_repeats_total` | counter | `queue`, `op` | operations sent again after a failure, not counting those of workers |
//! | `delayline_batch_messages` | histogram | `queue`, `op` | messages per operation, for `enqueue`, `claim`, `relay`, `settle` and `hand_off` |
//! | `delayline_lateness_seconds` | histogram | `queue` | time from the due time of a delivery to its claim, by the server's clock |
//! | `delayline_handler_duration_seconds` | histogram | `queue`, `outcome` | a handler from its start to its outcome: `ack`, `retry`, `undecodable`, `snooze`, `release`, `reject` |
//! | `delayline_job_duration_seconds` | histogram | `queue`, `kind`, `outcome` | the same by the kind of the message, for [`Jobs`](crate::Jobs): one that has a handler, or `unknown` |
//! | `delayline_enqueued_total` | counter | `queue`, `result` | messages sent: `created`, `updated`, `following`, `duplicate`, `conflict`, `throttled`, `too_many_throttled` |
//! | `delayline_settled_total` | counter | `queue`, `outcome` | leases ended: `ack`, `retry`, `undecodable`, `snooze`, `release`, `reject` |
//! | `delayline_retries_total` | counter | `queue` | messages that will be retried after a failure |
//! | `delayline_dead_total` | counter | `queue`, `reason` | messages that became dead letters: `max_failures`, `undecodable` and `rejected` by a settlement of this process; `max_crashes`, `expired` and `unreadable` found by its claims |
//! | `delayline_leases_lost_total` | counter | `queue` | settlements and lease extensions that were too late ([G6](crate::guarantees#g6)) |
//! | `delayline_doorbell_total` | counter | `queue`, `result` | waits for a hint: `hit`, `miss` (none arrived in time), `error` |
//! | `delayline_overloaded_total` | counter | `queue` | sends refused because too many were waiting |
//! | `delayline_schedule_ticks_total` | counter | `queue`, `result` | instants of schedules for this queue, by the scheduler: `sent`; `late`, sent more than a second after the instant; `missed`, left out after a time without schedulers, within the grace; `skipped`, left out because an earlier message had not ended |
//! | `delayline_messages` | gauge | `queue`, `state` | `scheduled`, `ready`, `leased`, `dead` |
//! | `delayline_oldest_due_age_seconds` | gauge | `queue` | how long the oldest unclaimed message has been due; 0 if there is none |
//! | `delayline_paused` | gauge | `queue` | 1 while the queue is paused |
//! | `delayline_waiting_groups` | gauge | `queue` | groups that wait for their turn, a slot or the end of a hold |
//! | `delayline_shard_skew_seconds` | gauge | `queue` | how much longer the oldest unclaimed message of the slowest shard has been due than that of the fastest; only for queues with shards |
//! | `delayline_held` | gauge | `queue` | 1 while a hold stops deliveries |
//! | `delayline_limit_leased` | gauge | `queue` | maximum number of messages leased at once; `+Inf` if there is none |
//! | `delayline_limit_each_group` | gauge | `queue` | maximum number of messages of one group leased at once; `+Inf` if there is none |
//! | `delayline_limit_rate_per_second` | gauge | `queue` | maximum deliveries per second; `+Inf` if there is no rate |
//! | `delayline_limit_burst` | gauge | `queue` | maximum deliveries at once within the rate; `+Inf` if there is no rate |
//!
//! The gauges are updated by [`Queue::report_depths`](crate::Queue::report_depths).
//!
//! With the feature `metrics-otel`, durations are also recorded under the names of OpenTelemetry's
//! [conventions for
//! messaging](https://opentelemetry.io/docs/specs/semconv/messaging/messaging-metrics/):
//!
//! | name | kind | labels |
//! |---|---|---|
//! | `messaging.client.operation.duration` | histogram | `messaging.system`, `messaging.operation.name`, `messaging.destination.name`; `messaging.operation.type` of `send`, `receive` and `settle`; `error.type` of calls that failed |
//! | `messaging.process.duration` | histogram | the same; `error.type` is `retry`, `undecodable` or `reject` |
//!
//! Unless its builder sets buckets, the exporter `metrics-exporter-prometheus` turns histograms
//! into summaries, which cannot be aggregated over processes. The alert on lateness and the Grafana
//! panels on lateness and handlers in `monitoring/` need them:
//!
//! ```text
//! let seconds = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0];
//! builder
//!     .set_buckets_for_metric(Matcher::Full("delayline_lateness_seconds".to_owned()), &seconds)?
//!     .set_buckets_for_metric(Matcher::Full("delayline_handler_duration_seconds".to_owned()), &seconds)?
//!     .set_buckets_for_metric(Matcher::Full("delayline_job_duration_seconds".to_owned()), &seconds)?
//!     .set_buckets_for_metric(Matcher::Full("delayline_call_duration_seconds".to_owned()), &seconds)?;
//! ```
//!
//! # Events
//!
//! [`Queue::events`](crate::Queue::events) reports every change that this process makes to a
//! message.
//!
//! # Trace context
//!
//! [`TraceContext`] is carried in the headers `traceparent` and `tracestate`, as defined by the
//! W3C. The guide [`traces`](crate::guides::traces) links the span of a handler to its sender's.

mod context;
mod conventions;
mod meters;
mod observed;

use delayline_core::{MessageId, Op, Outcome};
use tokio::time::Instant;
use tracing::{Span, field};

pub use self::context::TraceContext;
use self::conventions::{SYSTEM, failure};
#[cfg(feature = "metrics")]
pub use self::meters::describe;
#[cfg(feature = "schedules")]
pub(crate) use self::meters::ticks;
pub(crate) use self::meters::{Label, depths, overloaded, repeated};
pub(crate) use self::observed::Observed;

/// One message, from the call to the result.
pub(crate) fn send_span(queue: &str, id: &MessageId) -> Span {
    tracing::debug_span!(
        "send",
        "otel.name" = %format_args!("send {queue}"),
        "otel.kind" = "producer",
        "otel.status_code" = field::Empty,
        "messaging.system" = SYSTEM,
        "messaging.operation.name" = "send",
        "messaging.operation.type" = "send",
        "messaging.destination.name" = queue,
        "messaging.message.id" = %id,
        "error.type" = field::Empty,
    )
}

/// One delivery, from the start of its handler to the outcome.
pub(crate) fn process_span(queue: &str, id: &MessageId, epoch: u64) -> Span {
    tracing::info_span!(
        parent: None,
        "process",
        "otel.name" = %format_args!("process {queue}"),
        "otel.kind" = "consumer",
        "otel.status_code" = field::Empty,
        "messaging.system" = SYSTEM,
        "messaging.operation.name" = "process",
        "messaging.operation.type" = "process",
        "messaging.destination.name" = queue,
        "messaging.message.id" = %id,
        "delayline.epoch" = number(epoch),
        "delayline.kind" = field::Empty,
        "error.type" = field::Empty,
    )
}

/// The handler of this span began at that time and has ended.
pub(crate) fn handled(
    queue: &Label,
    kind: Option<&'static str>,
    span: &Span,
    outcome: &Outcome,
    since: Instant,
) {
    if let Some(error) = failure(outcome) {
        failed(span, error);
    }
    meters::handled(queue, kind, outcome, since);
}

/// What this span is about has failed.
pub(crate) fn failed(span: &Span, error: &'static str) {
    span.record("error.type", error);
    span.record("otel.status_code", "ERROR");
}

/// A number as `tracing-opentelemetry` exports it: one without a sign becomes a text.
fn number(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}

/// Messages of several callers that are sent together. Each already has its own span.
pub(crate) fn group_span<'a>(
    queue: &str,
    members: impl ExactSizeIterator<Item = &'a Span>,
) -> Span {
    let span = tracing::debug_span!(
        parent: None,
        "group",
        "otel.name" = %format_args!("enqueue {queue}"),
        "messaging.system" = SYSTEM,
        "messaging.operation.name" = "enqueue",
        "messaging.destination.name" = queue,
        "messaging.batch.message_count" = number(members.len()),
    );
    if !span.is_disabled() {
        members.for_each(|member| {
            span.follows_from(member);
        });
    }
    span
}

/// One operation on its way to the backend.
fn call_span(queue: &str, op: &Op) -> Span {
    let span = tracing::debug_span!(
        "call",
        "otel.name" = %format_args!("{} {queue}", op.name()),
        "otel.kind" = "client",
        "otel.status_code" = field::Empty,
        "messaging.system" = SYSTEM,
        "messaging.operation.name" = op.name(),
        "messaging.destination.name" = queue,
        "messaging.batch.message_count" = field::Empty,
        "messaging.message.id" = field::Empty,
        "error.type" = field::Empty,
    );
    if !span.is_disabled()
        && let Some((count, first)) = subject(op)
    {
        if count == 1 {
            span.record("messaging.message.id", field::display(first));
        } else {
            span.record("messaging.batch.message_count", number(count));
        }
    }
    span
}

/// The number of messages that an operation names, and the first of them.
fn subject(op: &Op) -> Option<(usize, &MessageId)> {
    let ids = op.ids();
    Some((ids.len(), *ids.first()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_about_the_messages_that_its_operation_names() {
        let ids = ["a", "b"].map(|id| MessageId::try_from(id).unwrap()).to_vec();
        let operations: [fn(Vec<MessageId>) -> Op; 4] =
            [Op::Cancel, Op::Purge, Op::Get, Op::Progress];
        for operation in operations {
            let op = operation(ids.clone());
            assert_eq!(subject(&op), Some((2, &ids[0])), "{}", op.name());
        }
    }
}
