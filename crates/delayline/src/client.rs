//! The one place where the calls of a queue are repeated.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use delayline_core::{Applied, At, Class, Durability, Op, QueueName, Queueing};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::Error;
use crate::events::EventSink;
use crate::merge::Merger;
use crate::pause::Pauses;
use crate::telemetry::{self, Label, Observed, TraceContext};

/// A backend, for how long to try, and what the clones of a queue share.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    /// It tells what passes through it.
    pub(crate) backend: Arc<dyn Queueing>,
    patience: Duration,
    durability: Durability,
    /// Of its sends, and those of clones of the same durability: none waits for another one's
    /// confirmation.
    merger: Merger,
    shared: Arc<Shared>,
}

struct Shared {
    /// As it was given.
    plain: Arc<dyn Queueing>,
    label: Label,
    events: EventSink,
    mergers: Mutex<BTreeMap<Durability, Merger>>,
    trace_source: Option<TraceSource>,
    /// When a worker has seen last that nothing was due.
    looks: watch::Sender<Instant>,
}

pub(crate) type TraceSource = Arc<dyn Fn() -> Option<TraceContext> + Send + Sync>;

impl Client {
    pub(crate) fn new(backend: Arc<dyn Queueing>) -> Self {
        let (label, events) = (
            Label::new(backend.queue_name().map_or("unnamed", QueueName::as_str)),
            EventSink::default(),
        );
        Self::with(backend, label, events, None, DEFAULT_PATIENCE)
    }

    fn with(
        plain: Arc<dyn Queueing>,
        label: Label,
        events: EventSink,
        trace_source: Option<TraceSource>,
        patience: Duration,
    ) -> Self {
        let observed = Observed::new(Arc::clone(&plain), label.clone(), events.clone());
        let (merger, durability) = (Merger::default(), Durability::None);
        let mergers = Mutex::new(BTreeMap::from([(durability, merger.clone())]));
        let looks = watch::Sender::new(Instant::now());
        let shared = Arc::new(Shared { plain, label, events, mergers, trace_source, looks });
        Self { backend: Arc::new(observed), patience, durability, merger, shared }
    }

    /// The same with another patience. It groups its sends apart.
    pub(crate) fn patient(self, patience: Duration) -> Self {
        let Shared { plain, label, events, trace_source, .. } = &*self.shared;
        let (plain, label, events) = (Arc::clone(plain), label.clone(), events.clone());
        Self::with(plain, label, events, trace_source.clone(), patience).durable(self.durability)
    }

    /// The same with a source of trace contexts. It groups its sends apart.
    pub(crate) fn traced(self, source: TraceSource) -> Self {
        let Shared { plain, label, events, .. } = &*self.shared;
        let (plain, label, events) = (Arc::clone(plain), label.clone(), events.clone());
        Self::with(plain, label, events, Some(source), self.patience).durable(self.durability)
    }

    /// The same with another durability. It groups its sends apart.
    pub(crate) fn durable(mut self, durability: Durability) -> Self {
        // Nothing panics while it is locked.
        let mut mergers = self.shared.mergers.lock().unwrap_or_else(PoisonError::into_inner);
        self.merger = mergers.entry(durability).or_default().clone();
        drop(mergers);
        self.durability = durability;
        self
    }

    pub(crate) fn label(&self) -> &Label {
        &self.shared.label
    }

    pub(crate) fn events(&self) -> &EventSink {
        &self.shared.events
    }

    pub(crate) const fn merger(&self) -> &Merger {
        &self.merger
    }

    /// Where the workers of clones of one queue tell each other when one has seen that nothing was
    /// due, so that one of them looks and not all.
    pub(crate) fn looks(&self) -> &watch::Sender<Instant> {
        &self.shared.looks
    }

    /// The context of whoever sends a message now.
    pub(crate) fn trace_context(&self) -> Option<TraceContext> {
        self.shared.trace_source.as_ref().and_then(|source| source())
    }

    /// When a call that begins now gives up.
    pub(crate) fn give_up(&self) -> Instant {
        Instant::now() + self.patience.min(LONGEST_PATIENCE)
    }

    /// Sends `op` until its outcome is known, within bounds: see [`Tries`].
    ///
    /// # Errors
    ///
    /// That of [`Tries::failed`].
    pub(crate) async fn apply(&self, op: &Op) -> Result<Applied, Error> {
        let mut tries = Tries::until(self.give_up());
        loop {
            match self.apply_once(op).await {
                Ok(applied) => return Ok(applied),
                Err(error) => self.pause(op, tries.failed(error)?).await,
            }
        }
    }

    /// Sends `op` once. It is answered when it is as durable as it has to be.
    pub(crate) async fn apply_once(&self, op: &Op) -> Result<Applied, delayline_core::Error> {
        if self.durability == Durability::None || !op.changes_for_good() {
            return self.backend.apply(At::Server, op).await;
        }
        self.backend.apply_durably(At::Server, op, self.durability).await
    }

    /// Waits before `op` is sent again.
    pub(crate) async fn pause(&self, op: &Op, pause: Duration) {
        tracing::debug!(op = op.name(), ?pause, "trying again");
        telemetry::repeated(self.label(), op.name());
        sleep(pause).await;
    }
}

/// The source of trace contexts is not shown.
impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("label", &self.label).finish_non_exhaustive()
    }
}

/// The failed tries of one operation.
///
/// What was not executed is sent again after a pause, until the time is over. What may have been
/// executed is sent again unchanged, which by [`Op`]'s contract has no second effect, up to
/// [`MAX_UNKNOWN`] times. No try begins after the time is over; a try under way is bounded by the
/// backend.
#[derive(Debug)]
pub(crate) struct Tries {
    give_up: Instant,
    pauses: Pauses,
    /// The latest ambiguous failure.
    unknown: Option<delayline_core::Error>,
    unknowns: usize,
}

impl Tries {
    pub(crate) const fn until(give_up: Instant) -> Self {
        let pauses = Pauses::new(FIRST_PAUSE, LONGEST_PAUSE);
        Self { give_up, pauses, unknown: None, unknowns: 0 }
    }

    /// Whether an earlier try may have been executed.
    pub(crate) const fn repeated(&self) -> bool {
        self.unknowns > 0
    }

    /// How long to wait before the next try.
    ///
    /// # Errors
    ///
    /// There is no next try, and this is the error. If any try may have been executed it is that
    /// one's, because the refusal of a later try does not tell what became of it.
    pub(crate) fn failed(&mut self, error: delayline_core::Error) -> Result<Duration, Error> {
        let class = error.class();
        let pause = self.pauses.next();
        if class == Class::Ambiguous {
            self.unknowns += 1;
            self.unknown = Some(error.clone());
        }
        let over = class == Class::Rejected
            || self.unknowns >= MAX_UNKNOWN
            || Instant::now() + pause >= self.give_up;
        if over { Err(self.unknown.take().unwrap_or(error).into()) } else { Ok(pause) }
    }
}

const DEFAULT_PATIENCE: Duration = Duration::from_secs(10);
const MAX_UNKNOWN: usize = 5;
/// Far enough, and no instant overflows.
const LONGEST_PATIENCE: Duration = Duration::from_secs(365 * 24 * 3_600);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(1);
