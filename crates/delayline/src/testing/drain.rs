//! Runs handlers on a test's queue, without a worker and without waiting.

use std::fmt::{self, Display};
use std::future::Future;
use std::time::Duration;

use delayline_core::{
    Applied, At, Claim, ClaimId, Claimed, ConsumerName, Delivery, HandOff, MessageId, Millis,
    NewMessage, NewResult, Op, Outcome as Settle, Reply, Settled, Settlement, Status, Timestamp,
    limits,
};
use uuid::Uuid;

use super::{TestQueue, fail};
use crate::worker::Alone;
use crate::{Codec, HandlerError, Job, Outcome};

/// The deliveries that a drain has handled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drained {
    /// Each run of the handler, in order. Messages that became dead letters without one, because
    /// they expired, are not included.
    pub handled: Vec<Handled>,
}

impl Drained {
    /// The runs of the handler on one message.
    #[must_use]
    pub fn of(&self, id: impl AsRef<[u8]>) -> Vec<&Handled> {
        self.handled.iter().filter(|handled| handled.id.as_bytes() == id.as_ref()).collect()
    }

    /// How many runs left their message with this status: [`Status::Acked`], [`Status::Dead`],
    /// [`Status::Scheduled`] after a retry or a snooze, and so on.
    #[must_use]
    pub fn count(&self, status: Status) -> usize {
        self.handled.iter().filter(|handled| handled.status == Some(status)).count()
    }
}

/// One run of the handler.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Handled {
    /// The message.
    pub id: MessageId,
    /// The number of this delivery, see [`Job::epoch`].
    pub epoch: u64,
    /// When it was due, by the queue's clock.
    pub due: Timestamp,
    /// When it was claimed, by the queue's clock.
    pub at: Timestamp,
    /// The handler's result. An error is [`Outcome::Retry`], and so is a panic, whose text begins
    /// with `panicked:`.
    pub outcome: Outcome,
    /// The message's status afterwards: [`Status::Dead`] after the last allowed failure,
    /// [`Status::Cancelled`] if it was cancelled meanwhile. `None` if the handler has moved the
    /// clock by more than a day and the message has been claimed again.
    pub status: Option<Status>,
}

/// `order-1, delivery 2: Ack, now Acked`.
impl Display for Handled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, epoch, outcome, .. } = self;
        write!(f, "{id}, delivery {epoch}: {outcome:?}")?;
        match self.status {
            Some(status) => write!(f, ", now {status:?}"),
            None => f.write_str(", too late"),
        }
    }
}

impl<T: Send + 'static, C: Codec<T>> TestQueue<T, C> {
    /// Handles the messages that are due, and those that become due meanwhile, with a handler like
    /// that of [`Worker::run`](crate::Worker::run). The clock stands still, unless the handler
    /// moves it.
    ///
    /// Messages are handled one after the other, in the queue's order. Everything else works as in
    /// a worker: failures and their limits, panics, payloads that cannot be decoded. A handler that
    /// sleeps uses tokio's clock, which is a different one: see `tokio::time::pause`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the running handler. Its message stays leased for a day of the
    /// queue's clock.
    ///
    /// # Panics
    ///
    /// After [`max_deliveries`](Self::max_deliveries). The text lists the latest.
    pub async fn drain_due<H, F, O, E, K>(&self, handler: H) -> Drained
    where
        H: Fn(Job<T>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<O, E>> + Send + 'static,
        O: Into<Outcome> + 'static,
        E: HandlerError<K> + 'static,
    {
        self.drain_until(self.recorder.now(), handler).await
    }

    /// Handles the messages that become due within this time. Moves the clock from one due time to
    /// the next, and finally to the end of this time. Otherwise like
    /// [`drain_due`](Self::drain_due).
    ///
    /// # Cancel safety
    ///
    /// Like [`drain_due`](Self::drain_due). The clock stays where it is.
    ///
    /// # Panics
    ///
    /// Like [`drain_due`](Self::drain_due).
    pub async fn drain_for<H, F, O, E, K>(&self, time: Duration, handler: H) -> Drained
    where
        H: Fn(Job<T>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<O, E>> + Send + 'static,
        O: Into<Outcome> + 'static,
        E: HandlerError<K> + 'static,
    {
        let end = self.recorder.now().after(Millis::try_from(time).unwrap_or(Millis::MAX));
        let drained = self.drain_until(end, handler).await;
        self.move_to(end);
        drained
    }

    /// Handles all messages, including retries and follow-ups, and moves the clock from one due
    /// time to the next. Ends when nothing is scheduled or ready any more, or when the queue is
    /// paused. Otherwise like [`drain_due`](Self::drain_due).
    ///
    /// # Cancel safety
    ///
    /// Like [`drain_due`](Self::drain_due). The clock stays where it is.
    ///
    /// # Panics
    ///
    /// Like [`drain_due`](Self::drain_due): for example if a message is snoozed forever.
    pub async fn drain<H, F, O, E, K>(&self, handler: H) -> Drained
    where
        H: Fn(Job<T>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<O, E>> + Send + 'static,
        O: Into<Outcome> + 'static,
        E: HandlerError<K> + 'static,
    {
        self.drain_until(Timestamp::MAX, handler).await
    }

    async fn drain_until<H, F, O, E, K>(&self, end: Timestamp, handler: H) -> Drained
    where
        H: Fn(Job<T>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<O, E>> + Send + 'static,
        O: Into<Outcome> + 'static,
        E: HandlerError<K> + 'static,
    {
        let alone = Alone::new(
            self.queue().codec().clone(),
            handler,
            self.queue().client().label().clone(),
        );
        let mut drained = Drained::default();
        loop {
            let (at, Claimed { deliveries, more, next, .. }) = self.claim().await;
            let none = deliveries.is_empty();
            for delivery in deliveries {
                if drained.handled.len() >= self.max_deliveries {
                    self.settle(&delivery, Settle::Release, Vec::new(), None).await;
                    fail(&gave_up(&drained));
                }
                drained.handled.push(self.handle(&alone, at, delivery).await);
            }
            match next {
                _ if !none || more => {}
                Some(next) if next > at && next <= end => self.move_to(next),
                _ => return drained,
            }
        }
    }

    /// Claims one message at a time: handling the first can affect the second.
    async fn claim(&self) -> (Timestamp, Claimed) {
        let claim_id = ClaimId::from_bytes(*Uuid::new_v4().as_bytes());
        let lease = Millis::saturating(limits::MAX_LEASE_MS);
        let consumer = match ConsumerName::new("delayline::testing") {
            Ok(consumer) => consumer,
            Err(violation) => fail(&violation.to_string()),
        };
        match self.apply(Op::Claim(Claim::new(consumer, claim_id, 1, lease))).await {
            Applied { at, reply: Reply::Claim(claimed), .. } => (at, claimed),
            _ => fail("the reply to a claim belongs to another operation"),
        }
    }

    async fn handle(&self, alone: &Alone, at: Timestamp, delivery: Delivery) -> Handled {
        let info = &delivery.message.info;
        let (id, due, epoch) = (info.id.clone(), info.due, delivery.lease.epoch);
        let failures = info.failures.saturating_add(1);
        let outcome = alone.handle(delivery.clone(), at.since(due)).await;
        let wanted = delivery.message.headers.result_retention();
        let (end, messages, result) = outcome.clone().of(&id, wanted);
        let is_last = failures >= info.max_failures;
        let settle = end.settled(|error| {
            if is_last { Millis::ZERO } else { self.retry.longest_delay(failures, error) }
        });
        let status = self.settle(&delivery, settle, messages, result).await;
        Handled { id, epoch, due, at, outcome, status }
    }

    async fn settle(
        &self,
        delivery: &Delivery,
        outcome: Settle,
        messages: Vec<NewMessage>,
        result: Option<NewResult>,
    ) -> Option<Status> {
        let id = delivery.message.info.id.clone();
        let settlement = Settlement::new(id, delivery.lease, outcome);
        let op = match messages.is_empty() && result.is_none() {
            true => Op::Settle(vec![settlement]),
            false => Op::HandOff(vec![HandOff::new(settlement, messages).with_result(result)]),
        };
        let settled = match self.apply(op).await.reply {
            Reply::Settle(all) => all.first().copied(),
            Reply::HandOff(all) => all.first().map(|one| one.settled),
            _ => fail("the reply to a settlement belongs to another operation"),
        };
        match settled {
            Some(Settled::Done { status }) => Some(status),
            Some(Settled::AlreadyDone { ended }) => ended,
            _ => None,
        }
    }

    async fn apply(&self, op: Op) -> Applied {
        match self.queue().backend().apply(At::Server, &op).await {
            Ok(applied) => applied,
            Err(error) => fail(&error.to_string()),
        }
    }

    /// Moves the clock to this instant, never back.
    fn move_to(&self, instant: Timestamp) {
        self.advance(instant.since(self.recorder.now()));
    }
}

fn gave_up(drained: &Drained) -> String {
    let latest = drained.handled.iter().rev().take(MOST_TOLD);
    let latest: Vec<_> = latest.map(|handled| format!("\n  {handled}")).collect();
    format!(
        "after {} deliveries there is still more to handle; the latest:{}",
        drained.handled.len(),
        latest.concat()
    )
}

/// Enough to see what is going in circles.
const MOST_TOLD: usize = 5;
