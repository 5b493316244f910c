//! Bodies of requests, and how much memory they may take together.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use http_body_util::BodyExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::failure::Failure;

/// Reads bodies. All that are longer than [`SMALL`] share [`MOST_BYTES`].
#[derive(Clone)]
pub(crate) struct Bodies(Arc<Semaphore>);

/// A whole body. It counts until this is dropped.
pub(crate) struct Whole {
    bytes: Vec<u8>,
    _share: Option<OwnedSemaphorePermit>,
}

impl Deref for Whole {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Bodies {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(MOST_BYTES / UNIT)))
    }

    /// Reads a body of up to `most` bytes, within a limit of time.
    pub(crate) async fn read(&self, body: Body, most: usize) -> Result<Whole, Failure> {
        timeout(READ, self.collect(body, most)).await.map_err(|_| Failure::Slow)?
    }

    async fn collect(&self, mut body: Body, most: usize) -> Result<Whole, Failure> {
        let declared = body.size_hint().exact().and_then(|it| usize::try_from(it).ok());
        let expected = declared.map_or(most, |declared| declared.min(most));
        let mut whole = Whole { bytes: Vec::new(), _share: None };
        while let Some(frame) = body.frame().await {
            let early = |_| Failure::Wrong("the body ended early".to_owned());
            let Ok(data) = frame.map_err(early)?.into_data() else { continue };
            let length = whole.bytes.len().saturating_add(data.len());
            if length > most {
                return Err(Failure::TooLarge(most));
            }
            if length > SMALL && whole._share.is_none() {
                // All of it at once: two that have a part and wait for more would wait for ever.
                whole._share = Some(self.share(expected.max(length)).await?);
                whole.bytes.reserve_exact(expected.saturating_sub(whole.bytes.len()));
            }
            whole.bytes.extend_from_slice(&data);
        }
        Ok(whole)
    }

    /// Waits until there is memory for a body.
    async fn share(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Failure> {
        let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX);
        let share = timeout(WAIT, Arc::clone(&self.0).acquire_many_owned(units)).await;
        share.ok().and_then(Result::ok).ok_or(Failure::Crowded)
    }
}

/// Bodies up to this length do not count: as many as there are connections.
const SMALL: usize = 64 * 1024;
/// Of all longer bodies together.
const MOST_BYTES: usize = 128 * 1024 * 1024;
const UNIT: usize = 1024;
/// For a whole body.
const READ: Duration = Duration::from_secs(20);
/// For memory, as a part of that.
const WAIT: Duration = Duration::from_secs(5);
