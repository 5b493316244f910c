//! What a queue tells about itself: spans, metrics, events, and the trace context of messages.
//!
//! All of it hangs on the calls that a [`Queue`](crate::Queue), its clones and their workers make,
//! so it needs no code of the program's. Ids and queue names appear in it; payloads, header values
//! and passwords never do.
//!
//! # Spans
//!
//! [`tracing`] spans of level `DEBUG` carry the names of OpenTelemetry's conventions for messaging:
//! `send` is one message from the call to the answer, `call` is one operation on its way to the
//! backend. Messages that go out together share a `call`, inside of a span `group` that follows from
//! their `send`s.
//!
//! | field | on | value |
//! |---|---|---|
//! | `messaging.system` | all | `delayline` |
//! | `messaging.operation.name` | all | `send`, or the operation's name: `enqueue`, `claim`, `settle` and so on |
//! | `messaging.destination.name` | all | the queue's name, see [`Backend::queue_name`](crate::Backend::queue_name) |
//! | `messaging.batch.message_count` | `call`, `group` | how many messages were sent, claimed, settled and so on |
//! | `messaging.message.id` | `send`; `call` of one message | the id, printable |
//! | `error.type` | `send`, `call` | `not_executed`, `rejected` or `ambiguous`, if it failed |
//!
//! # Metrics
//!
//! With the feature `metrics`, which is off by default, through the facade of that name: a program
//! installs the exporter. `telemetry::describe` gives it these texts. The label `queue` is the queue's name
//! and nothing else; no label takes a value from a message.
//!
//! | name | kind | labels | meaning |
//! |---|---|---|---|
//! | `delayline_call_duration_seconds` | histogram | `queue`, `op`, `result` | one operation, from the request to the reply: the way there and back, and the script. `result` is `ok` or a class of error |
//! | `delayline_call_repeats_total` | counter | `queue`, `op` | operations sent again after a failure, workers' not included |
//! | `delayline_batch_messages` | histogram | `queue`, `op` | messages of one operation, for `enqueue`, `claim` and `settle` |
//! | `delayline_lateness_seconds` | histogram | `queue` | from the due instant of a delivery to its claim, by the server's clock |
//! | `delayline_enqueued_total` | counter | `queue`, `result` | messages sent: `created`, `duplicate`, `conflict` |
//! | `delayline_settled_total` | counter | `queue`, `outcome` | leases ended: `ack`, `retry`, `snooze`, `release`, `reject` |
//! | `delayline_retries_total` | counter | `queue` | messages that are tried again after a failure |
//! | `delayline_dead_total` | counter | `queue`, `reason` | messages that became dead letters: `max_failures` and `rejected` by a settlement of this process; `max_crashes`, `expired` and `unreadable` found by its claims |
//! | `delayline_leases_lost_total` | counter | `queue` | settlements and extensions that came too late (G6) |
//! | `delayline_doorbell_total` | counter | `queue`, `result` | waits for a hint: `hit`, `miss` (none came in time), `error` |
//! | `delayline_overloaded_total` | counter | `queue` | sends refused because too many waited |
//! | `delayline_messages` | gauge | `queue`, `state` | `scheduled`, `ready`, `leased`, `dead` |
//! | `delayline_oldest_due_age_seconds` | gauge | `queue` | how long the oldest message that nobody has claimed has been due; 0 without one |
//! | `delayline_paused` | gauge | `queue` | 1 while claims are stopped |
//!
//! The gauges change when [`Queue::report_depths`](crate::Queue::report_depths) is called.
//!
//! # Events
//!
//! [`Queue::events`](crate::Queue::events) tells message by message what this process has done.
//!
//! # Trace context
//!
//! [`TraceContext`] travels in the headers `traceparent` and `tracestate`, as W3C defines them.

mod context;
mod meters;
mod observed;

use delayline_core::{Class, MessageId, Op};
use tracing::{Span, field};

pub use self::context::TraceContext;
#[cfg(feature = "metrics")]
pub use self::meters::describe;
pub(crate) use self::meters::{Label, depths, overloaded, repeated};
pub(crate) use self::observed::Observed;

/// One message, from the call to the answer.
pub(crate) fn send_span(queue: &str, id: &MessageId) -> Span {
    tracing::debug_span!(
        "send",
        "messaging.system" = SYSTEM,
        "messaging.operation.name" = "send",
        "messaging.operation.type" = "send",
        "messaging.destination.name" = queue,
        "messaging.message.id" = %id,
        "error.type" = field::Empty,
    )
}

/// Messages of several callers that go out together. Each has a span of its own already.
pub(crate) fn group_span<'a>(
    queue: &str,
    members: impl ExactSizeIterator<Item = &'a Span>,
) -> Span {
    let span = tracing::debug_span!(
        parent: None,
        "group",
        "messaging.system" = SYSTEM,
        "messaging.operation.name" = "enqueue",
        "messaging.destination.name" = queue,
        "messaging.batch.message_count" = members.len(),
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
        span.record("messaging.batch.message_count", count);
        if count == 1 {
            span.record("messaging.message.id", field::display(first));
        }
    }
    span
}

/// How many messages an operation is about, and the first of them.
fn subject(op: &Op) -> Option<(usize, &MessageId)> {
    let (count, first) = match op {
        Op::Enqueue(items) => (items.len(), items.first().map(|item| &item.id)),
        Op::Settle(items) => (items.len(), items.first().map(|item| &item.id)),
        Op::Extend(extend) => (extend.leases.len(), extend.leases.first().map(|(id, _)| id)),
        Op::Reschedule(items) => (items.len(), items.first().map(|item| &item.id)),
        Op::Redrive(redrive) => (redrive.ids.len(), redrive.ids.first()),
        Op::Cancel(ids) | Op::Purge(ids) | Op::Get(ids) => (ids.len(), ids.first()),
        Op::Claim(_)
        | Op::Pause
        | Op::Resume
        | Op::List(_)
        | Op::Stats
        | Op::Check(_)
        | Op::Repair(_) => return None,
    };
    first.map(|first| (count, first))
}

/// A class of error, as fields and labels have it.
pub(crate) const fn class_name(class: Class) -> &'static str {
    match class {
        Class::NotExecuted => "not_executed",
        Class::Rejected => "rejected",
        Class::Ambiguous => "ambiguous",
    }
}

const SYSTEM: &str = "delayline";
