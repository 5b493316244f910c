//! The pages. All have paths of one level, so that relative links work wherever the router is
//! mounted.

mod bulk;
mod buttons;
mod check;
mod compose;
mod dead;
mod dead_views;
mod directory;
pub(crate) mod failed;
mod find;
mod findings;
mod groups;
mod layout;
mod letters;
mod limits;
mod line;
mod message;
mod messages;
mod overview;
mod parts;
mod picture;
mod queue;
mod schedules;
mod search;
mod server;
mod spark;
mod window;
mod workers;
mod zone;

use std::sync::Arc;

use axum::Router;
use axum::routing::{MethodRouter, get, post};

use crate::failure::Failure;
use crate::shared::Shared;
use crate::takes::{Takes, only};

pub(crate) fn routes() -> Router<Arc<Shared>> {
    let shown = shown().map(|(path, methods, names)| (path, methods, names, SHOWN, false));
    let plain = plain().map(|(path, methods, names)| (path, methods, names, NONE, false));
    let forms = forms().map(|(path, methods, names)| (path, methods, names, NONE, true));
    let all = shown.into_iter().chain(plain).chain(forms);
    all.fold(Router::new(), |router, (path, methods, names, more, body)| {
        router.route(path, only(methods, move |_| Takes { names, more, body }))
    })
    .fallback(async || Failure::Unknown("there is no such page".to_owned()))
    .method_not_allowed_fallback(async || Failure::Method)
}

/// A path, its handler, and the parameters of its URL: a name that ends with `*` may be given
/// several times.
type Row = (&'static str, MethodRouter<Arc<Shared>>, Names);
type Names = &'static [&'static str];

fn shown() -> [Row; 16] {
    [
        ("/queues", get(overview::page), &["name", "page"]),
        ("/queue", get(queue::page), &["queue", "span"]),
        ("/messages", get(messages::page), &["queue", "state", "after", "from*", "until*"]),
        ("/message", get(message::page), &["queue", "id", "as"]),
        ("/dead", get(dead::page), LETTERS),
        ("/groups", get(groups::page), &["queue", "order"]),
        ("/job", get(bulk::page), &["queue", "order"]),
        ("/check", get(check::page), &["queue", "after"]),
        ("/server", get(server::page), &["queue"]),
        ("/workers", get(workers::page), NONE),
        ("/schedules", get(schedules::page), &["after"]),
        ("/find", get(find::page), &["id"]),
        ("/search", get(search::page), &["queue", "search"]),
        ("/send", get(compose::send_page), &["queue"]),
        ("/edit", get(compose::edit_page), &["queue", "id"]),
        ("/zone", get(zone::page), NONE),
    ]
}

/// Requests that lead to no page of ours, and buttons without fields.
fn plain() -> [Row; 5] {
    [
        ("/", get(overview::root), NONE),
        ("/content", get(message::content), &["queue", "id"]),
        ("/pause", post(buttons::pause), &["queue"]),
        ("/resume", post(buttons::resume), &["queue"]),
        ("/stop", post(bulk::stop), &["queue", "id", "order"]),
    ]
}

/// The names of their fields are in their handlers.
fn forms() -> [Row; 12] {
    [
        ("/schedule", post(schedules::change), &["name"]),
        ("/limits", post(limits::change), &["queue"]),
        ("/cancel", post(buttons::cancel), &["queue", "id"]),
        ("/reschedule", post(buttons::reschedule), &["queue", "id"]),
        ("/redrive", post(buttons::redrive), SOME_LETTERS),
        ("/purge", post(buttons::purge), SOME_LETTERS),
        ("/bulk", post(bulk::start), &["queue"]),
        ("/repair", post(check::repair), &["queue", "after"]),
        ("/search", post(search::start), &["queue"]),
        ("/send", post(compose::send), &["queue"]),
        ("/edit", post(compose::edit), &["queue", "id"]),
        ("/zone", post(zone::choose), NONE),
    ]
}

const NONE: Names = &[];

/// What every page shows: the last action, and whether it is asked for again.
const SHOWN: Names = &["note", "done", "rest", "live"];

const LETTERS: Names = &[
    "queue",
    "after",
    "order",
    "reason*",
    "error",
    "error_like",
    "group",
    "died_after",
    "died_before",
];

/// One letter by its id, or those of a page that the form names.
const SOME_LETTERS: Names = &[
    "id",
    "queue",
    "after",
    "order",
    "reason*",
    "error",
    "error_like",
    "group",
    "died_after",
    "died_before",
];
