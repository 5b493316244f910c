//! The one place where the calls of a queue are repeated.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use delayline_core::limits::{FINISHED_RETENTION_MS, JOURNAL_RETENTION_MS};
use delayline_core::{
    Applied, At, Backoff, Durability, ErrorClass, MessageId, MessageInfo, NewMessage, Op,
    QueueBackend, QueueName, Violation,
};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::Error;
use crate::after::gate::Gate;
use crate::after::siblings::{Reach, Siblings};
use crate::cancels::Cancels;
use crate::events::EventSink;
use crate::registry::WorkerRegistry;
use crate::shards::{Ids, Opened, Shards, place_of};
use crate::telemetry::{self, Label, Observed, TraceContext};

/// A backend, the options of a queue, and the state that all its clones share.
#[derive(Clone)]
pub(crate) struct Client {
    /// Records telemetry of every call.
    pub(crate) backend: Arc<dyn QueueBackend>,
    patience: Duration,
    durability: Durability,
    trace_source: Option<TraceSource>,
    shared: Arc<Shared>,
}

struct Shared {
    queue_name: Option<QueueName>,
    ids: Ids,
    shards: Option<Arc<Shards>>,
    label: Label,
    events: EventSink,
    cancels: Cancels,
    registry: WorkerRegistry,
    siblings: Siblings,
    reach: Reach,
    /// When a worker last saw that nothing was due.
    looks: watch::Sender<Instant>,
}

pub(crate) type TraceSource = Arc<dyn Fn() -> Option<TraceContext> + Send + Sync>;

impl Client {
    /// Creates a client that learns of other clones' cancels through `cancels`. `registry` has the
    /// workers of its queue, and `siblings` the other queues of its connection.
    pub(crate) fn new(
        opened: Opened,
        cancels: Cancels,
        registry: WorkerRegistry,
        siblings: Siblings,
    ) -> Self {
        let Opened { backend, ids, shards } = opened;
        let queue_name = backend.queue_name().cloned();
        let label = Label::new(queue_name.as_ref().map_or("unnamed", QueueName::as_str));
        let events = EventSink::default();
        let reach = Reach::new(backend, siblings.clone());
        let gate = Arc::new(Gate::new(reach.clone()));
        let observed = Observed::new(gate, label.clone(), events.clone(), cancels.clone());
        let looks = watch::Sender::new(Instant::now());
        let shared = Shared {
            queue_name,
            ids,
            shards,
            label,
            events,
            cancels,
            registry,
            siblings,
            reach,
            looks,
        };
        Self {
            backend: Arc::new(observed),
            patience: DEFAULT_PATIENCE,
            durability: Durability::None,
            trace_source: None,
            shared: Arc::new(shared),
        }
    }

    /// Returns the client with another patience.
    pub(crate) fn patient(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Returns the client with a source of trace contexts.
    pub(crate) fn traced(self, source: TraceSource) -> Self {
        Self { trace_source: Some(source), ..self }
    }

    /// Returns the client of the shard that a message was sent to.
    pub(crate) fn near(&self, info: &MessageInfo) -> Self {
        let Shared { shards, label, events, cancels, .. } = &*self.shared;
        let Some(shards) = shards else { return self.clone() };
        let shard = shards.near(info);
        let observed = Observed::new(shard, label.clone(), events.clone(), cancels.clone());
        Self { backend: Arc::new(observed), ..self.clone() }
    }

    /// Returns the client with another durability.
    pub(crate) fn durable(self, durability: Durability) -> Self {
        Self { durability, ..self }
    }

    pub(crate) fn label(&self) -> &Label {
        &self.shared.label
    }

    /// The queue's name, or `None` if the backend has none.
    pub(crate) fn queue_name(&self) -> Option<&QueueName> {
        self.shared.queue_name.as_ref()
    }

    /// An id for a message that the caller gives none.
    pub(crate) fn generate_id(&self) -> Result<MessageId, Violation> {
        self.shared.ids.generate()
    }

    /// The number of shards, or 1 for a queue without.
    pub(crate) fn shards(&self) -> usize {
        self.shared.ids.shards()
    }

    /// The shard that a new message is for, or 0.
    pub(crate) fn shard_of(&self, message: &NewMessage) -> usize {
        match self.shards() {
            1 => 0,
            shards => place_of(message.group.as_ref(), &message.id, shards),
        }
    }

    /// Why claims go without some shards, if they do.
    pub(crate) fn failure_of_shards(&self) -> Option<delayline_core::Error> {
        self.shared.shards.as_ref()?.failure_of_claims()
    }

    pub(crate) fn events(&self) -> &EventSink {
        &self.shared.events
    }

    /// Through this, workers learn that messages were cancelled while they were leased.
    pub(crate) fn cancels(&self) -> &Cancels {
        &self.shared.cancels
    }

    /// The running workers of the connection's queues.
    pub(crate) fn registry(&self) -> &WorkerRegistry {
        &self.shared.registry
    }

    /// Returns `true` if both are of one queue and its clones, with the same options.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
            && (self.patience, self.durability) == (other.patience, other.durability)
    }

    /// The queues of the connection.
    pub(crate) fn siblings(&self) -> &Siblings {
        &self.shared.siblings
    }

    /// The queue and those of the connection, past telemetry and the gate.
    pub(crate) fn reach(&self) -> &Reach {
        &self.shared.reach
    }

    /// The workers of one queue's clones share here that nothing was due, so that only one of them
    /// polls.
    pub(crate) fn looks(&self) -> &watch::Sender<Instant> {
        &self.shared.looks
    }

    /// The trace context for a message that is sent now.
    pub(crate) fn trace_context(&self) -> Option<TraceContext> {
        self.trace_source.as_ref().and_then(|source| source())
    }

    pub(crate) const fn patience(&self) -> Duration {
        self.patience
    }

    /// When a call that starts now gives up.
    pub(crate) fn give_up(&self) -> Instant {
        Instant::now() + bounded(self.patience)
    }

    /// Sends `op` until its outcome is known, within bounds: see [`Tries`].
    ///
    /// # Errors
    ///
    /// The error of [`Tries::failed`].
    pub(crate) async fn apply(&self, op: &Op) -> Result<Applied, Error> {
        let mut tries = Tries::of(op, self.give_up());
        loop {
            match self.apply_once(op).await {
                Ok(applied) => return Ok(applied),
                Err(error) => self.pause(op, tries.failed(error)?).await,
            }
        }
    }

    /// Sends `op` once, with the durability that the queue requests.
    pub(crate) async fn apply_once(&self, op: &Op) -> Result<Applied, delayline_core::Error> {
        match self.durability_of(op) {
            Durability::None => self.backend.apply(At::Server, op).await,
            durability => self.apply_once_with(op, durability).await,
        }
    }

    /// The durability that the queue requests for `op`.
    pub(crate) const fn durability_of(&self, op: &Op) -> Durability {
        if op.changes_for_good() { self.durability } else { Durability::None }
    }

    /// Sends `op` once, with this durability. [`Durability::None`] is a request, too: see
    /// [`Backend::apply_durably`](delayline_core::Backend::apply_durably).
    pub(crate) async fn apply_once_with(
        &self,
        op: &Op,
        durability: Durability,
    ) -> Result<Applied, delayline_core::Error> {
        self.backend.apply_durably(At::Server, op, durability).await
    }

    /// Waits before `op` is sent again.
    pub(crate) async fn pause(&self, op: &Op, pause: Duration) {
        tracing::debug!(op = op.name(), ?pause, "trying again");
        telemetry::repeated(self.label(), op.name());
        sleep(pause).await;
    }
}

/// Leaves out the source of trace contexts, and of the shared part all but the queue's name.
impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("backend", &self.backend)
            .field("patience", &self.patience)
            .field("durability", &self.durability)
            .field("label", &self.shared.label)
            .finish_non_exhaustive()
    }
}

/// The failed attempts of one operation.
///
/// An operation that was not executed is sent again after a pause, until the time limit. An
/// operation that may have been executed is sent again unchanged, up to [`MAX_UNKNOWN`] times: by
/// the contract of [`Op`], this has no second effect as long as the queue remembers the first one,
/// so then the time limit is at most [half of that](remembered). No attempt starts after the time
/// limit; the backend limits the duration of an attempt in progress.
#[derive(Debug)]
pub(crate) struct Tries {
    give_up: Instant,
    /// How long an operation that may have been executed can be sent again.
    repeatable: Duration,
    backoff: Backoff,
    /// The latest ambiguous failure.
    unknown: Option<delayline_core::Error>,
    unknowns: usize,
}

impl Tries {
    /// The attempts of an operation that changes nothing.
    pub(crate) const fn until(give_up: Instant) -> Self {
        let repeatable = LONGEST_PATIENCE;
        Self { give_up, repeatable, backoff: BACKOFF, unknown: None, unknowns: 0 }
    }

    /// The attempts of `op`.
    pub(crate) fn of(op: &Op, give_up: Instant) -> Self {
        let repeatable = if op.is_read_only() { LONGEST_PATIENCE } else { remembered(op) / 2 };
        Self { repeatable, ..Self::until(give_up) }
    }

    /// No attempt starts after this.
    pub(crate) const fn give_up(&self) -> Instant {
        self.give_up
    }

    /// Whether an earlier attempt may have been executed.
    pub(crate) const fn repeated(&self) -> bool {
        self.unknowns > 0
    }

    /// Returns how long to wait before the next attempt.
    ///
    /// # Errors
    ///
    /// If there is no next attempt. The error is this one, unless an earlier attempt may have been
    /// executed: then it is that attempt's, because a later refusal says nothing about it.
    pub(crate) fn failed(&mut self, error: delayline_core::Error) -> Result<Duration, Error> {
        let pause = self.backoff.next(fastrand::u32(..));
        self.failed_until(error, Instant::now() + pause)?;
        Ok(pause)
    }

    /// Like [`failed`](Self::failed), for an operation whose next attempt would be then.
    ///
    /// # Errors
    ///
    /// Like [`failed`](Self::failed).
    pub(crate) fn failed_until(
        &mut self,
        error: delayline_core::Error,
        next: Instant,
    ) -> Result<(), Error> {
        let class = error.class();
        if class == ErrorClass::Ambiguous {
            if self.unknowns == 0 {
                self.give_up = self.give_up.min(Instant::now() + self.repeatable);
            }
            self.unknowns += 1;
            self.unknown = Some(error.clone());
        }
        // Without a runtime, there is no timer for the pause.
        let over = class == ErrorClass::Rejected
            || self.unknowns >= MAX_UNKNOWN
            || next >= self.give_up
            || Handle::try_current().is_err();
        if over { Err(self.reported(error)) } else { Ok(()) }
    }

    /// The error that a caller gets whose latest attempt failed with this one.
    pub(crate) fn reported(&self, error: impl Into<Error>) -> Error {
        self.unknown.clone().map_or_else(|| error.into(), Error::from)
    }
}

/// How long a queue remembers at least what `op` has done. A message that it has created may finish
/// at once, and then be forgotten.
const fn remembered(op: &Op) -> Duration {
    match op {
        Op::Claim(_) => Duration::from_millis(JOURNAL_RETENTION_MS),
        _ => Duration::from_millis(FINISHED_RETENTION_MS),
    }
}

/// The patience, so that no instant overflows.
pub(crate) fn bounded(patience: Duration) -> Duration {
    patience.min(LONGEST_PATIENCE)
}

const DEFAULT_PATIENCE: Duration = Duration::from_secs(10);
const MAX_UNKNOWN: usize = 5;
/// Long enough, and no instant overflows.
const LONGEST_PATIENCE: Duration = Duration::from_secs(365 * 24 * 3_600);
/// Pauses between attempts.
pub(crate) const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));
