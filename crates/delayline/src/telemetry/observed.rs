//! A backend that records telemetry of every call.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use delayline_core::{
    Applied, At, Backend, Cancelled, Claimed, Death, DeathReason, Durability, Enqueued, Error,
    Extended, HandOff, HandedOff, MessageId, NewMessage, Op, Outcome, Purged, QueueBackend,
    QueueName, Redriven, Reply, Rescheduled, Settled, Settlement, Status, Timestamp, Wakeup,
};
use tokio::time::Instant;
use tracing::Instrument;

use super::meters::{self, Label};
use super::{call_span, failed, number};
use crate::cancels::Cancels;
use crate::events::{EventKind, EventSink};
use crate::shards::epoch_of;

/// Records each operation's time and results, and changes nothing.
#[derive(Debug)]
pub(crate) struct Observed {
    inner: Arc<dyn QueueBackend>,
    queue: Label,
    events: EventSink,
    cancels: Cancels,
}

impl Observed {
    pub(crate) fn new(
        inner: Arc<dyn QueueBackend>,
        queue: Label,
        events: EventSink,
        cancels: Cancels,
    ) -> Self {
        Self { inner, queue, events, cancels }
    }

    /// Records one call.
    async fn observe(
        &self,
        op: &Op,
        call: impl Future<Output = Result<Applied, Error>>,
    ) -> Result<Applied, Error> {
        let span = call_span(self.queue.as_str(), op);
        let start = Instant::now();
        let result = call.instrument(span.clone()).await;
        let outcome = match &result {
            Ok(applied) => {
                let claimed = match &applied.reply {
                    Reply::Claim(claimed) => Some(claimed),
                    _ => None,
                };
                if let Some(claimed) = claimed {
                    span.record("messaging.batch.message_count", number(claimed.deliveries.len()));
                }
                self.tell(op, applied);
                "ok"
            }
            Err(error) => {
                let class = error.class().name();
                failed(&span, class);
                class
            }
        };
        let took = start.elapsed();
        tracing::debug!(queue = self.queue.as_str(), op = op.name(), outcome, ?took, "called");
        meters::call(&self.queue, op.name(), outcome, took);
        result
    }

    /// Reports the results of an operation, item by item.
    fn tell(&self, op: &Op, applied: &Applied) {
        if let (Op::Cancel(ids), Reply::Cancel(results)) = (op, &applied.reply) {
            let in_flight = ids.iter().zip(results).filter(|it| *it.1 == Cancelled::InFlight);
            in_flight.for_each(|(id, _)| self.cancels.tell(self.queue.as_str(), id));
        }
        let tell = |id: &MessageId, kind| self.events.tell(id, applied.at, kind);
        let tell_sent = |message: &NewMessage, kind| {
            self.events.tell_with(&message.id, Some(&message.headers), applied.at, kind);
        };
        match (op, &applied.reply) {
            (Op::Enqueue(messages), Reply::Enqueue(outcomes)) => {
                meters::batch(&self.queue, op.name(), messages.len());
                self.tell_enqueued(messages, outcomes, tell_sent);
            }
            (Op::HandOff(items), Reply::HandOff(results)) => {
                meters::batch(&self.queue, op.name(), items.len());
                for (item, result) in items.iter().zip(results) {
                    let settlement = &item.settlement;
                    tell(&settlement.id, self.settled(applied.at, settlement, result.settled));
                    self.tell_enqueued(&item.messages, &result.messages, tell_sent);
                }
                self.tell_results_lost(items, results, tell);
            }
            (Op::Claim(_), Reply::Claim(claimed)) => self.tell_claimed(applied.at, claimed, tell),
            (Op::Relay(_), Reply::Relay(relayed)) => {
                if !relayed.ids.is_empty() {
                    meters::batch(&self.queue, op.name(), relayed.ids.len());
                }
                relayed.ids.iter().for_each(|id| tell(id, EventKind::Relayed));
                for Death { id, reason, .. } in &relayed.deaths {
                    meters::dead(&self.queue, *reason);
                    tell(id, EventKind::Dead { reason: *reason, error: None });
                }
                self.log_deaths(&relayed.deaths);
            }
            (Op::Settle(items), Reply::Settle(results)) => {
                self.tell_settled(applied.at, items, results, tell);
            }
            (Op::Extend(extend), Reply::Extend(results)) => {
                for ((id, lease), result) in extend.leases.iter().zip(results) {
                    match result {
                        Extended::Done { cancel_requested: true, .. } => {
                            tell(id, EventKind::CancelRequested);
                        }
                        Extended::Done { .. } => {}
                        Extended::Stale | Extended::Missing => {
                            meters::lease_lost(&self.queue);
                            tell(id, EventKind::LeaseLost { epoch: epoch_of(*lease) });
                        }
                        _ => {}
                    }
                }
            }
            _ => changes(op, &applied.reply, tell),
        }
    }

    fn tell_enqueued(
        &self,
        messages: &[NewMessage],
        outcomes: &[Enqueued],
        tell: impl Fn(&NewMessage, EventKind),
    ) {
        for (message, &outcome) in messages.iter().zip(outcomes) {
            meters::enqueued(&self.queue, outcome);
            if let Some(kind) = enqueued(outcome) {
                tell(message, kind);
            }
        }
    }

    /// Logs one line: an operation can leave a thousand results.
    fn tell_results_lost(
        &self,
        items: &[HandOff],
        results: &[HandedOff],
        tell: impl Fn(&MessageId, EventKind),
    ) {
        // After a lost reply, the repetition reports it.
        let is_acked = |settled| {
            let (Settled::Done { status } | Settled::AlreadyDone { ended: Some(status) }) = settled
            else {
                return false;
            };
            status == Status::Acked
        };
        let is_lost = |(item, told): &(&HandOff, &HandedOff)| {
            item.result.is_some() && !told.result_kept && is_acked(told.settled)
        };
        let lost = items.iter().zip(results).filter(is_lost);
        let lost: Vec<_> = lost.map(|(item, _)| &item.settlement.id).collect();
        if let Some(first) = lost.first() {
            tracing::warn!(
                queue = self.queue.as_str(),
                results = lost.len(),
                %first,
                "results were not kept: the results of the queue would be too large"
            );
        }
        lost.into_iter().for_each(|id| tell(id, EventKind::ResultNotKept));
    }

    fn tell_settled(
        &self,
        at: Timestamp,
        items: &[Settlement],
        results: &[Settled],
        tell: impl Fn(&MessageId, EventKind),
    ) {
        meters::batch(&self.queue, "settle", items.len());
        for (item, &result) in items.iter().zip(results) {
            tell(&item.id, self.settled(at, item, result));
        }
    }

    fn tell_claimed(&self, at: Timestamp, claimed: &Claimed, tell: impl Fn(&MessageId, EventKind)) {
        if !claimed.deliveries.is_empty() {
            meters::batch(&self.queue, "claim", claimed.deliveries.len());
        }
        for delivery in &claimed.deliveries {
            let info = &delivery.message.info;
            let lateness = delivery.lateness(at);
            meters::claimed(&self.queue, lateness);
            let kind = EventKind::Delivered { epoch: delivery.message.info.epoch, lateness };
            self.events.tell_with(&info.id, Some(&delivery.message.headers), at, kind);
        }
        for Death { id, reason, .. } in &claimed.deaths {
            meters::dead(&self.queue, *reason);
            tell(id, EventKind::Dead { reason: *reason, error: None });
        }
        self.log_deaths(&claimed.deaths);
    }

    fn settled(&self, at: Timestamp, item: &Settlement, result: Settled) -> EventKind {
        let status = match result {
            Settled::Done { status } => Some(status),
            // The reply to the first attempt was lost, so it is reported now.
            Settled::AlreadyDone { ended } => ended,
            // A result of a later version does not end the lease either.
            _ => {
                meters::lease_lost(&self.queue);
                return EventKind::LeaseLost { epoch: epoch_of(item.lease) };
            }
        };
        meters::settled(&self.queue, &item.outcome);
        match (status, &item.outcome) {
            (Some(Status::Cancelled), _) => EventKind::Cancelled,
            (Some(Status::Replaced), outcome) => {
                let error = match outcome {
                    Outcome::Retry { error, .. }
                    | Outcome::Undecodable { error, .. }
                    | Outcome::Reject { error } => Some(error.clone()),
                    _ => None,
                };
                EventKind::Replaced { error }
            }
            (Some(Status::Dead), Outcome::Retry { error, .. }) => {
                self.dead(item, DeathReason::MaxFailures, error)
            }
            (Some(Status::Dead), Outcome::Undecodable { error, .. }) => {
                self.dead(item, DeathReason::Undecodable, error)
            }
            (_, Outcome::Reject { error }) => self.dead(item, DeathReason::Rejected, error),
            (_, Outcome::Ack) => EventKind::Acked,
            (_, Outcome::Retry { schedule, .. } | Outcome::Undecodable { schedule, .. }) => {
                meters::retried(&self.queue);
                EventKind::Retried { delay: schedule.instant(at).since(at) }
            }
            (_, Outcome::Snooze { schedule }) => {
                EventKind::Snoozed { delay: schedule.instant(at).since(at) }
            }
            // An outcome of a later version gives the message back.
            (_, Outcome::Release | _) => EventKind::Released,
        }
    }

    /// A settlement has made a message a dead letter.
    fn dead(&self, item: &Settlement, reason: DeathReason, error: &str) -> EventKind {
        meters::dead(&self.queue, reason);
        tracing::warn!(
            queue = self.queue.as_str(),
            id = %item.id,
            epoch = epoch_of(item.lease),
            reason = reason.name(),
            error,
            "the message is now a dead letter"
        );
        EventKind::Dead { reason, error: Some(error.to_owned()) }
    }

    /// Logs one line per reason: a claim can dead-letter hundreds of messages.
    fn log_deaths(&self, deaths: &[Death]) {
        let mut rest: Vec<_> = deaths.iter().collect();
        while let Some(&Death { ref id, reason, .. }) = rest.first().copied() {
            let before = rest.len();
            rest.retain(|death| death.reason != reason);
            tracing::warn!(
                queue = self.queue.as_str(),
                first = %id,
                count = before - rest.len(),
                reason = reason.name(),
                "a claim or relay made messages dead letters"
            );
        }
    }
}

const fn enqueued(outcome: Enqueued) -> Option<EventKind> {
    Some(match outcome {
        Enqueued::Created { due } => EventKind::Enqueued { due },
        Enqueued::Updated { due } => EventKind::Updated { due },
        Enqueued::Following { .. } => EventKind::Following,
        Enqueued::Duplicate { status } => EventKind::Duplicate { status },
        Enqueued::Conflict { status } => EventKind::Conflict { status },
        Enqueued::Throttled { until } => EventKind::Throttled { until },
        Enqueued::TooManyThrottled => EventKind::TooManyThrottled,
        _ => return None,
    })
}

/// Reports operations that only listeners need.
fn changes(op: &Op, reply: &Reply, tell: impl Fn(&MessageId, EventKind)) {
    match (op, reply) {
        (Op::Cancel(ids), Reply::Cancel(results)) => {
            for (id, result) in ids.iter().zip(results) {
                match result {
                    Cancelled::Cancelled => tell(id, EventKind::Cancelled),
                    Cancelled::InFlight => tell(id, EventKind::CancelRequested),
                    _ => {}
                }
            }
        }
        (Op::Reschedule(items), Reply::Reschedule(results)) => {
            for (item, result) in items.iter().zip(results) {
                if let &Rescheduled::Done { due } = result {
                    tell(&item.id, EventKind::Rescheduled { due });
                }
            }
        }
        (Op::Redrive(redrive), Reply::Redrive(results)) => {
            for (id, result) in redrive.ids.iter().zip(results) {
                if let &Redriven::Done { due } = result {
                    tell(id, EventKind::Redriven { due });
                }
            }
        }
        (Op::Purge(ids), Reply::Purge(results)) => {
            for (id, result) in ids.iter().zip(results) {
                if *result == Purged::Purged {
                    tell(id, EventKind::Purged);
                }
            }
        }
        _ => {}
    }
}

#[async_trait]
impl Backend for Observed {
    fn queue_name(&self) -> Option<&QueueName> {
        self.inner.queue_name()
    }

    async fn apply(&self, at: At, op: &Op) -> Result<Applied, Error> {
        self.observe(op, self.inner.apply(at, op)).await
    }

    async fn apply_durably(
        &self,
        at: At,
        op: &Op,
        durability: Durability,
    ) -> Result<Applied, Error> {
        self.observe(op, self.inner.apply_durably(at, op, durability)).await
    }
}

#[async_trait]
impl Wakeup for Observed {
    async fn wait(&self, timeout: Duration) -> Result<bool, Error> {
        let result = Wakeup::wait(&self.inner, timeout).await;
        let outcome = match result {
            Ok(true) => "hit",
            Ok(false) => "miss",
            Err(_) => "error",
        };
        meters::hint(&self.queue, outcome);
        result
    }

    async fn ring(&self) -> Result<(), Error> {
        Wakeup::ring(&self.inner).await
    }
}
