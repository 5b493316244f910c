//! Queues whose relays have their own destinations.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use delayline_core::{
    Applied, At, Backend, Destination, DestinationKey, Durability, Error, Op, QueueBackend,
    QueueName, Relay, Wakeup,
};

/// A queue that relays to its own keys: `KEY{NAME}` instead of `KEY`, for the queue `NAME`. So no
/// two queues share a destination, and on a cluster it is in the queue's slot.
#[derive(Debug)]
pub(crate) struct Site(pub(crate) Arc<dyn QueueBackend>);

impl Site {
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
impl Backend for Site {
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
impl Wakeup for Site {
    async fn wait(&self, timeout: Duration) -> Result<bool, Error> {
        self.0.wait(timeout).await
    }

    async fn ring(&self) -> Result<(), Error> {
        self.0.ring().await
    }
}
