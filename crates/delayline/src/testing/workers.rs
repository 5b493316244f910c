//! Handlers of several queues, run in virtual time.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use delayline_core::{
    Applied, At, Claim, ClaimId, Claimed, ConsumerName, Delivery, HandOff, List, Millis,
    NewMessage, NewResult, Op, Outcome as Settle, QueueBackend, QueueName, Reply, Save, Settled,
    Settlement, Status, Timestamp, limits,
};
use tokio::task::{Id, JoinSet};
use uuid::Uuid;

use super::TestQueue;
use super::assertion::fail;
use super::connection::TestConnection;
use super::drained::{Drained, Handled};
use crate::codec::Decode;
use crate::worker::HandlerError;
use crate::worker::{Alone, Gathering, Retry};
use crate::{Job, Outcome};

/// Handlers of several queues of a [`TestConnection`], from [`TestConnection::workers`].
///
/// They handle messages one after the other. While several queues have due messages, the next one
/// comes from the queue whose next message was due first. Within a queue, its own order counts.
/// With equal due times, the queue that was added first is first.
///
/// A [`batch_handler`](crate::worker::batch_handler) gets several messages at once: up to its
/// maximum of the messages due at the same instant. Its linger takes no time.
#[must_use = "they do nothing until they drain"]
pub struct TestWorkers {
    connection: TestConnection,
    lanes: Vec<Lane>,
}

/// A queue and its handler.
struct Lane {
    name: QueueName,
    /// As the queue's own calls use it, so that deliveries have their events and metrics.
    backend: Arc<dyn QueueBackend>,
    handler: Alone,
    retry: Retry,
    max_deliveries: usize,
}

impl TestConnection {
    /// Workers of several queues: [`add`](TestWorkers::add) each with its handler.
    pub fn workers(&self) -> TestWorkers {
        TestWorkers { connection: self.clone(), lanes: Vec::new() }
    }
}

impl TestWorkers {
    /// Adds a queue with a handler like that of [`Worker::run`](crate::Worker::run). Retries are
    /// those of the queue: [`TestQueue::retry`].
    ///
    /// # Panics
    ///
    /// If the queue belongs to another connection, which has another clock.
    #[track_caller]
    pub fn add<T, C, H, F, O, E, K>(mut self, queue: &TestQueue<T, C>, handler: H) -> Self
    where
        T: Send + 'static,
        C: Decode<T>,
        H: Fn(Job<T>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<O, E>> + Send + 'static,
        O: Into<Outcome> + 'static,
        E: HandlerError<K> + 'static,
    {
        if !self.connection.is(&queue.connection) {
            fail("the queue belongs to another TestConnection, which has another clock");
        }
        let plain = queue.queue();
        let label = plain.client().label().clone();
        self.lanes.push(Lane {
            name: queue.recorder.name().clone(),
            backend: Arc::clone(plain.backend()),
            handler: Alone::new(Arc::clone(plain.encoding()), handler, label),
            retry: queue.retry.clone(),
            max_deliveries: queue.max_deliveries,
        });
        self
    }

    /// Handles the messages that are due or become due meanwhile. The clock stands still, unless a
    /// handler moves it. Otherwise like [`TestQueue::drain_due`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the running handlers. Their messages stay leased for a day of the
    /// clock.
    ///
    /// # Panics
    ///
    /// After the most [`max_deliveries`](TestQueue::max_deliveries) of all queues. The text lists
    /// the latest.
    pub async fn drain_due(&self) -> Drained {
        Drain::of(self).until(self.connection.instant()).await
    }

    /// Handles the messages that become due within this time. Moves the clock from one due time to
    /// the next, and finally to the end of this time.
    ///
    /// # Cancel safety
    ///
    /// Like [`drain_due`](Self::drain_due). The clock stays where it is.
    ///
    /// # Panics
    ///
    /// Like [`drain_due`](Self::drain_due).
    pub async fn drain_for(&self, time: Duration) -> Drained {
        let time = Millis::try_from(time).unwrap_or(Millis::MAX);
        let end = self.connection.instant().after(time);
        let drained = Drain::of(self).until(end).await;
        self.move_to(end);
        drained
    }

    /// Handles all messages, including retries and follow-ups, and moves the clock from one due
    /// time to the next. Ends when nothing is scheduled or ready any more in queues that are not
    /// paused.
    ///
    /// # Cancel safety
    ///
    /// Like [`drain_due`](Self::drain_due). The clock stays where it is.
    ///
    /// # Panics
    ///
    /// Like [`drain_due`](Self::drain_due): for example if a message is snoozed forever.
    pub async fn drain(&self) -> Drained {
        Drain::of(self).until(Timestamp::MAX).await
    }

    /// Moves the clock to this instant, never back.
    fn move_to(&self, instant: Timestamp) {
        self.connection.advance(instant.since(self.connection.instant()));
    }
}

impl fmt::Debug for TestWorkers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queues: Vec<_> = self.lanes.iter().map(|lane| lane.name.as_str()).collect();
        f.debug_struct("TestWorkers").field("queues", &queues).finish_non_exhaustive()
    }
}

/// A drain in progress.
struct Drain<'a> {
    workers: &'a TestWorkers,
    handlers: JoinSet<Outcome>,
    /// In the order of the claims.
    running: Vec<Running<'a>>,
    gathering: Arc<Gathering>,
    drained: Drained,
}

struct Running<'a> {
    lane: &'a Lane,
    at: Timestamp,
    delivery: Delivery,
    task: Id,
    outcome: Option<Outcome>,
    /// Takes what the handler has saved.
    saved: Box<dyn Fn() -> Option<Save> + Send + Sync>,
}

/// What the queues have to handle.
enum Found<'a> {
    One(&'a Lane, Timestamp, Box<Delivery>),
    /// A claim has only buried messages; there may be more to claim.
    More,
    /// Nothing is due before this instant, if ever.
    None(Option<Timestamp>),
}

impl<'a> Drain<'a> {
    fn of(workers: &'a TestWorkers) -> Self {
        Self {
            workers,
            handlers: JoinSet::new(),
            running: Vec::new(),
            gathering: Arc::default(),
            drained: Drained::default(),
        }
    }

    async fn until(mut self, end: Timestamp) -> Drained {
        loop {
            match self.next().await {
                Found::One(lane, at, delivery) => {
                    self.start(lane, at, *delivery).await;
                    self.handle().await;
                }
                Found::More => {}
                // Batches have all messages that were due, and may make others due.
                Found::None(_) if !self.running.is_empty() => {
                    self.gathering.complete();
                    while !self.handlers.is_empty() {
                        self.join().await;
                    }
                    self.settle().await;
                }
                Found::None(Some(next)) if next <= end => self.workers.move_to(next),
                Found::None(_) => return self.drained,
            }
        }
    }

    /// Claims one message: handling it can affect the next.
    async fn next(&self) -> Found<'a> {
        let mut earliest = None;
        for lane in self.workers.in_due_order().await {
            let (at, claimed) = lane.claim().await;
            if let Some(delivery) = claimed.deliveries.into_iter().next() {
                return Found::One(lane, at, Box::new(delivery));
            }
            if claimed.more {
                return Found::More;
            }
            let next = claimed.next.filter(|next| *next > at);
            earliest = earliest.into_iter().chain(next).min();
        }
        Found::None(earliest)
    }

    async fn start(&mut self, lane: &'a Lane, at: Timestamp, delivery: Delivery) {
        let most = self.workers.lanes.iter().map(|lane| lane.max_deliveries).max().unwrap_or(0);
        if self.drained.handled.len() + self.running.len() >= most {
            let lease = delivery.lease;
            let settlement = Settlement::new(delivery.message.info.id, lease, Settle::Release);
            lane.settle(settlement, Vec::new(), None).await;
            fail(&self.gave_up());
        }
        if self.running.is_empty() {
            self.gathering = Arc::default();
        }
        let lateness = delivery.lateness(at);
        let (work, saved) = lane.handler.handle(delivery.clone(), lateness);
        let task = self.handlers.spawn(self.gathering.of(work)).id();
        let saved = Box::new(saved);
        self.running.push(Running { lane, at, delivery, task, outcome: None, saved });
    }

    /// Waits until each handler has ended or waits for further messages.
    async fn handle(&mut self) {
        while self.handlers.len() > self.gathering.waiting() {
            let gathering = Arc::clone(&self.gathering);
            tokio::select! {
                () = self.join() => {}
                () = gathering.changed() => {}
            }
        }
        self.settle().await;
    }

    /// Waits for the end of a handler.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    async fn join(&mut self) {
        let Some(ended) = self.handlers.join_next_with_id().await else { return };
        let (task, outcome) = match ended {
            Ok((task, outcome)) => (task, outcome),
            Err(error) => (error.id(), Alone::outcome(Err(error))),
        };
        if let Some(running) = self.running.iter_mut().find(|running| running.task == task) {
            running.outcome = Some(outcome);
        }
    }

    /// Settles the messages whose handlers have ended, in the order of their claims.
    async fn settle(&mut self) {
        for mut running in std::mem::take(&mut self.running) {
            match running.outcome.take() {
                Some(outcome) => {
                    let Running { lane, at, delivery, saved, .. } = running;
                    let handled = lane.end(at, &delivery, outcome, saved()).await;
                    self.drained.handled.push(handled);
                }
                None => self.running.push(running),
            }
        }
    }

    fn gave_up(&self) -> String {
        let several = self.workers.lanes.len() > 1;
        let mut text = format!(
            "after {} deliveries, some messages are still not handled; the latest deliveries:",
            self.drained.handled.len()
        );
        for handled in self.drained.handled.iter().rev().take(MOST_TOLD) {
            let queue = if several { format!("{}: ", handled.queue) } else { String::new() };
            text += &format!("\n  {queue}{handled}");
        }
        text
    }
}

impl TestWorkers {
    /// The queues: first the one whose next message was due first, last those without due messages.
    async fn in_due_order(&self) -> Vec<&Lane> {
        if let [lane] = &self.lanes[..] {
            return vec![lane];
        }
        let mut lanes = Vec::new();
        for lane in &self.lanes {
            let due = lane.next_due().await;
            lanes.push((due.is_none(), due, lane));
        }
        lanes.sort_by_key(|(is_last, due, _)| (*is_last, *due));
        lanes.into_iter().map(|(.., lane)| lane).collect()
    }
}

impl Lane {
    /// The due time of the next message, or `None` if no message is due.
    async fn next_due(&self) -> Option<Timestamp> {
        match self.apply(Op::List(List::new(Status::Ready, 1))).await.reply {
            Reply::List(page) => page.messages.first().map(|message| message.due),
            _ => fail("the reply to a list belongs to another operation"),
        }
    }

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

    /// Settles the message as its handler has ended.
    async fn end(
        &self,
        at: Timestamp,
        delivery: &Delivery,
        outcome: Outcome,
        save: Option<Save>,
    ) -> Handled {
        let info = &delivery.message.info;
        let (id, due, epoch) = (info.id.clone(), info.due, info.epoch);
        let failures = info.failures.saturating_add(1);
        let wanted = delivery.message.headers.result_retention();
        let (end, hold) = outcome.clone().held();
        let (end, messages, result) = end.of(&id, Some(&self.name), wanted);
        // As in a worker, the retry policy is not consulted after the last failure.
        let is_last = failures >= info.max_failures;
        let settle = end.settled(|error| {
            if is_last { Millis::ZERO } else { self.retry.longest_delay(failures, error) }
        });
        let settlement = Settlement::new(id.clone(), delivery.lease, settle).save(save).hold(hold);
        let status = self.settle(settlement, messages, result).await;
        Handled { queue: self.name.clone(), id, epoch, due, at, outcome, status }
    }

    async fn settle(
        &self,
        settlement: Settlement,
        messages: Vec<NewMessage>,
        result: Option<NewResult>,
    ) -> Option<Status> {
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
        match self.backend.apply(At::Server, &op).await {
            Ok(applied) => applied,
            Err(error) => fail(&error.to_string()),
        }
    }
}

/// Enough to recognize a cycle.
const MOST_TOLD: usize = 5;
