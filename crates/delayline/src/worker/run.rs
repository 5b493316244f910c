//! The worker's loop: one task that owns claims, handlers, leases and settlements.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use delayline_core::{
    Delivery, Jitter, Millis, Op, Outcome as Settling, Queueing, Reply, RetryPolicy, Settlement,
    Stats, Timestamp,
};
use tokio::task::{self, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};
use tracing::Instrument;

use super::builder::Config;
use super::claims::{Catch, Claims};
use super::control::Control;
use super::doorbell::Doorbell;
use super::flight::{Flight, Landed};
use super::handler::{Start, without_outcome};
use super::heart::{Grip, Heart, Held};
use super::settles::{Settles, count};
use super::stop::Stop;
use super::{CancelReason, Outcome, Summary};

/// A worker at work.
pub(super) struct Run {
    backend: Arc<dyn Queueing>,
    config: Config,
    start: Start,
    /// Dropped with the run, which ends the handlers, and so their heartbeats.
    handlers: JoinSet<Outcome>,
    heart: Heart,
    claims: Claims,
    settles: Settles,
    /// The question whether the queue is empty, and whether something has happened since it was
    /// asked last.
    emptiness: Flight,
    ask_again: bool,
    doorbell: Doorbell,
    stage: Stage,
    summary: Summary,
}

/// How far the end has come.
#[derive(Clone, Copy)]
enum Stage {
    /// Not at all.
    Working,
    /// Nothing new; handlers may finish.
    Draining { until: Instant },
    /// The handlers' tokens have fired.
    Cancelling { until: Instant },
    /// The handlers are gone; the last settlements go out.
    Ending { until: Instant },
}

impl Run {
    pub(super) fn new(backend: Arc<dyn Queueing>, config: Config, start: Start) -> Self {
        Self {
            handlers: JoinSet::new(),
            heart: Heart::new(config.lease),
            claims: Claims::new(),
            settles: Settles::new(),
            emptiness: Flight::default(),
            ask_again: false,
            doorbell: Doorbell::new(Arc::clone(&backend)),
            stage: Stage::Working,
            summary: Summary::default(),
            backend,
            config,
            start,
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
        tracing::debug!(consumer = ?self.config.consumer, "the worker starts");
        while !self.is_over(Instant::now()) {
            let wake = self.act(Instant::now());
            tokio::select! {
                () = &mut shutdown, if !shutting_down => {
                    shutting_down = true;
                    handle.stop(self.config.stop_grace);
                }
                deadline = stop.wished() => self.drain_until(deadline),
                Some(ended) = self.handlers.join_next_with_id() => self.ended(ended),
                landed = self.settles.flight.landed() => self.settled(landed),
                landed = self.heart.flight.landed() => self.heart.landed(landed),
                landed = self.claims.flight.landed() => self.claimed(landed),
                landed = self.emptiness.landed() => self.looked(landed),
                () = self.doorbell.rang(), if self.room() > 0 => {
                    self.claims.hurry(Instant::now(), Duration::ZERO);
                }
                () = sleep_until(wake) => {}
            }
        }
        self.summary.unsettled = count(self.settles.len().saturating_add(self.handlers.len()));
        tracing::debug!(summary = ?self.summary, "the worker has stopped");
        self.summary
    }

    /// Sends whatever it is time for; answers when the next thing is.
    fn act(&mut self, now: Instant) -> Instant {
        self.advance(now);
        self.settles.send_at(now, &self.backend);
        self.heart.beat_at(now, &self.backend);
        let room = self.room();
        // While nothing can be settled, what would be claimed could not be settled either; and
        // what waits to be settled must not run out because a claim takes it back first.
        let claiming = !self.settles.is_failing();
        if claiming {
            self.claims.send_at(now, room, &self.config, &self.backend);
        }
        self.doorbell.listen_if(claiming && room > 0);
        if self.wants_to_know_if_empty() {
            self.ask_again = false;
            self.emptiness.launch(&self.backend, Op::Stats);
        }
        let stage = match self.stage {
            Stage::Working => None,
            Stage::Draining { until } | Stage::Cancelling { until } | Stage::Ending { until } => {
                Some(until)
            }
        };
        let claim = if claiming { self.claims.next(room) } else { None };
        let times = [stage, claim, self.settles.next(), self.heart.next()];
        times.into_iter().flatten().min().unwrap_or_else(|| now + LONGEST_SLEEP)
    }

    /// Free slots that may be claimed for. Settlements are let to pile up only so far.
    fn room(&self) -> usize {
        let slots = self.config.concurrency;
        match self.stage {
            Stage::Working => slots
                .saturating_sub(self.handlers.len())
                .min(slots.saturating_mul(2).saturating_sub(self.settles.len())),
            Stage::Draining { .. } | Stage::Cancelling { .. } | Stage::Ending { .. } => 0,
        }
    }

    fn claimed(&mut self, landed: Landed) {
        let Some(Catch { claimed, at, sent_at }) = self.claims.landed(landed) else { return };
        self.ask_again = true;
        for delivery in claimed.deliveries {
            if matches!(self.stage, Stage::Working) {
                self.begin(delivery, at, sent_at);
            } else {
                self.settles.push(Settlement {
                    id: delivery.message.info.id,
                    lease: delivery.lease,
                    outcome: Settling::Release,
                });
            }
        }
    }

    fn begin(&mut self, delivery: Delivery, at: Timestamp, sent_at: Instant) {
        let info = &delivery.message.info;
        let control = Arc::new(Control::default());
        let held = Held {
            id: info.id.clone(),
            lease: delivery.lease,
            failures: info.failures,
            control: Arc::clone(&control),
            since: sent_at,
            grip: Grip::Firm,
        };
        let span = tracing::debug_span!("job", id = %info.id, epoch = delivery.lease.epoch);
        let lateness = at.since(info.due);
        let work = (self.start)(delivery, lateness, control).instrument(span);
        let task = self.handlers.spawn(work);
        self.heart.insert(task.id(), held);
    }

    /// Settles what handlers have answered.
    fn ended(&mut self, ended: Result<(task::Id, Outcome), JoinError>) {
        self.ended_one(ended);
        while let Some(ended) = self.handlers.try_join_next_with_id() {
            self.ended_one(ended);
        }
    }

    fn ended_one(&mut self, ended: Result<(task::Id, Outcome), JoinError>) {
        let (task, outcome) = match ended {
            Ok((task, outcome)) => (task, outcome),
            Err(error) => (error.id(), without_outcome(error)),
        };
        let Some(Held { id, lease, failures, grip, .. }) = self.heart.remove(task) else { return };
        if let Outcome::Retry { error, .. } = &outcome {
            tracing::info!(%id, epoch = lease.epoch, failures = failures + 1, error, "failed");
        }
        if grip == Grip::Gone {
            self.summary.lost = self.summary.lost.saturating_add(1);
            return;
        }
        let outcome =
            outcome.settled(|| retry_delay(&self.config.retry, failures.saturating_add(1)));
        self.settles.push(Settlement { id, lease, outcome });
    }

    fn settled(&mut self, landed: Landed) {
        if let Some(again) = self.settles.landed(landed, &mut self.summary) {
            self.claims.hurry(Instant::now(), again);
        }
        self.ask_again = true;
    }

    fn wants_to_know_if_empty(&self) -> bool {
        self.config.until_empty
            && self.ask_again
            && matches!(self.stage, Stage::Working)
            && self.emptiness.is_idle()
            && self.is_idle()
    }

    fn looked(&mut self, landed: Landed) {
        match landed.result.map(|applied| applied.reply) {
            Ok(Reply::Stats(Stats { scheduled: 0, ready: 0, leased: 0, .. })) if self.is_idle() => {
                self.stage = Stage::Ending { until: Instant::now() + LAST_SETTLEMENTS };
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "the queue could not be counted"),
        }
    }

    fn is_idle(&self) -> bool {
        self.handlers.is_empty() && self.settles.len() == 0
    }

    fn drain_until(&mut self, deadline: Instant) {
        match &mut self.stage {
            Stage::Working => {
                tracing::debug!(running = self.handlers.len(), "the worker stops");
                self.stage = Stage::Draining { until: deadline };
            }
            Stage::Draining { until } => *until = deadline,
            Stage::Cancelling { .. } | Stage::Ending { .. } => {}
        }
    }

    /// Goes on to the next stage of the end, if it is time.
    fn advance(&mut self, now: Instant) {
        if let Stage::Draining { until } = self.stage
            && now >= until
        {
            self.heart.cancel_all(CancelReason::Stopping);
            self.stage = Stage::Cancelling { until: now + AFTER_TOKENS };
        }
        let over = match self.stage {
            Stage::Working | Stage::Ending { .. } => false,
            Stage::Draining { .. } => self.handlers.is_empty(),
            Stage::Cancelling { until } => self.handlers.is_empty() || now >= until,
        };
        if over {
            // A handler that blocks its thread cannot be ended; nobody waits for it.
            self.handlers.abort_all();
            self.stage = Stage::Ending { until: now + LAST_SETTLEMENTS };
        }
    }

    fn is_over(&self, now: Instant) -> bool {
        match self.stage {
            Stage::Ending { until } => now >= until || (self.is_idle() && !self.claims.is_open()),
            Stage::Working | Stage::Draining { .. } | Stage::Cancelling { .. } => false,
        }
    }
}

/// The wait after the `failures`-th failure. Decorrelated jitter builds on the wait before, which
/// nobody has kept: a walk of as many random steps arrives at the same spread.
fn retry_delay(policy: &RetryPolicy, failures: u32) -> Millis {
    let steps = match policy.jitter {
        Jitter::Decorrelated => failures.min(LONGEST_WALK),
        Jitter::None | Jitter::Full => 1,
    };
    (0..steps).fold(Millis::ZERO, |previous, _| policy.delay(failures, previous, fastrand::u64(..)))
}

/// Handlers have this long after their tokens have fired.
const AFTER_TOKENS: Duration = Duration::from_secs(5);
/// The last settlements have this long.
const LAST_SETTLEMENTS: Duration = Duration::from_secs(5);
const LONGEST_SLEEP: Duration = Duration::from_secs(3_600);
/// The spread has reached its cap long before.
const LONGEST_WALK: u32 = 64;
