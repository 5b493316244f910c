//! What the paths of the API name.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use delayline::MessageId;

use super::problem::Problem;
use crate::failure::Failure;
use crate::ids;

/// What a path names: a queue, and perhaps a message or a job, as percent-encoded bytes.
pub(super) struct Place {
    pub(super) queue: String,
    pub(super) id: Option<Result<MessageId, Failure>>,
    /// What follows.
    pub(super) job: Option<String>,
}

impl Place {
    pub(super) fn id(self) -> Result<(String, MessageId), Failure> {
        let missing = || Err(Failure::Unknown("no such path".to_owned()));
        Ok((self.queue, self.id.unwrap_or_else(missing)?))
    }
}

impl<S: Sync> FromRequestParts<S> for Place {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        // Of `/queues/QUEUE/messages/ID` or `/queues/QUEUE/dead/jobs/JOB`. The base is removed
        // already.
        let mut segments = parts.uri.path().split('/').skip(2);
        let queue = ids::decoded(segments.next().unwrap_or_default().as_bytes());
        let queue = String::from_utf8_lossy(&queue).into_owned();
        let id = segments.nth(1).map(|id| ids::id(id.as_bytes()).map_err(Failure::from));
        let job = segments.next().map(str::to_owned);
        Ok(Self { queue, id, job })
    }
}
