//! The pages. All stand beside each other, so that relative links need to know nothing of where the
//! router is mounted.

mod acts;
mod check;
mod dead;
mod job;
mod lateness;
pub(crate) mod layout;
mod message;
mod messages;
mod overview;
mod parts;
mod queue;
mod server;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};

use crate::dashboard::Shared;
use crate::failure::Failure;

pub(crate) fn routes() -> Router<Arc<Shared>> {
    Router::new()
        .route("/", get(overview::root))
        .route("/queues", get(overview::page))
        .route("/queue", get(queue::page))
        .route("/messages", get(messages::page))
        .route("/message", get(message::page))
        .route("/content", get(message::content))
        .route("/dead", get(dead::page))
        .route("/job", get(job::page))
        .route("/check", get(check::page))
        .route("/server", get(server::page))
        .route("/pause", post(acts::pause))
        .route("/resume", post(acts::resume))
        .route("/cancel", post(acts::cancel))
        .route("/reschedule", post(acts::reschedule))
        .route("/redrive", post(acts::redrive))
        .route("/purge", post(acts::purge))
        .route("/bulk", post(job::start))
        .route("/stop", post(job::stop))
        .route("/repair", post(check::repair))
        .fallback(async || Failure::Unknown("there is no such page".to_owned()))
        .method_not_allowed_fallback(async || Failure::Method)
}
