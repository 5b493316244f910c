//! Finds an id in all queues.

use axum::response::Response;
use delayline::message::Status;
use delayline::{Found, MessageId};
use delayline_json::harmless_line;
use futures_util::future::join_all;
use maud::{Markup, html};

use super::buttons::see;
use super::layout::Frame;
use super::parts::{message_link, number};
use crate::context::Context;
use crate::failure::Failure;

pub(super) async fn page(context: Context) -> Result<Response, Failure> {
    let id = context.id()?;
    let names: Vec<&String> = context.known.queues.keys().collect();
    let asked = names.len();
    let mut found = Vec::with_capacity(asked);
    for some in names.chunks(MOST_AT_ONCE) {
        let some = some.iter().map(|name| async { (name.as_str(), context.get(name, &id).await) });
        found.extend(join_all(some).await);
    }
    let known = found.iter().filter(|(_, found)| !matches!(found, Ok(Found::Unknown)));
    let known: Vec<_> = known.collect();
    if let [(name, Ok(_))] = known[..] {
        return Ok(see(&message_link(name, &id)));
    }
    let title = "Find a message";
    let content = html! {
        h1 { (title) }
        p role="status" {
            @if known.is_empty() {
                "None of " (number(u64::try_from(asked).unwrap_or(u64::MAX)))
                " queues knows the id " span.id { (id) } ". Queues remember finished messages for an \
                 hour or more."
            } @else { "Queues that know the id " span.id { (id) } ":" }
        }
        ul.plain {
            @for (name, found) in known { li { (result(&context, name, &id, found)) } }
        }
    };
    Ok(Frame { context: &context, title, queue: None, here: "find", live: None }.page(&content))
}

fn result(
    context: &Context,
    queue: &str,
    id: &MessageId,
    found: &Result<Found<delayline::Bytes>, Failure>,
) -> Markup {
    let state = match found {
        Ok(Found::Live(message)) => Some(message.info.state.status()),
        Ok(Found::Finished(status)) => Some(*status),
        _ => None,
    };
    html! {
        @match found {
            Err(failure) => {
                (queue) ": " span.error {
                    (harmless_line(&failure.detail_for(context.visitor.rights)))
                }
            }
            Ok(_) => {
                a href=(message_link(queue, id)) { (queue) } ": "
                span.badge { (state.map_or("unreadable", Status::name)) }
            }
        }
    }
}

/// Queues that are asked at the same time.
const MOST_AT_ONCE: usize = 50;
