//! Work on all dead letters that match, in the background.

use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::{HeaderValue, LOCATION};
use axum::response::Response;
use delayline::backend::Schedule;
use serde_json::{Map, Value, json};

use super::input::{object, schedule};
use super::place::Place;
use super::problem::{Problem, answer};
use crate::Role;
use crate::asked::Asked;
use crate::bulk::{BulkAction, Job, Order, run};
use crate::context::Context;
use crate::failure::Failure;

pub(super) async fn start(
    place: Place,
    context: Context,
    request: Request,
) -> Result<Response, Problem> {
    context.require(Role::Operator)?;
    let mut names = vec!["action", "rate", "limit", "delay", "at"];
    names.extend(Asked::NAMES);
    let members = object(&context, request, &names).await?;
    let order = order(&members)?;
    let job = run::start(&context, &place.queue, order).await?;
    let mut response = answer(StatusCode::ACCEPTED, &told(&context, &place.queue, &job));
    // Next to this path.
    if let Ok(to) = HeaderValue::try_from(format!("jobs/{}", job.id)) {
        response.headers_mut().insert(LOCATION, to);
    }
    Ok(response)
}

fn order(members: &Map<String, Value>) -> Result<Order, Failure> {
    let name = members.get("action").and_then(Value::as_str).unwrap_or_default();
    let schedule = schedule(members)?;
    let action = BulkAction::named(name, schedule.unwrap_or(Schedule::NOW))?;
    if schedule.is_some() && !matches!(action, BulkAction::Redrive(_)) {
        return Err(Failure::Wrong("delay and at are for redrive".to_owned()));
    }
    let rate = match members.get("rate") {
        None => None,
        Some(rate) => Some(Order::rate(&rate.to_string())?),
    };
    let limit = members.get("limit").map(|limit| Order::limit(&limit.to_string())).transpose()?;
    Ok(Order { action, asked: Asked::in_object(members)?, rate, limit })
}

pub(super) async fn show(place: Place, context: Context) -> Result<Response, Problem> {
    let job = find(&place, &context)?;
    Ok(answer(StatusCode::OK, &told(&context, &place.queue, &job)))
}

/// Stops it. One that has ended stays as it is.
pub(super) async fn stop(place: Place, context: Context) -> Result<Response, Problem> {
    let job = run::stop(&context, &place.queue, place.job.as_deref().unwrap_or_default())?;
    Ok(answer(StatusCode::ACCEPTED, &told(&context, &place.queue, &job)))
}

fn find(place: &Place, context: &Context) -> Result<std::sync::Arc<Job>, Failure> {
    let (_, served) = context.served(&place.queue)?;
    let job = served.job.job().filter(|job| place.job.as_deref() == Some(&job.id));
    job.ok_or_else(run::none_such)
}

fn told(context: &Context, queue: &str, job: &Job) -> Value {
    let progress = job.progress();
    json!({
        "id": job.id,
        "queue": queue,
        "action": job.order.action.name(),
        "state": progress.state(),
        "failure": progress.failure(context.visitor.rights),
        "rate": job.order.rate,
        "limit": job.order.limit,
        "by": job.by,
        "started": job.started.to_string(),
        "dead": job.dead,
        "examined": progress.examined,
        "matched": progress.matched,
        "done": progress.done,
        "not_done": progress.not_done,
    })
}
