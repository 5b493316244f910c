//! A queue that can be closed and opened again.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use delayline_core::{Applied, At, Backend, Durability, Error, ErrorKind, Op, QueueBackend};

use crate::Fixture;
use crate::sited::Site;

/// A queue that can be opened again.
pub(crate) struct Reopenable<'a> {
    fixture: &'a dyn Fixture,
    /// `None` while it is closed. Calls hold another reference only while they run.
    queue: Mutex<Option<Arc<dyn QueueBackend>>>,
}

impl<'a> Reopenable<'a> {
    pub(crate) async fn fresh(fixture: &'a dyn Fixture) -> Result<Self, String> {
        let queue = fixture.fresh().await.map_err(|error| format!("no queue: {error}"))?;
        Ok(Self { fixture, queue: Mutex::new(Some(queue)) })
    }

    /// # Errors
    ///
    /// Those of [`Fixture::reopen`], or it does not open the queue again.
    pub(crate) async fn reopen(&self) -> Result<(), Error> {
        // The only reference: no call is running.
        let closing = self.lock().take().ok_or_else(closed)?;
        *self.lock() = Some(self.fixture.reopen(closing).await?.ok_or_else(closed)?);
        Ok(())
    }

    fn site(&self) -> Result<Site<Arc<dyn QueueBackend>>, Error> {
        self.lock().clone().map(Site).ok_or_else(closed)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<dyn QueueBackend>>> {
        // Nothing panics while it is locked.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn closed() -> Error {
    Error::with_detail(ErrorKind::Unreachable, "the queue is closed")
}

impl fmt::Debug for Reopenable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reopenable").field("queue", &*self.lock()).finish_non_exhaustive()
    }
}

#[async_trait]
impl Backend for Reopenable<'_> {
    async fn apply(&self, at: At, op: &Op) -> Result<Applied, Error> {
        self.site()?.apply(at, op).await
    }

    async fn apply_durably(
        &self,
        at: At,
        op: &Op,
        durability: Durability,
    ) -> Result<Applied, Error> {
        self.site()?.apply_durably(at, op, durability).await
    }
}
