//! The model as a backend, once correct and once without a lock.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use delayline_core::{Applied, At, Backend, Error, Op, Reply, State, Timestamp, Wakeup};

#[derive(Debug, Default)]
pub(crate) struct Model(Mutex<State>);

impl Model {
    pub(super) async fn paused(&self) -> bool {
        let applied = self.apply(At::Server, &Op::Stats).await.unwrap();
        matches!(applied.reply, Reply::Stats(stats) if stats.paused)
    }
}

#[async_trait]
impl Backend for Model {
    async fn apply(&self, at: At, op: &Op) -> Result<Applied, Error> {
        op.validate()?;
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(state.apply(instant(at), op))
    }
}

#[async_trait]
impl Wakeup for Model {
    async fn wait(&self, timeout: Duration) -> Result<bool, Error> {
        tokio::time::sleep(timeout).await;
        Ok(false)
    }
}

/// Reads, applies and writes back, with a gap in which others do the same.
#[derive(Debug, Default)]
pub(super) struct LostUpdates(Mutex<State>);

#[async_trait]
impl Backend for LostUpdates {
    async fn apply(&self, at: At, op: &Op) -> Result<Applied, Error> {
        op.validate()?;
        let mut state = self.0.lock().unwrap().clone();
        tokio::task::yield_now().await;
        let applied = state.apply(instant(at), op);
        *self.0.lock().unwrap() = state;
        Ok(applied)
    }
}

#[async_trait]
impl Wakeup for LostUpdates {
    async fn wait(&self, _: Duration) -> Result<bool, Error> {
        Ok(false)
    }
}

pub(super) fn instant(at: At) -> Timestamp {
    match at {
        At::Fixed(instant) => instant,
        At::Server => {
            let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
            Timestamp::from_ms(u64::try_from(since_epoch.as_millis()).unwrap()).unwrap()
        }
    }
}
