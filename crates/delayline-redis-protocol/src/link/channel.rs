//! The one connection that carries all calls, replaced when it fails.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use delayline_core::{Error, ErrorKind};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout, timeout_at};

use super::backoff::ReconnectBackoff;
use super::connection_name::ConnectionName;
use super::dial::Dial;
use super::driver::{Connection as _, Driver};
use super::facts::Facts;
use super::health::{Health, health_after, lost, no_reply};
use super::suspicion::Suspicion;
use crate::{CallError, Value};

/// Minimum interval between two reconnects caused by a refusal: the name may take a while to
/// resolve to another server, and until then refusals are cheaper than a storm of connections.
const REFUSAL_PAUSE: Duration = Duration::from_secs(1);
/// How much longer than its limit an attempt to connect may take. Then its runtime is not being
/// run, as can happen between two calls of `block_on`.
const LATENESS: Duration = Duration::from_secs(1);

/// A connection and the facts about its server.
pub(crate) struct Held<C> {
    pub(crate) connection: C,
    /// What durable calls have learned about its server.
    pub(crate) facts: Facts,
    /// It has brought the reply of a call.
    served: AtomicBool,
    /// A probe runs.
    probed: AtomicBool,
}

impl<C> Held<C> {
    fn new(connection: C) -> Self {
        Self {
            connection,
            facts: Facts::default(),
            served: AtomicBool::new(false),
            probed: AtomicBool::new(false),
        }
    }
}

/// Holds the connection. All methods take `&self` and are safe to call from many tasks.
pub(crate) struct Channel<D: Driver> {
    shared: Arc<Shared<D>>,
    /// Raised when the server is slow to answer.
    suspicion: Option<Suspicion>,
}

struct Shared<D: Driver> {
    dial: Arc<Dial<D>>,
    /// The name of its connections.
    name: ConnectionName,
    state: Mutex<State<D>>,
}

struct State<D: Driver> {
    slot: Slot<D>,
    backoff: ReconnectBackoff,
    /// Until then a refusal changes nothing.
    refusals_ignored_until: Option<Instant>,
}

enum Slot<D: Driver> {
    Empty,
    /// An attempt runs in a separate task, so that it outlives callers that give up.
    Connecting(Attempt<Outcome<D>>),
    Connected(Arc<Held<D::Connection>>),
}

/// What a call finds.
enum Found<D: Driver> {
    Connection(Arc<Held<D::Connection>>),
    Attempt(Attempt<Outcome<D>>),
}

/// An attempt to connect. After `until`, another one takes its place.
#[derive(Clone)]
struct Attempt<O> {
    outcome: watch::Receiver<Option<O>>,
    until: Instant,
}

type Outcome<D> = Result<Arc<Held<<D as Driver>::Connection>>, Error>;

impl<D: Driver> Channel<D> {
    /// A channel whose connections get this name.
    pub(crate) fn new(
        dial: Arc<Dial<D>>,
        name: ConnectionName,
        suspicion: Option<Suspicion>,
    ) -> Self {
        let state = State {
            slot: Slot::Empty,
            backoff: ReconnectBackoff::default(),
            refusals_ignored_until: None,
        };
        Self { shared: Arc::new(Shared { dial, name, state: Mutex::new(state) }), suspicion }
    }

    /// The connection, made if there is none that works.
    ///
    /// # Errors
    ///
    /// The attempt failed, or it is too early for the next one.
    pub(crate) async fn get(&self) -> Result<Arc<Held<D::Connection>>, Error> {
        let Attempt { mut outcome, until } = match self.shared.current_or_attempt()? {
            Found::Connection(held) => return Ok(held),
            Found::Attempt(attempt) => attempt,
        };
        let ended = Suspicion::watch(self.suspicion.as_ref(), outcome.wait_for(Option::is_some));
        let ended = timeout_at(until, ended).await.ok().and_then(|seen| seen.ok()?.clone());
        match ended {
            Some(outcome) => outcome,
            // The runtime of the task that connected has ended, or is not being run.
            None => Err(self.shared.abandoned(&outcome)),
        }
    }

    /// Whether there is a connection to use, so that [`get`](Self::get) need not wait.
    pub(crate) fn is_connected(&self) -> bool {
        matches!(&self.shared.lock().slot, Slot::Connected(held) if !held.connection.is_closed())
    }

    /// Whether there is no connection, and no attempt to make one.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(&self.shared.lock().slot, Slot::Empty)
    }

    /// Sends one command over the connection, at most once.
    ///
    /// # Errors
    ///
    /// The server's refusal, or what happened to the connection.
    pub(crate) async fn request(
        &self,
        held: &Arc<Held<D::Connection>>,
        limit: Duration,
        command: &'static str,
        args: Vec<Bytes>,
    ) -> Result<Value, CallError> {
        let abandonment = self.probe_if_dropped(held, limit);
        let request = held.connection.request(command, args);
        let reply = self.within(limit, request).await;
        abandonment.disarm();
        let reply = reply.unwrap_or_else(|_| Err(no_reply(limit).into()));
        match &reply {
            Ok(_) => self.served(held),
            Err(error) => self.noted(held, error),
        }
        reply
    }

    /// Awaits a reply. A server that is slow to give it is doubted.
    ///
    /// # Errors
    ///
    /// It took longer than `limit`.
    pub(crate) async fn within<F: Future>(
        &self,
        limit: Duration,
        reply: F,
    ) -> Result<F::Output, Elapsed> {
        Suspicion::timeout(self.suspicion.as_ref(), limit, reply).await
    }

    /// The same for the reply to a command that waits for up to `wait`.
    ///
    /// # Errors
    ///
    /// It took longer than `limit`.
    pub(crate) async fn within_after<F: Future>(
        &self,
        wait: Duration,
        limit: Duration,
        reply: F,
    ) -> Result<F::Output, Elapsed> {
        Suspicion::timeout_of_wait(self.suspicion.as_ref(), wait, limit, reply).await
    }

    /// Whether the connection is still the one to use.
    pub(crate) fn uses(&self, held: &Arc<Held<D::Connection>>) -> bool {
        !held.connection.is_closed() && self.shared.lock().holds(held)
    }

    /// Stops using the connection.
    pub(crate) fn retire(&self, held: &Arc<Held<D::Connection>>) {
        self.shared.lock().retire(held);
    }

    /// The connection has brought the reply of a call.
    pub(crate) fn served(&self, held: &Held<D::Connection>) {
        if !held.served.load(Ordering::Relaxed) && !held.served.swap(true, Ordering::Relaxed) {
            self.shared.lock().backoff.served();
        }
    }

    /// Probes the connection if the call is dropped before it ends, because the call can then no
    /// longer detect that the connection is broken.
    fn probe_if_dropped<'a>(
        &'a self,
        held: &'a Arc<Held<D::Connection>>,
        limit: Duration,
    ) -> ProbeIfDropped<'a, D> {
        ProbeIfDropped { channel: self, held, limit, armed: true }
    }

    /// A call over the connection failed: judges whether the connection is still good.
    fn noted(&self, held: &Arc<Held<D::Connection>>, error: &CallError) {
        match health_after(error) {
            Health::Good => {}
            Health::Lost => self.shared.lock().retire(held),
            Health::Refused => self.shared.lock().refuse(held),
        }
    }
}

/// Probes a connection when it is dropped before it is disarmed.
struct ProbeIfDropped<'a, D: Driver> {
    channel: &'a Channel<D>,
    held: &'a Arc<Held<D::Connection>>,
    limit: Duration,
    armed: bool,
}

impl<D: Driver> ProbeIfDropped<'_, D> {
    /// The call has come to its end.
    fn disarm(mut self) {
        self.armed = false;
    }
}

impl<D: Driver> Drop for ProbeIfDropped<'_, D> {
    fn drop(&mut self) {
        // A future can be dropped outside of its runtime; then there are no other calls to serve.
        let Ok(runtime) = Handle::try_current() else { return };
        if self.armed && !self.held.probed.swap(true, Ordering::Relaxed) {
            let shared = Arc::clone(&self.channel.shared);
            runtime.spawn(shared.probe(Probed(Arc::clone(self.held)), self.limit));
        }
    }
}

/// A connection while it is probed. A probe ends early, or never begins, if its runtime ends.
struct Probed<C>(Arc<Held<C>>);

impl<C> Drop for Probed<C> {
    fn drop(&mut self) {
        self.0.probed.store(false, Ordering::Relaxed);
    }
}

impl<D: Driver> Shared<D> {
    /// Finds out whether a connection still answers, and stops using it if not.
    async fn probe(self: Arc<Self>, probed: Probed<D::Connection>, limit: Duration) {
        let held = &probed.0;
        let answer = timeout(limit, held.connection.request("PING", Vec::new())).await;
        if matches!(answer, Err(_) | Ok(Err(CallError::Failed(_)))) {
            self.lock().retire(held);
        }
    }

    /// The connection, or the attempt that is to bring one.
    fn current_or_attempt(self: &Arc<Self>) -> Result<Found<D>, Error> {
        let mut state = self.lock();
        match &state.slot {
            Slot::Connected(held) if !held.connection.is_closed() => {
                return Ok(Found::Connection(Arc::clone(held)));
            }
            Slot::Connected(held) => {
                let held = Arc::clone(held);
                state.retire(&held);
            }
            Slot::Connecting(attempt) if Instant::now() < attempt.until => {
                return Ok(Found::Attempt(attempt.clone()));
            }
            Slot::Connecting(_) | Slot::Empty => {}
        }
        let now = Instant::now();
        state.backoff.permit(now)?;
        let (sender, outcome) = watch::channel(None);
        let attempt = Attempt { outcome, until: now + self.dial.limit() + LATENESS };
        state.slot = Slot::Connecting(attempt.clone());
        drop(state);
        tokio::spawn(Arc::clone(self).attempt(sender));
        Ok(Found::Attempt(attempt))
    }

    async fn attempt(self: Arc<Self>, sender: watch::Sender<Option<Outcome<D>>>) {
        let outcome = match self.name.get() {
            Some(name) => self.dial.dial_named(name).await,
            None => self.dial.dial().await,
        };
        let outcome = outcome.map(|connection| Arc::new(Held::new(connection)));
        let mut state = self.lock();
        if state.awaits(&sender.subscribe()) {
            state.slot = match &outcome {
                Ok(held) => Slot::Connected(Arc::clone(held)),
                Err(error) => {
                    state.backoff.failed(Instant::now(), error.clone());
                    Slot::Empty
                }
            };
        }
        drop(state);
        sender.send_replace(Some(outcome));
    }

    /// An attempt has no outcome: makes room for the next one.
    fn abandoned(&self, outcome: &watch::Receiver<Option<Outcome<D>>>) -> Error {
        let detail = "the connection attempt did not end in time";
        let error = Error::with_detail(ErrorKind::Unreachable, detail);
        let mut state = self.lock();
        if state.awaits(outcome) {
            state.slot = Slot::Empty;
            state.backoff.failed(Instant::now(), error.clone());
        }
        error
    }

    fn lock(&self) -> MutexGuard<'_, State<D>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D: Driver> State<D> {
    /// Whether the slot is for the outcome of this attempt.
    fn awaits(&self, outcome: &watch::Receiver<Option<Outcome<D>>>) -> bool {
        matches!(&self.slot, Slot::Connecting(attempt) if attempt.outcome.same_channel(outcome))
    }

    /// Stops using a connection. Calls that still wait on it keep it open until they end.
    fn retire(&mut self, held: &Arc<Held<D::Connection>>) {
        if self.holds(held) {
            self.slot = Slot::Empty;
            self.backoff.failed(Instant::now(), lost());
        }
    }

    /// Stops using a connection whose server does not serve, if that was not done just now.
    fn refuse(&mut self, held: &Arc<Held<D::Connection>>) {
        let now = Instant::now();
        if self.holds(held) && self.refusals_ignored_until.is_none_or(|until| now >= until) {
            self.slot = Slot::Empty;
            self.refusals_ignored_until = Some(now + REFUSAL_PAUSE);
        }
    }

    fn holds(&self, held: &Arc<Held<D::Connection>>) -> bool {
        matches!(&self.slot, Slot::Connected(current) if Arc::ptr_eq(current, held))
    }
}
