//! The connections that wait on doorbells: one for each listener, kept for the next one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use delayline_core::Error;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use super::backoff::ReconnectBackoff;
use super::dial::Dial;
use super::driver::{Connection as _, Driver};
use super::health::{Health, health_after, lost};
use crate::CallError;

/// How long a connection is kept without a wait, at least. After twice that it is closed.
const KEPT: Duration = Duration::from_secs(30);

/// Lends connections for one wait at a time.
pub(crate) struct BlockingPool<D: Driver> {
    dial: Arc<Dial<D>>,
    state: Mutex<State<D::Connection>>,
}

struct State<C> {
    /// The connections on which nothing waits, each since an instant.
    idle: Vec<(Instant, C)>,
    /// The task that closes them.
    closer: Option<AbortHandle>,
    backoff: ReconnectBackoff,
}

impl<D: Driver> BlockingPool<D> {
    pub(crate) fn new(dial: Arc<Dial<D>>) -> Self {
        let state = State { idle: Vec::new(), closer: None, backoff: ReconnectBackoff::default() };
        Self { dial, state: Mutex::new(state) }
    }

    /// How long [`take`](Self::take) takes at most.
    pub(crate) fn longest_connecting(&self) -> Duration {
        self.dial.limit()
    }

    /// A connection on which nothing waits.
    ///
    /// # Errors
    ///
    /// The attempt to make one failed, or it is too early for the next attempt.
    pub(crate) async fn take(&self) -> Result<D::Connection, Error> {
        {
            let mut state = self.lock();
            state.idle.retain(|(_, connection)| !connection.is_closed());
            if let Some((_, connection)) = state.idle.pop() {
                return Ok(connection);
            }
            state.backoff.permit(Instant::now())?;
        }
        let outcome = self.dial.dial().await;
        if let Err(error) = &outcome {
            self.lock().backoff.failed(Instant::now(), error.clone());
        }
        outcome
    }

    /// Takes back a connection whose wait has ended.
    pub(crate) fn give_back(self: &Arc<Self>, connection: D::Connection) {
        self.lock().backoff.served();
        self.keep(connection);
    }

    /// Takes back a connection whose wait has failed, if it is still good.
    pub(crate) fn noted(self: &Arc<Self>, connection: D::Connection, error: &CallError) {
        match health_after(error) {
            Health::Good => self.keep(connection),
            Health::Lost | Health::Refused => self.lock().backoff.failed(Instant::now(), lost()),
        }
    }

    /// Keeps a connection for the next wait, and makes sure that it is closed if none follows.
    fn keep(self: &Arc<Self>, connection: D::Connection) {
        let mut state = self.lock();
        state.idle.push((Instant::now(), connection));
        if state.closer.as_ref().is_none_or(AbortHandle::is_finished)
            && let Ok(runtime) = Handle::try_current()
        {
            state.closer = Some(runtime.spawn(close_idle(Arc::downgrade(self))).abort_handle());
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<D::Connection>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes connections on which nothing waits any more. Ends when there are none.
async fn close_idle<D: Driver>(pool: Weak<BlockingPool<D>>) {
    loop {
        sleep(KEPT).await;
        let Some(pool) = pool.upgrade() else { return };
        let mut state = pool.lock();
        let unused = |(since, _): &mut (Instant, _)| since.elapsed() >= KEPT;
        let closed: Vec<_> = state.idle.extract_if(.., unused).collect();
        let is_done = state.idle.is_empty();
        if is_done {
            state.closer = None;
        }
        drop(state);
        drop(closed);
        if is_done {
            return;
        }
    }
}
