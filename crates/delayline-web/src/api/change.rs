//! Requests that change messages or a queue. Repeating one does no harm.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use delayline::MessageId;
use delayline::backend::Schedule;
use delayline_json as json;
use serde_json::{Map, Value, json};

use super::input::{ids, object, schedule, set_limits};
use super::place::Place;
use super::problem::{Problem, answer, problem};
use crate::Role;
use crate::action::{Action, Outcome};
use crate::audited;
use crate::context::Context;
use crate::failure::Failure;
use crate::served::counted;

pub(super) async fn pause(place: Place, context: Context) -> Result<Response, Problem> {
    switch(&place, &context, true).await
}

pub(super) async fn resume(place: Place, context: Context) -> Result<Response, Problem> {
    switch(&place, &context, false).await
}

async fn switch(place: &Place, context: &Context, pause: bool) -> Result<Response, Problem> {
    let changed = audited::switch(context, &place.queue, pause).await?;
    let value = json!({ "queue": place.queue, "paused": pause, "changed": changed });
    Ok(answer(StatusCode::OK, &value))
}

pub(super) async fn limits(
    place: Place,
    context: Context,
    request: Request,
) -> Result<Response, Problem> {
    context.require(Role::Operator)?;
    let names = ["leased", "each_group", "in_order", "rate", "hold", "create"];
    let members = object(&context, request, &names).await?;
    let set = set_limits(&members)?;
    let (served, is_new) = match members.get("create") {
        None | Some(Value::Bool(false)) => {
            let known = context.known.queues.get(&place.queue).cloned();
            (known.ok_or_else(|| context.unknown_queue())?, false)
        }
        Some(Value::Bool(true)) => context.known_or_new(&place.queue).await?,
        Some(_) => return Err(Failure::Wrong("create must be true or false".to_owned()).into()),
    };
    let changed = audited::set_limits(&context, &place.queue, &served.queue, set).await?;
    if is_new {
        context.shared.directory.add(&place.queue, Arc::clone(&served));
    }
    let mut value = json!({ "queue": place.queue, "changed": changed });
    // The limits are set, also if the queue cannot be read now.
    if let Ok((stats, _)) = counted(&served.queue).await {
        value["limits"] = json::limits(&stats.limits);
    }
    Ok(answer(StatusCode::OK, &value))
}

pub(super) async fn cancel(place: Place, context: Context) -> Result<Response, Problem> {
    one(&context, place, Action::Cancel).await
}

pub(super) async fn reschedule(
    place: Place,
    context: Context,
    request: Request,
) -> Result<Response, Problem> {
    context.require(Action::Cancel.needs())?;
    let schedule = schedule(&object(&context, request, &["delay", "at"]).await?)?;
    let missing = || Failure::Wrong("the body must have delay or at".to_owned());
    one(&context, place, Action::Reschedule(schedule.ok_or_else(missing)?)).await
}

pub(super) async fn redrive(
    place: Place,
    context: Context,
    request: Request,
) -> Result<Response, Problem> {
    context.require(Action::Redrive(Schedule::NOW).needs())?;
    let members = object(&context, request, &["ids", "ids_base64", "delay", "at"]).await?;
    let schedule = schedule(&members)?.unwrap_or(Schedule::NOW);
    many(&context, &place, ids(&members)?, Action::Redrive(schedule)).await
}

pub(super) async fn purge(
    place: Place,
    context: Context,
    request: Request,
) -> Result<Response, Problem> {
    context.require(Action::Purge.needs())?;
    let members = object(&context, request, &["ids", "ids_base64"]).await?;
    many(&context, &place, ids(&members)?, Action::Purge).await
}

async fn one(context: &Context, place: Place, action: Action) -> Result<Response, Problem> {
    let (queue, id) = place.id()?;
    let outcomes = audited::on_messages(context, &queue, vec![id.clone()], action).await?;
    let outcome = outcomes.first().copied().ok_or(Failure::Protocol)?;
    let value = told(&id, outcome);
    if outcome.done {
        return Ok(answer(StatusCode::OK, &Value::Object(value)));
    }
    let status = match outcome.word {
        "not_found" => StatusCode::NOT_FOUND,
        _ => StatusCode::CONFLICT,
    };
    Ok(problem(status, &format!("not done: {}", outcome.word.replace('_', " ")), value))
}

async fn many(
    context: &Context,
    place: &Place,
    ids: Vec<MessageId>,
    action: Action,
) -> Result<Response, Problem> {
    let outcomes = audited::on_messages(context, &place.queue, ids.clone(), action).await?;
    let results: Vec<Value> =
        ids.iter().zip(outcomes).map(|(id, it)| Value::Object(told(id, it))).collect();
    Ok(answer(StatusCode::OK, &json!({ "results": results })))
}

fn told(id: &MessageId, outcome: Outcome) -> Map<String, Value> {
    let mut value = json::id(id);
    value.insert("outcome".to_owned(), outcome.word.into());
    if let Some(due) = outcome.due {
        value.insert("due".to_owned(), due.to_string().into());
    }
    value
}
