//! The worker's loop: performs the actions of the state machine, and reports their results to it.

use std::collections::HashMap;
use std::future::{Future, pending};
use std::num::NonZeroU16;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use delayline_core::worker::{Action, Machine, Moment, Plan, QueuePlan, Slot};
use delayline_core::{
    Applied, Delivery, Durability, Error, ErrorClass, ErrorKind, Extended, MessageId, Millis, Op,
    Reply, Timestamp, Wakeup,
};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::task::{self, AbortHandle, JoinError, JoinSet};
use tokio::time::Instant;
use tracing::{Instrument, Span};
use uuid::Uuid;

use super::complaints::{Complaints, Of};
use super::config::Config;
use super::control::Control;
use super::handler::{Start, without_outcome};
use super::saves::{Pending, Saves};
use super::stop::Stop;
use super::stuck::Stuck;
use super::{CancelReason, Outcome, Summary};
use crate::client::Client;
use crate::events::EventKind;
use crate::registry::{Registration, process_id};
use crate::shards::epoch_of;
use crate::telemetry;
use crate::timer::sleep_until;

/// One queue of a run.
pub(super) struct Lane {
    pub(super) client: Client,
    pub(super) config: Config,
    pub(super) weight: NonZeroU16,
    pub(super) start: Start,
}

/// A running worker, on one or several queues.
pub(super) struct Run {
    machine: Machine,
    /// Maximum number of handlers of all queues together.
    slots: usize,
    lanes: Vec<Lane>,
    /// Dropped with the run, which ends the handlers; dropping the machine ends their lease
    /// renewals.
    handlers: JoinSet<Outcome>,
    running: HashMap<task::Id, Running>,
    tasks: HashMap<Slot, task::Id>,
    calls: FuturesUnordered<Pin<Box<dyn Future<Output = Report> + Send>>>,
    /// The slots of handlers that have saved something.
    savers: UnboundedReceiver<Slot>,
    saver: UnboundedSender<Slot>,
    started: Instant,
    complaints: Complaints,
    until_empty: bool,
    /// How long handlers may continue after a stop.
    grace: Duration,
}

/// A running handler.
struct Running {
    slot: Slot,
    id: MessageId,
    epoch: u64,
    failures: u32,
    max_failures: u32,
    /// How long the sender wants the result to be kept, if it does.
    result_retention: Option<Duration>,
    control: Arc<Control>,
    abort: AbortHandle,
    span: Span,
    since: Instant,
}

/// The result of a call.
enum Report {
    Answer { queue: usize, op: Op, result: Result<Applied, Error> },
    Waited { queue: usize, result: Result<bool, Error> },
    Rung { queue: usize },
    Looked { queue: usize, looks: watch::Receiver<Instant> },
    Cancelled { queue: usize, id: MessageId, cancels: UnboundedReceiver<MessageId> },
}

impl Lane {
    fn plan(&self) -> QueuePlan {
        self.config.queue_plan(self.weight, self.client.shards() > 1)
    }
}

impl Run {
    /// Ends on empty queues if all of them are configured so.
    pub(super) fn new(slots: usize, lanes: Vec<Lane>) -> Self {
        let until_empty = lanes.iter().all(|lane| lane.config.until_empty);
        let grace = lanes.iter().map(|lane| lane.config.stop_grace).max();
        let (saver, savers) = unbounded_channel();
        let plan = Plan { slots, queues: lanes.iter().map(Lane::plan).collect(), until_empty };
        Self {
            machine: Machine::new(plan, seed()),
            slots,
            lanes,
            handlers: JoinSet::new(),
            running: HashMap::new(),
            tasks: HashMap::new(),
            calls: FuturesUnordered::new(),
            savers,
            saver,
            started: Instant::now(),
            complaints: Complaints::default(),
            until_empty,
            grace: grace.unwrap_or_default(),
        }
    }

    pub(super) async fn until(
        mut self,
        shutdown: impl Future<Output = ()>,
        mut stop: Stop,
    ) -> Summary {
        let handle = stop.handle();
        let mut shutdown = pin!(shutdown);
        let mut shutting_down = false;
        let _registrations = self.register();
        for (queue, lane) in self.lanes.iter().enumerate() {
            let consumer = &lane.config.consumer;
            tracing::debug!(queue = lane.client.label().as_str(), ?consumer, "worker started");
            self.listen(queue, lane.client.looks().subscribe());
            let cancels = lane.client.cancels().listen(lane.client.label().as_str());
            self.await_cancel(queue, cancels);
        }
        loop {
            self.act();
            if self.machine.is_over(self.now()) {
                break;
            }
            let latest = self.now().after(LONGEST_SLEEP);
            let wake = self.machine.wake_at().map_or(latest, |wake| wake.min(latest));
            let wake = self.started + wake.since_start();
            tokio::select! {
                () = &mut shutdown, if !shutting_down => {
                    shutting_down = true;
                    handle.stop(self.grace);
                }
                deadline = stop.wished() => {
                    tracing::debug!(running = self.handlers.len(), "worker stopping");
                    let deadline = deadline.saturating_duration_since(self.started);
                    self.machine.handle_stop(Moment::at(deadline));
                }
                Some(ended) = self.handlers.join_next_with_id() => self.ended(ended),
                Some(slot) = self.savers.recv() => self.save(slot),
                Some(report) = self.calls.next(), if !self.calls.is_empty() => self.reported(report),
                () = sleep_until(wake) => {}
            }
            // Settle all handlers that have ended by now in one call.
            while let Some(ended) = self.handlers.try_join_next_with_id() {
                self.ended(ended);
            }
        }
        let summary = self.machine.summary();
        tracing::debug!(?summary, "worker stopped");
        summary
    }

    /// Registers with the queues, until this is dropped.
    fn register(&self) -> Vec<Registration> {
        let number = |number| u32::try_from(number).unwrap_or(u32::MAX);
        let (run, slots) = (Uuid::new_v4(), number(self.slots));
        let enter = |lane: &Lane| {
            let (queue, handlers) = (lane.client.queue_name()?, lane.config.concurrency);
            Some(lane.client.registry().enter(run, slots, queue.clone(), number(handlers)))
        };
        self.lanes.iter().filter_map(enter).collect()
    }

    fn now(&self) -> Moment {
        Moment::at(self.started.elapsed())
    }

    fn act(&mut self) {
        let now = self.now();
        while let Some(action) = self.machine.poll(now) {
            match action {
                Action::Send { queue, op } => {
                    let durability = self.durability(queue, &op);
                    self.call(queue, async move |client| {
                        let result = client.apply_once_with(&op, durability).await;
                        Report::Answer { queue, op, result }
                    });
                }
                Action::Wait { queue, timeout } => self.call(queue, async move |client| {
                    let result = Wakeup::wait(&client.backend, timeout).await;
                    Report::Waited { queue, result }
                }),
                Action::Ring { queue } => self.call(queue, async move |client| {
                    if let Err(error) = client.backend.ring().await {
                        tracing::debug!(%error, "a hint could not be passed on");
                    }
                    Report::Rung { queue }
                }),
                Action::Start { slot, delivery, lateness } => {
                    self.begin(slot, *delivery, lateness);
                }
                Action::LateClaim { queue, at, ids, lease, round_trip } => {
                    self.late_claim(queue, at, &ids, lease, round_trip);
                }
                Action::SettledLate { id, lease, perhaps_done: false, .. } => {
                    tracing::warn!(%id, epoch = epoch_of(lease), "settled too late");
                }
                Action::SettledLate { id, lease, perhaps_done: true, .. } => tracing::info!(
                    %id,
                    epoch = epoch_of(lease),
                    "settled too late, or by an attempt whose reply was lost"
                ),
                Action::Cancel { slot, reason } => {
                    if let Some(running) = self.running_in(slot) {
                        running.cancel(reason);
                    }
                }
                Action::Abort { slot } => {
                    if let Some(running) = self.running_in(slot) {
                        running.abort.abort();
                    }
                }
                Action::Stuck { slot, running } => self.stuck(slot, running),
            }
        }
    }

    /// The durability that an operation of a queue requests.
    fn durability(&self, queue: usize, op: &Op) -> Durability {
        let Some(lane) = self.lanes.get(queue) else { return Durability::None };
        match op {
            Op::Claim(_) => lane.config.claim_durability,
            op => lane.client.durability_of(op),
        }
    }

    fn call<F>(&self, queue: usize, call: impl FnOnce(Client) -> F)
    where
        F: Future<Output = Report> + Send + 'static,
    {
        if let Some(lane) = self.lanes.get(queue) {
            self.calls.push(Box::pin(call(lane.client.clone())));
        }
    }

    /// Waits until another worker of this process has seen that nothing was due.
    fn listen(&self, queue: usize, mut looks: watch::Receiver<Instant>) {
        self.calls.push(Box::pin(async move {
            // It cannot fail: the queue's own client keeps the channel open.
            let _ = looks.changed().await;
            Report::Looked { queue, looks }
        }));
    }

    /// Waits until this process has cancelled a leased message.
    fn await_cancel(&self, queue: usize, mut cancels: UnboundedReceiver<MessageId>) {
        self.calls.push(Box::pin(async move {
            match cancels.recv().await {
                Some(id) => Report::Cancelled { queue, id, cancels },
                // It does not happen: the queue's own client keeps the channel open.
                None => pending().await,
            }
        }));
    }

    fn begin(&mut self, slot: Slot, delivery: Delivery, lateness: Duration) {
        let Some(lane) = self.lanes.get(slot.queue()) else { return };
        let info = &delivery.message.info;
        let (id, epoch) = (info.id.clone(), info.epoch);
        let (failures, max_failures) = (info.failures, info.max_failures);
        let control = Arc::new(Control::saving(Saves::of(slot, self.saver.clone())));
        let span = telemetry::process_span(lane.client.label().as_str(), &id, epoch);
        let result_retention = delivery.message.headers.result_retention();
        let work = (lane.start)(delivery, lateness, Arc::clone(&control));
        let abort = self.handlers.spawn(work.instrument(span.clone()));
        self.tasks.insert(slot, abort.id());
        let since = Instant::now();
        let task = abort.id();
        let running = Running {
            slot,
            id,
            epoch,
            failures,
            max_failures,
            result_retention,
            control,
            abort,
            span,
            since,
        };
        self.running.insert(task, running);
    }

    /// Takes what a handler has saved.
    fn save(&mut self, slot: Slot) {
        if let Some(Pending { progress, checkpoint }) =
            self.running_in(slot).and_then(|running| running.control.saves.take())
        {
            self.machine.handle_saved(slot, progress, checkpoint);
        }
    }

    fn late_claim(
        &self,
        queue: usize,
        at: Timestamp,
        ids: &[MessageId],
        lease: Millis,
        round_trip: Duration,
    ) {
        let Some(Lane { client, .. }) = self.lanes.get(queue) else { return };
        tracing::warn!(
            queue = client.label().as_str(),
            messages = ids.len(),
            %lease,
            ?round_trip,
            "the leases expired before the claim was answered, so the messages were released \
             unstarted; use a lease of several round trips"
        );
        for id in ids {
            client.events().tell(id, at, EventKind::NotStarted { lease: lease.into(), round_trip });
        }
    }

    fn running_in(&self, slot: Slot) -> Option<&Running> {
        self.tasks.get(&slot).and_then(|task| self.running.get(task))
    }

    fn stuck(&self, slot: Slot, running: Duration) {
        let hook = self.lanes.get(slot.queue()).and_then(|lane| lane.config.on_stuck.as_ref());
        let (Some(hook), Some(handler)) = (hook, self.running_in(slot)) else { return };
        hook.call(&Stuck {
            id: handler.id.clone(),
            epoch: handler.epoch,
            running,
            cancel_reason: handler.control.reason(),
        });
    }

    fn ended(&mut self, ended: Result<(task::Id, Outcome), JoinError>) {
        let (task, outcome) = match ended {
            Ok((task, outcome)) => (task, outcome),
            Err(error) => (error.id(), without_outcome(error)),
        };
        if let Some(slot) = self.running.get(&task).map(|running| running.slot) {
            self.save(slot);
        }
        let Some(running) = self.running.remove(&task) else { return };
        let Running { slot, id, epoch, result_retention, span, since, .. } = &running;
        let slot = *slot;
        self.tasks.remove(&slot);
        let Some(lane) = self.lanes.get(slot.queue()) else { return };
        let failures = running.failures.saturating_add(1);
        let is_cancelled = running.control.reason() == Some(CancelReason::Requested);
        let (outcome, hold) = outcome.held();
        let (outcome, messages, result) =
            outcome.of(id, lane.client.queue_name(), *result_retention);
        if let Outcome::Retry { error, .. }
        | Outcome::RetryAt { error, .. }
        | Outcome::Undecodable(error) = &outcome
        {
            if is_cancelled {
                tracing::info!(%id, epoch, error, "ended because the message is cancelled");
            } else {
                tracing::info!(%id, epoch, failures, error, "failed");
            }
        }
        let is_last = is_cancelled || failures >= running.max_failures;
        let outcome = outcome.settled(|error| {
            // Without a retry, no delay is needed.
            if is_last { Millis::ZERO } else { lane.config.retry.delay(failures, error) }
        });
        telemetry::handled(lane.client.label(), running.control.kind(), span, &outcome, *since);
        self.machine.handle_finished(slot, outcome, messages, result, hold);
    }

    /// Logs problems, and stops after a refusal if the run should end on empty queues.
    fn look_at(&mut self, queue: usize, op: &Op, result: &Result<Applied, Error>) {
        let of_shards = match (op, self.lanes.get(queue)) {
            (Op::Claim(_), Some(lane)) => lane.client.failure_of_shards(),
            _ => None,
        };
        // A claim succeeds without the shards that fail, and fails if only those are asked.
        if result.is_ok() || of_shards.is_none() {
            self.look_at_failure((queue, op.name(), false), result.as_ref().err());
        }
        self.look_at_failure((queue, op.name(), true), of_shards.as_ref());
        if let Ok(applied) = result {
            log_late(op, &applied.reply);
        }
    }

    fn look_at_failure(&mut self, of: Of, error: Option<&Error>) {
        let (queue, op, _) = of;
        let Some(error) = error else {
            if self.complaints.succeeded(of) {
                tracing::info!(op, "works again");
            }
            return;
        };
        let is_refused = error.class() == ErrorClass::Rejected;
        if self.complaints.failed(of, error.kind()) {
            if is_refused {
                tracing::error!(op, %error, "refused; trying again, logged each minute");
            } else {
                tracing::warn!(op, %error, "failed; trying again, logged each minute");
            }
            let hook = self.lanes.get(queue).and_then(|lane| lane.config.on_refusal.as_ref());
            if let Some(hook) = hook.filter(|_| is_refused) {
                hook.call(&error.clone().into());
            }
        }
        // A settlement beyond a limit is dropped and affects only its message.
        if self.until_empty && is_refused && !matches!(error.kind(), ErrorKind::Invalid(_)) {
            let deadline = self.started.elapsed().saturating_add(self.grace);
            self.machine.handle_stop(Moment::at(deadline));
        }
    }

    fn reported(&mut self, report: Report) {
        let now = self.now();
        match report {
            Report::Answer { queue, op, result } => {
                self.look_at(queue, &op, &result);
                if let Some(lane) = self.lanes.get(queue)
                    && has_left_nothing(&op, &result)
                {
                    // The same time that the state machine gets, so that it recognizes its own
                    // claim.
                    lane.client.looks().send_replace(self.started + now.since_start());
                }
                self.machine.handle_answer(now, queue, op, result);
            }
            Report::Waited { queue, result } => {
                if let Err(error) = &result {
                    tracing::debug!(%error, "hints are unavailable");
                }
                self.machine.handle_waited(now, queue, &result);
            }
            Report::Rung { queue } => self.machine.handle_rung(queue),
            Report::Cancelled { queue, id, cancels } => {
                self.machine.handle_cancel(queue, &id);
                self.await_cancel(queue, cancels);
            }
            Report::Looked { queue, mut looks } => {
                let looked = looks.borrow_and_update().saturating_duration_since(self.started);
                self.machine.handle_looked(Moment::at(looked), queue);
                self.listen(queue, looks);
            }
        }
    }
}

impl Running {
    fn cancel(&self, reason: CancelReason) {
        if reason == CancelReason::LeaseLost {
            tracing::warn!(id = %self.id, epoch = self.epoch, "the lease is lost");
        }
        self.control.cancel(reason);
    }
}

/// The seed of a machine of this process.
fn seed() -> [u8; 16] {
    let mut seed = Uuid::new_v4().into_bytes();
    for (byte, of_process) in seed.iter_mut().zip(process_id().as_bytes()) {
        *byte = *of_process;
    }
    seed
}

/// Whether a claim has seen that nothing else is due.
fn has_left_nothing(op: &Op, result: &Result<Applied, Error>) -> bool {
    match (op, result) {
        (Op::Claim(claim), Ok(Applied { reply: Reply::Claim(claimed), .. })) => {
            !claimed.more && claimed.deliveries.len() < claim.max
        }
        _ => false,
    }
}

/// Logs leases that could not be renewed.
fn log_late(op: &Op, reply: &Reply) {
    if let (Op::Extend(extend), Reply::Extend(extended)) = (op, reply) {
        for ((id, lease), extended) in extend.leases.iter().zip(extended) {
            if matches!(extended, Extended::Stale | Extended::Missing) {
                tracing::debug!(%id, epoch = epoch_of(*lease), "extended too late");
            }
        }
    }
}

/// Long enough, and no instant overflows.
const LONGEST_SLEEP: Duration = Duration::from_secs(365 * 24 * 3_600);
