//! The bodies of requests.

use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body_util::{BodyExt as _, Limited};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::error::{Code, Error};

/// Reads bodies, which share an amount of memory.
pub(crate) struct Bodies {
    room: Semaphore,
    /// How long a body waits for room.
    patience: Duration,
}

impl Bodies {
    pub(crate) fn new() -> Self {
        Self { room: Semaphore::new(MOST_BODIES), patience: PATIENCE }
    }

    /// Reads a body. It takes room as its bytes arrive, beyond [`FREE_BYTES`]: the length that it
    /// declares reserves nothing.
    ///
    /// # Errors
    ///
    /// If it is too long, does not arrive in time, or finds no room in time.
    pub(crate) async fn read(&self, body: Body) -> Result<(Bytes, SemaphorePermit<'_>), Error> {
        let late = |_| Error::value("The body did not arrive in time.");
        timeout(READ, self.collect(body)).await.map_err(late)?
    }

    async fn collect(&self, body: Body) -> Result<(Bytes, SemaphorePermit<'_>), Error> {
        let mut share = self.more(0).await?;
        let (mut body, mut bytes) = (Limited::new(body, MOST_BODY_BYTES), Vec::new());
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| {
                let why = "The body ended early, or is longer than all entries of a batch may be.";
                Error::new(Code::BatchRequestTooLong, why)
            })?;
            let Ok(data) = frame.into_data() else { continue };
            bytes.extend_from_slice(&data);
            let units = bytes.len().saturating_sub(FREE_BYTES).div_ceil(UNIT_BYTES);
            share.merge(self.more(units.saturating_sub(share.num_permits())).await?);
        }
        Ok((bytes.into(), share))
    }

    /// Takes room for this many more units.
    async fn more(&self, units: usize) -> Result<SemaphorePermit<'_>, Error> {
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        let busy = || {
            let why = "The server is reading too many requests. Repeat the request.";
            Error::new(Code::Unavailable, why)
        };
        let more = timeout(self.patience, self.room.acquire_many(units)).await;
        more.map_err(|_| busy())?.map_err(|_| busy())
    }
}

/// A batch has 1 MiB; each byte may take six in JSON.
const MOST_BODY_BYTES: usize = 7 * 1024 * 1024;
/// Bytes of each body that take no room.
const FREE_BYTES: usize = 64 * 1024;
const UNIT_BYTES: usize = 64 * 1024;
/// 64 MiB.
const MOST_BODIES: usize = 1_024;
const READ: Duration = Duration::from_secs(30);
/// Shorter than [`READ`], so that bodies that wait for each other's room end with the right error.
const PATIENCE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_body_without_room_is_refused_for_now() {
        let bodies = Bodies { room: Semaphore::new(1), patience: Duration::from_millis(1) };
        let read = async |bytes| bodies.read(Body::from(vec![0; bytes])).await;
        let (body, share) = read(FREE_BYTES + 1).await.unwrap();
        assert_eq!((body.len(), share.num_permits()), (FREE_BYTES + 1, 1));
        assert_eq!(read(FREE_BYTES).await.unwrap().0.len(), FREE_BYTES);
        assert_eq!(read(FREE_BYTES + 1).await.unwrap_err().code(), Code::Unavailable);
        drop(share);
        drop(read(FREE_BYTES + 1).await.unwrap());
        let error = read(MOST_BODY_BYTES + 1).await.unwrap_err();
        assert_eq!(error.code(), Code::BatchRequestTooLong);
    }
}
