//! Queues whose relays have their own destinations.

use std::fmt::Debug;
use std::ops::Deref;
use std::time::Duration;

use async_trait::async_trait;
use delayline_core::{
    Applied, At, Backend, Destination, DestinationKey, Durability, Error, Op, QueueName, Relay,
    Wakeup,
};

/// A queue that relays to its own keys: `KEY{NAME}` instead of `KEY`, for the queue `NAME`. So no
/// two queues share a destination, and on a cluster it is in the queue's slot.
#[derive(Debug)]
pub(crate) struct Site<Q>(pub(crate) Q);

impl<Q: Deref<Target: Backend>> Site<Q> {
    /// The same relay to the queue's own destination; `None` for everything else.
    fn moved(&self, op: &Op) -> Option<Op> {
        let (Op::Relay(relay), Some(name)) = (op, self.0.queue_name()) else { return None };
        let own = |key: &DestinationKey| {
            let own = [key.as_bytes(), format!("{{{name}}}").as_bytes()].concat();
            DestinationKey::new(own).ok()
        };
        let to = match &relay.to {
            Destination::List { key, max_len } => {
                Destination::List { key: own(key)?, max_len: *max_len }
            }
            Destination::Stream { key, backlog } => {
                Destination::Stream { key: own(key)?, backlog: backlog.clone() }
            }
            _ => return None,
        };
        Some(Op::Relay(Relay::new(to, relay.max)))
    }
}

#[async_trait]
impl<Q> Backend for Site<Q>
where
    Q: Deref<Target: Backend> + Debug + Send + Sync,
{
    async fn apply(&self, at: At, op: &Op) -> Result<Applied, Error> {
        self.0.apply(at, self.moved(op).as_ref().unwrap_or(op)).await
    }

    fn queue_name(&self) -> Option<&QueueName> {
        self.0.queue_name()
    }

    async fn apply_durably(
        &self,
        at: At,
        op: &Op,
        durability: Durability,
    ) -> Result<Applied, Error> {
        self.0.apply_durably(at, self.moved(op).as_ref().unwrap_or(op), durability).await
    }
}

#[async_trait]
impl<Q> Wakeup for Site<Q>
where
    Q: Deref<Target: Wakeup> + Debug + Send + Sync,
{
    async fn wait(&self, timeout: Duration) -> Result<bool, Error> {
        self.0.wait(timeout).await
    }

    async fn ring(&self) -> Result<(), Error> {
        self.0.ring().await
    }
}
