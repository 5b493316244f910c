//! The model as a backend, once correct and once without a lock.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use delayline_core::{Applied, At, Backend, Error, Op, QueueName, Reply, State, Timestamp, Wakeup};

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

/// A model with a name, and the keys that it has relayed to.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) name: QueueName,
    pub(super) model: Model,
    pub(super) relays: Mutex<Vec<String>>,
}

#[async_trait]
impl Backend for Named {
    async fn apply(&self, at: At, op: &Op) -> Result<Applied, Error> {
        if let Op::Relay(relay) = op {
            self.relays.lock().unwrap().push(relay.to.key().to_string());
        }
        self.model.apply(at, op).await
    }

    fn queue_name(&self) -> Option<&QueueName> {
        Some(&self.name)
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

/// Executes only the first message of a batch if the future is dropped.
#[derive(Debug, Default)]
pub(super) struct TornByDrops(Mutex<State>);

/// An operation that has not been executed.
struct Begun<'a> {
    state: &'a Mutex<State>,
    now: Timestamp,
    op: Option<&'a Op>,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if let Some(Op::Enqueue(messages)) = self.op {
            self.state.lock().unwrap().apply(self.now, &Op::Enqueue(vec![messages[0].clone()]));
        }
    }
}

#[async_trait]
impl Backend for TornByDrops {
    async fn apply(&self, at: At, op: &Op) -> Result<Applied, Error> {
        op.validate()?;
        let mut begun = Begun { state: &self.0, now: instant(at), op: Some(op) };
        tokio::task::yield_now().await;
        begun.op = None;
        Ok(self.0.lock().unwrap().apply(instant(at), op))
    }
}

#[async_trait]
impl Wakeup for TornByDrops {
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
