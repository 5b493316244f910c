//! Requests that change nothing.

use std::time::Duration;

use axum::http::StatusCode;
use axum::response::Response;
use delayline::admin::{Listed, Resolution};
use delayline::{Completion, Found, limits};
use delayline_json::{self as json, Cursor};
use serde_json::{Value, json};

use super::place::Place;
use super::problem::{Problem, answer};
use crate::context::Context;
use crate::failure::{Failure, told};
use crate::origin;
use crate::served::{counted, explained};

/// The names of all queues, and for discovered ones the age of the list.
pub(super) async fn queues(context: Context) -> Response {
    let names: Vec<&String> = context.known.queues.keys().collect();
    let mut value = json!({ "queues": names });
    if let Some(search) = &context.known.search {
        value["age_seconds"] = search.read.map(|read| read.elapsed().as_secs()).into();
        value["complete"] = search.is_complete().into();
        let failure = search.failure.as_ref().or(search.unread.as_ref());
        value["failure"] = failure.map(|why| told(why, context.visitor.rights)).into();
    }
    answer(StatusCode::OK, &value)
}

/// The counts of one.
pub(super) async fn queue(place: Place, context: Context) -> Result<Response, Problem> {
    let (name, queue) = context.named(&place.queue)?;
    let (stats, at) = counted(queue).await?;
    let mut object = json::stats(name, &stats);
    object["at"] = at.to_string().into();
    Ok(answer(StatusCode::OK, &object))
}

/// When the waiting messages are due.
pub(super) async fn forecast(place: Place, context: Context) -> Result<Response, Problem> {
    let (name, queue) = context.named(&place.queue)?;
    let within = context.params.text("within").unwrap_or(json::FORECAST_DELAYS);
    let delays = json::forecast_delays(within).map_err(Failure::Wrong)?;
    let forecast = queue.forecast(delays.iter().copied()).await?;
    Ok(answer(StatusCode::OK, &json::forecast(name, &delays, &forecast)))
}

/// What the queue was like in the last hours or days.
pub(super) async fn history(place: Place, context: Context) -> Result<Response, Problem> {
    let (name, queue) = context.named(&place.queue)?;
    let resolution = match context.params.text("resolution") {
        None | Some("minutes") => Resolution::Minutes,
        Some("hours") => Resolution::Hours,
        Some(_) => {
            return Err(Failure::Wrong("`resolution` is minutes or hours".to_owned()).into());
        }
    };
    let history = queue.history(resolution).await?;
    Ok(answer(StatusCode::OK, &json::history(name, resolution, &history)))
}

/// Messages of a state, page by page.
pub(super) async fn list(place: Place, context: Context) -> Result<Response, Problem> {
    let cursor = context.cursor()?;
    let status = match (context.params.text("state"), cursor) {
        (None, None) => Listed::Scheduled,
        (None, Some(cursor)) => cursor.status,
        (Some(name), _) => {
            Listed::ALL.iter().copied().find(|it| it.name() == name).ok_or_else(|| {
                Failure::Wrong("`state` is scheduled, ready, leased or dead".to_owned())
            })?
        }
    };
    page(&place, &context, status, cursor).await
}

/// Dead letters, page by page.
pub(super) async fn dead(place: Place, context: Context) -> Result<Response, Problem> {
    page(&place, &context, Listed::Dead, context.cursor()?).await
}

async fn page(
    place: &Place,
    context: &Context,
    status: Listed,
    cursor: Option<Cursor>,
) -> Result<Response, Problem> {
    let (name, queue) = context.named(&place.queue)?;
    let limit = match context.params.text("limit") {
        None => limits::MAX_PAGE,
        Some(text) => text.parse().map_err(|_| {
            Failure::Wrong(format!("`limit` is a number from 1 to {}", limits::MAX_PAGE))
        })?,
    };
    let mut listing = queue.list(status).page_size(limit);
    if let Some(cursor) = cursor {
        if cursor.status != status {
            return Err(Failure::Wrong("`after` belongs to another state".to_owned()).into());
        }
        if let Some(position) = cursor.position {
            listing = listing.after(position);
        }
    }
    let messages = listing.next_page().await?.unwrap_or_default();
    let messages = context.redacted(name, messages);
    let next = listing.position().map(|at| Cursor { status, position: Some(at) }.to_string());
    let messages: Vec<Value> = messages.iter().map(json::info).collect();
    Ok(answer(StatusCode::OK, &json!({ "messages": messages, "next": next })))
}

/// The state of an id.
pub(super) async fn get(place: Place, context: Context) -> Result<Response, Problem> {
    let (queue, id) = place.id()?;
    let value = match context.get(&queue, &id).await? {
        Found::Live(mut message) if context.sees_contents() => {
            if let Some(waiting) = &mut message.waiting {
                waiting.members.retain(|member| context.knows(member));
            }
            message.headers = origin::shown(&context.visitor, &message.headers).into_owned();
            json::message(&message)
        }
        Found::Live(message) => json::without_content(&message),
        Found::Finished(status) => json::stateless(&id, status.name()),
        Found::Unknown => {
            let unknown = "the queue has no message with this id".to_owned();
            return Err(Failure::Unknown(unknown).into());
        }
        _ => json::stateless(&id, "unreadable"),
    };
    Ok(answer(StatusCode::OK, &value))
}

/// Why a message is not delivered.
pub(super) async fn explain(place: Place, context: Context) -> Result<Response, Problem> {
    let (queue, id) = place.id()?;
    let found = context.get(&queue, &id).await?;
    let (explanation, ..) = explained(context.named(&queue)?.1, &found).await?;
    Ok(answer(StatusCode::OK, &json::explanation(&id, &explanation)))
}

/// How far a message has come; waits for its end if asked to.
pub(super) async fn progress(place: Place, context: Context) -> Result<Response, Problem> {
    let (queue, id) = place.id()?;
    let limit = match context.params.text("wait").map(json::duration) {
        None => Duration::ZERO,
        Some(Ok(limit)) if limit <= LONGEST_WAIT => limit,
        Some(Ok(_)) => {
            let most = LONGEST_WAIT.as_secs();
            return Err(Failure::Wrong(format!("`wait` is at most {most}s")).into());
        }
        Some(Err(why)) => return Err(Failure::Wrong(format!("wait: {why}")).into()),
    };
    let mut progress = context.named(&queue)?.1.wait_for(id.clone(), limit).await?;
    if let Completion::Finished { result, .. } = &mut progress
        && !context.sees_unredacted()
    {
        *result = None;
    }
    Ok(answer(StatusCode::OK, &json::progress(&id, &progress)))
}

/// Proxies end requests that take much longer.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
