//! A queue in memory that keeps a copy of each sent message.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use delayline_core::{
    Applied, At, Backend, DestinationKey, Durability, Element, Enqueued, Error, NewMessage, Op,
    QueueName, Reply, Timestamp, Wakeup,
};
use delayline_memory::{ManualClock, MemoryBackend};

/// A message that was enqueued.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) message: NewMessage,
    pub(super) at: Timestamp,
    pub(super) due: Timestamp,
}

#[derive(Debug)]
pub(super) struct Recorder {
    inner: MemoryBackend,
    name: QueueName,
    records: Mutex<Vec<Arc<Record>>>,
}

impl Recorder {
    pub(super) fn new(clock: &ManualClock, name: QueueName) -> Self {
        Self { inner: MemoryBackend::with_clock_of(clock), name, records: Mutex::default() }
    }

    pub(super) const fn name(&self) -> &QueueName {
        &self.name
    }

    pub(super) fn take_relayed(&self, key: &DestinationKey) -> Vec<Element> {
        self.inner.take_relayed(key)
    }

    pub(super) fn records(&self) -> Vec<Arc<Record>> {
        // Nothing panics while it is locked.
        self.records.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn record(&self, messages: &[NewMessage], outcomes: &[Enqueued], at: Timestamp) {
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        for (message, outcome) in messages.iter().zip(outcomes) {
            let due = match *outcome {
                Enqueued::Created { due } | Enqueued::Updated { due } => Some(due),
                Enqueued::Following { .. } => Some(message.schedule.instant(at)),
                _ => None,
            };
            if let Some(due) = due {
                records.push(Arc::new(Record { message: message.clone(), at, due }));
            }
        }
    }
}

#[async_trait]
impl Backend for Recorder {
    async fn apply(&self, at: At, op: &Op) -> Result<Applied, Error> {
        let applied = self.inner.apply(at, op).await?;
        if let (Op::Enqueue(messages), Reply::Enqueue(outcomes)) = (op, &applied.reply) {
            self.record(messages, outcomes, applied.at);
        }
        if let (Op::HandOff(items), Reply::HandOff(results)) = (op, &applied.reply) {
            for (item, result) in items.iter().zip(results) {
                self.record(&item.messages, &result.messages, applied.at);
            }
        }
        Ok(applied)
    }

    fn queue_name(&self) -> Option<&QueueName> {
        Some(&self.name)
    }

    /// Treats everything as durable, to test programs that request durability.
    async fn apply_durably(
        &self,
        at: At,
        op: &Op,
        durability: Durability,
    ) -> Result<Applied, Error> {
        durability.validate()?;
        self.apply(at, op).await
    }
}

#[async_trait]
impl Wakeup for Recorder {
    async fn wait(&self, timeout: Duration) -> Result<bool, Error> {
        self.inner.wait(timeout).await
    }

    async fn ring(&self) -> Result<(), Error> {
        self.inner.ring().await
    }
}
