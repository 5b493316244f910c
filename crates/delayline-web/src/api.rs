//! The HTTP API. `openapi.json` describes it, and a test compares the two.

mod act;
mod input;
mod job;
mod look;
pub(crate) mod problem;
mod send;

use std::sync::Arc;

use axum::Router;
use axum::extract::FromRequestParts;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, post};
use delayline::MessageId;

use self::problem::Problem;
use crate::dashboard::Shared;
use crate::failure::Failure;
use crate::ids;

/// Where it is below the dashboard.
pub(crate) const BASE: &str = "/api/v1";

pub(crate) fn router() -> Router<Arc<Shared>> {
    routes()
        .into_iter()
        .fold(Router::new(), |router, (path, methods)| router.route(path, methods))
        .fallback(async || Problem(Failure::Unknown("no such path".to_owned())))
        .method_not_allowed_fallback(async || Problem(Failure::Method))
}

fn routes() -> Vec<(&'static str, MethodRouter<Arc<Shared>>)> {
    vec![
        ("/openapi.json", get(description)),
        ("/queues", get(look::queues)),
        ("/queues/{queue}", get(look::queue)),
        ("/queues/{queue}/forecast", get(look::forecast)),
        ("/queues/{queue}/history", get(look::history)),
        ("/queues/{queue}/pause", post(act::pause)),
        ("/queues/{queue}/resume", post(act::resume)),
        ("/queues/{queue}/messages", get(look::list).post(send::send)),
        ("/queues/{queue}/messages/{id}", delete(act::cancel).get(look::get)),
        ("/queues/{queue}/messages/{id}/explain", get(look::explain)),
        ("/queues/{queue}/messages/{id}/progress", get(look::progress)),
        ("/queues/{queue}/messages/{id}/reschedule", post(act::reschedule)),
        ("/queues/{queue}/dead", get(look::dead)),
        ("/queues/{queue}/dead/jobs", post(job::start)),
        ("/queues/{queue}/dead/jobs/{job}", get(job::show).delete(job::stop)),
        ("/queues/{queue}/dead/redrive", post(act::redrive)),
        ("/queues/{queue}/dead/purge", post(act::purge)),
    ]
}

async fn description() -> Response {
    ([(CONTENT_TYPE, "application/json")], OPENAPI).into_response()
}

const OPENAPI: &str = include_str!("../assets/openapi.json");

/// What a path names: a queue, and perhaps a message or a job, as percent-encoded bytes.
struct Place {
    queue: String,
    id: Option<Result<MessageId, Failure>>,
    /// What follows.
    job: Option<String>,
}

impl Place {
    fn id(self) -> Result<(String, MessageId), Failure> {
        let missing = || Err(Failure::Unknown("no such path".to_owned()));
        Ok((self.queue, self.id.unwrap_or_else(missing)?))
    }
}

impl<S: Sync> FromRequestParts<S> for Place {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        // Of `/queues/QUEUE/messages/ID` or `/queues/QUEUE/dead/jobs/JOB`. The base is removed already.
        let mut segments = parts.uri.path().split('/').skip(2);
        let queue = ids::decoded(segments.next().unwrap_or_default().as_bytes());
        let queue = String::from_utf8_lossy(&queue).into_owned();
        let id = segments.nth(1).map(|id| ids::id(id.as_bytes()).map_err(Failure::from));
        let job = segments.next().map(str::to_owned);
        Ok(Self { queue, id, job })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    #[test]
    fn the_description_has_every_path_and_no_other() {
        let description: Value = serde_json::from_str(OPENAPI).unwrap();
        let described: BTreeSet<&str> =
            description["paths"].as_object().unwrap().keys().map(String::as_str).collect();
        let routed: BTreeSet<&str> = routes().into_iter().map(|(path, _)| path).collect();
        assert_eq!(described, routed);
    }
}
