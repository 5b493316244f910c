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
    most_idle: usize,
    backoff: ReconnectBackoff,
}

impl<C> State<C> {
    /// Keeps a connection for the next wait. Returns it if enough are kept.
    fn keep(&mut self, connection: C) -> Option<C> {
        if self.idle.len() >= self.most_idle {
            return Some(connection);
        }
        self.idle.push(connection);
        None
    }
}

impl<D: Driver> BlockingPool<D> {
    pub(crate) fn new(dial: Arc<Dial<D>>) -> Self {
        let state = State { idle: Vec::new(), most_idle: 0, backoff: ReconnectBackoff::default() };
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
        let surplus = {
            let mut state = self.lock();
            state.backoff.served();
            state.keep(connection)
        };
        drop(surplus);
    }

    /// Takes back a connection whose wait has failed, if it is still good.
    pub(crate) fn noted(&self, connection: D::Connection, error: &CallError) {
        match health_after(error) {
            Health::Good => {
                let surplus = self.lock().keep(connection);
                drop(surplus);
            }
            Health::Lost | Health::Refused => self.lock().backoff.failed(Instant::now(), lost()),
        }
    }

    /// Keeps two more connections: a group of bells has one listener or two, and none of them waits
    /// between two commands.
    pub(crate) fn add_group(&self) {
        self.lock().most_idle += 2;
    }

    fn lock(&self) -> MutexGuard<'_, State<D::Connection>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
