//! The pages. All have paths of one level, so that relative links work wherever the router is
//! mounted.

mod bulk;
mod buttons;
mod charts;
mod check;
mod compose;
mod dead;
mod dead_views;
mod directory;
pub(crate) mod failed;
mod find;
mod findings;
mod groups;
mod lateness;
mod layout;
mod limits;
mod message;
mod messages;
mod overview;
mod parts;
mod queue;
mod schedules;
mod search;
mod server;
mod window;
mod workers;
mod zone;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};

use crate::failure::Failure;
use crate::shared::Shared;

pub(crate) fn routes() -> Router<Arc<Shared>> {
    Router::new()
        .route("/", get(overview::root))
        .route("/queues", get(overview::page))
        .route("/queue", get(queue::page))
        .route("/messages", get(messages::page))
        .route("/message", get(message::page))
        .route("/content", get(message::content))
        .route("/dead", get(dead::page))
        .route("/groups", get(groups::page))
        .route("/job", get(bulk::page))
        .route("/check", get(check::page))
        .route("/server", get(server::page))
        .route("/workers", get(workers::page))
        .route("/schedules", get(schedules::page))
        .route("/schedule", post(schedules::change))
        .route("/limits", post(limits::change))
        .route("/pause", post(buttons::pause))
        .route("/resume", post(buttons::resume))
        .route("/cancel", post(buttons::cancel))
        .route("/reschedule", post(buttons::reschedule))
        .route("/redrive", post(buttons::redrive))
        .route("/purge", post(buttons::purge))
        .route("/bulk", post(bulk::start))
        .route("/stop", post(bulk::stop))
        .route("/repair", post(check::repair))
        .route("/find", get(find::page))
        .route("/search", get(search::page).post(search::start))
        .route("/send", get(compose::send_page).post(compose::send))
        .route("/edit", get(compose::edit_page).post(compose::edit))
        .route("/zone", get(zone::page).post(zone::choose))
        .fallback(async || Failure::Unknown("there is no such page".to_owned()))
        .method_not_allowed_fallback(async || Failure::Method)
}
