//! The clients of one queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use delayline_core::{Applied, At, Backend, Durability, Error, Op, QueueBackend};

use crate::Fixture;
use crate::sited::Site;

/// All clients of a new queue: two, or one if the fixture cannot open another.
#[derive(Clone, Debug)]
pub(crate) struct Clients {
    first: Arc<dyn QueueBackend>,
    second: Option<Arc<dyn QueueBackend>>,
}

impl Clients {
    pub(crate) async fn fresh(fixture: &dyn Fixture) -> Result<Self, Error> {
        let first = fixture.fresh().await?;
        let second = fixture.another(&first).await?;
        Ok(Self { first: sited(first), second: second.map(sited) })
    }

    pub(crate) const fn first(&self) -> &Arc<dyn QueueBackend> {
        &self.first
    }

    pub(crate) const fn second(&self) -> Option<&Arc<dyn QueueBackend>> {
        self.second.as_ref()
    }

    /// The client of the n-th caller, in turns.
    pub(crate) fn of(&self, n: usize) -> &Arc<dyn QueueBackend> {
        self.second.as_ref().filter(|_| n % 2 == 1).unwrap_or(&self.first)
    }
}

/// The only client of a new queue.
pub(crate) async fn only_client(fixture: &dyn Fixture) -> Result<Arc<dyn QueueBackend>, Error> {
    fixture.fresh().await.map(sited)
}

fn sited(queue: Arc<dyn QueueBackend>) -> Arc<dyn QueueBackend> {
    Arc::new(Site(queue))
}

/// A backend whose calls go to the clients in turns.
#[derive(Debug)]
pub(crate) struct InTurns {
    clients: Clients,
    calls: AtomicUsize,
}

impl InTurns {
    pub(crate) const fn new(clients: Clients) -> Self {
        Self { clients, calls: AtomicUsize::new(0) }
    }

    fn next(&self) -> &Arc<dyn QueueBackend> {
        self.clients.of(self.calls.fetch_add(1, Ordering::Relaxed))
    }
}

#[async_trait]
impl Backend for InTurns {
    async fn apply(&self, at: At, op: &Op) -> Result<Applied, Error> {
        self.next().apply(at, op).await
    }

    async fn apply_durably(
        &self,
        at: At,
        op: &Op,
        durability: Durability,
    ) -> Result<Applied, Error> {
        self.next().apply_durably(at, op, durability).await
    }
}
