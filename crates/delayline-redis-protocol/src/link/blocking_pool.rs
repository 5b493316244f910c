//! The connections that wait on doorbells: one for each listener, kept for the next one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use delayline_core::Error;
use tokio::time::Instant;

use super::backoff::ReconnectBackoff;
use super::dial::Dial;
use super::driver::{Connection as _, Driver};
use super::health::{Health, health_after, lost};
use crate::CallError;

/// Lends connections for one wait at a time.
pub(crate) struct BlockingPool<D: Driver> {
    dial: Arc<Dial<D>>,
    state: Mutex<State<D::Connection>>,
}

struct State<C> {
    idle: Vec<C>,
    /// How many idle connections are kept while others wait.
    spares: usize,
    backoff: ReconnectBackoff,
}

impl<D: Driver> BlockingPool<D> {
    pub(crate) fn new(dial: Arc<Dial<D>>) -> Self {
        let state = State { idle: Vec::new(), spares: 0, backoff: ReconnectBackoff::default() };
        Self { dial, state: Mutex::new(state) }
    }

    /// A connection on which nothing waits.
    ///
    /// # Errors
    ///
    /// The attempt to make one failed, or it is too early for the next attempt.
    pub(crate) async fn take(&self) -> Result<D::Connection, Error> {
        {
            let mut state = self.lock();
            state.idle.retain(|connection| !connection.is_closed());
            if let Some(connection) = state.idle.pop() {
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
    pub(crate) fn give_back(&self, connection: D::Connection) {
        let mut state = self.lock();
        state.backoff.served();
        state.idle.push(connection);
    }

    /// Takes back a connection whose wait has failed, if it is still good.
    pub(crate) fn noted(&self, connection: D::Connection, error: &CallError) {
        match health_after(error) {
            Health::Good => self.lock().idle.push(connection),
            Health::Lost | Health::Refused => self.lock().backoff.failed(Instant::now(), lost()),
        }
    }

    /// Keeps one more idle connection: each group of bells may soon need a second one again.
    pub(crate) fn add_spare(&self) {
        self.lock().spares += 1;
    }

    /// Closes idle connections that are not needed soon.
    pub(crate) fn close_surplus(&self) {
        let mut state = self.lock();
        let from = state.spares.min(state.idle.len());
        let surplus = state.idle.split_off(from);
        drop(state);
        drop(surplus);
    }

    fn lock(&self) -> MutexGuard<'_, State<D::Connection>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
