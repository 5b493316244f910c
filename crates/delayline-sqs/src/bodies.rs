//! The bodies of requests.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_LENGTH;
use axum::http::request::Parts;
use http_body_util::{BodyExt as _, Limited};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::error::{Code, Error};

/// Reads bodies, which share an amount of memory.
pub(crate) struct Bodies(Semaphore);

impl Bodies {
    pub(crate) fn new() -> Self {
        Self(Semaphore::new(MOST_BODIES))
    }

    pub(crate) async fn read(
        &self,
        parts: &Parts,
        body: Body,
    ) -> Result<(Bytes, SemaphorePermit<'_>), Error> {
        let declared = parts.headers.get(CONTENT_LENGTH).and_then(|it| it.to_str().ok());
        let declared = declared.and_then(|it| it.parse::<usize>().ok());
        let expected = declared.unwrap_or(MOST_BODY_BYTES).min(MOST_BODY_BYTES);
        let units = u32::try_from(expected.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX);
        let read = async {
            let share = self.0.acquire_many(units).await.map_err(|_| Error::internal())?;
            let body = Limited::new(body, MOST_BODY_BYTES).collect().await.map_err(|_| {
                let why = "The body ended early, or is longer than all entries of a batch may be.";
                Error::new(Code::BatchRequestTooLong, why)
            })?;
            Ok((body.to_bytes(), share))
        };
        let late = |_| Error::value("The body did not arrive in time.");
        timeout(READ, read).await.map_err(late)?
    }
}

/// A batch has 1 MiB; each byte may take six in JSON.
const MOST_BODY_BYTES: usize = 7 * 1024 * 1024;
const UNIT_BYTES: usize = 64 * 1024;
/// 64 MiB.
const MOST_BODIES: usize = 1_024;
const READ: Duration = Duration::from_secs(30);
