//! Searches through the messages of a queue, in the background.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::{HeaderValue, LOCATION};
use axum::response::Response;
use delayline_json as json;
use serde_json::{Value, json};

use super::input::object;
use super::place::Place;
use super::problem::{Problem, answer};
use crate::context::{Context, ForReaders};
use crate::failure::Failure;
use crate::searches::{Match, Search, Terms, run};

pub(super) async fn start(
    place: Place,
    ForReaders(context): ForReaders,
    request: Request,
) -> Result<Response, Problem> {
    let members = object(&context, request, &Terms::NAMES).await?;
    let terms = Terms::in_object(&members)?;
    let search = run::start(&context, &place.queue, terms, None).await?;
    let mut response = answer(StatusCode::ACCEPTED, &told(&context, &search));
    // Next to this path.
    if let Ok(to) = HeaderValue::try_from(format!("searches/{}", search.id)) {
        response.headers_mut().insert(LOCATION, to);
    }
    Ok(response)
}

pub(super) async fn show(
    place: Place,
    ForReaders(context): ForReaders,
) -> Result<Response, Problem> {
    let search = find(place, &context)?;
    Ok(answer(StatusCode::OK, &told(&context, &search)))
}

/// Stops it. One that has ended stays as it is.
pub(super) async fn stop(
    place: Place,
    ForReaders(context): ForReaders,
) -> Result<Response, Problem> {
    let search = find(place, &context)?;
    search.stop();
    Ok(answer(StatusCode::ACCEPTED, &told(&context, &search)))
}

fn find(place: Place, context: &Context) -> Result<Arc<Search>, Failure> {
    let (queue, id) = place.id()?;
    let (name, _) = context.named(&queue)?;
    context.shared.searches.find(&context.visitor.name, name, &id.to_string())
}

fn told(context: &Context, search: &Search) -> Value {
    let progress = search.progress();
    let messages = progress.found.iter().map(|Match { info, kind }| {
        let mut message = json::info(info);
        message["kind"] = kind.as_deref().into();
        message
    });
    json!({
        "id": search.id,
        "queue": search.queue,
        "state": progress.state(),
        "failure": progress.failure(context.visitor.rights),
        "total": search.total,
        "examined": progress.examined,
        "bytes": progress.bytes,
        "messages": messages.collect::<Vec<_>>(),
    })
}
