//! The HTTP API. `openapi.json` describes it, and a test compares the two.

mod bulk;
mod change;
mod described;
mod input;
mod look;
mod operations;
mod place;
pub(crate) mod problem;
mod pull;
mod save;
mod schedules;
mod searches;
mod send;
mod settle;
mod workers;

use std::sync::Arc;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, post};

use self::problem::Problem;
use crate::failure::Failure;
use crate::shared::Shared;
use crate::takes::only;

/// Where it is below the dashboard.
pub(crate) const BASE: &str = "/api/v1";

pub(crate) fn router() -> Router<Arc<Shared>> {
    routes()
        .into_iter()
        .fold(Router::new(), |router, (path, methods)| {
            router.route(path, only(methods, move |method| described::takes(path, method)))
        })
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
        ("/queues/{queue}/pause", post(change::pause)),
        ("/queues/{queue}/resume", post(change::resume)),
        ("/queues/{queue}/limits", post(change::limits)),
        ("/queues/{queue}/messages", get(look::list).post(send::send)),
        ("/queues/{queue}/messages/{id}", delete(change::cancel).get(look::get)),
        ("/queues/{queue}/messages/{id}/explain", get(look::explain)),
        ("/queues/{queue}/messages/{id}/progress", get(look::progress)),
        ("/queues/{queue}/messages/{id}/reschedule", post(change::reschedule)),
        ("/queues/{queue}/searches", post(searches::start)),
        ("/queues/{queue}/searches/{id}", get(searches::show).delete(searches::stop)),
        ("/queues/{queue}/claim", post(pull::claim)),
        ("/queues/{queue}/settle", post(settle::settle)),
        ("/queues/{queue}/extend", post(pull::extend)),
        ("/queues/{queue}/dead", get(look::dead)),
        ("/queues/{queue}/dead/jobs", post(bulk::start)),
        ("/queues/{queue}/dead/jobs/{job}", get(bulk::show).delete(bulk::stop)),
        ("/queues/{queue}/dead/redrive", post(change::redrive)),
        ("/queues/{queue}/dead/purge", post(change::purge)),
        ("/workers", get(workers::list)),
        ("/schedules", get(schedules::list).post(schedules::declare)),
        (
            "/schedules/{schedule}",
            get(schedules::get).put(schedules::put).delete(schedules::remove),
        ),
        ("/schedules/{schedule}/pause", post(schedules::pause)),
        ("/schedules/{schedule}/resume", post(schedules::resume)),
        ("/schedules/{schedule}/run", post(schedules::run)),
    ]
}

async fn description() -> Response {
    ([(CONTENT_TYPE, "application/json")], described::OPENAPI).into_response()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    #[test]
    fn the_description_has_every_path_and_no_other() {
        let description: Value = serde_json::from_str(described::OPENAPI).unwrap();
        let described: BTreeSet<&str> =
            description["paths"].as_object().unwrap().keys().map(String::as_str).collect();
        let routed: BTreeSet<&str> = routes().into_iter().map(|(path, _)| path).collect();
        assert_eq!(described, routed);
    }
}
