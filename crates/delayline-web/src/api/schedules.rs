//! Schedules: messages that are sent again and again.

use axum::extract::{FromRequestParts, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use delayline::schedules::{Entry, Put};
use delayline::{Enqueued, Timestamp};
use delayline_json::{self as json, OwnedSchedules};
use serde_json::{Map, Value, json};

use super::input::{MOST_BODY_BYTES, MOST_OBJECT_BYTES, Members, members};
use super::problem::{Problem, answer, problem};
use crate::Role;
use crate::body::JSON;
use crate::context::Context;
use crate::failure::Failure;
use crate::ids;
use crate::schedules::{self as audited, Act, Acted, failure, word};

/// The name of a schedule in a path, percent-encoded: an owner's are named `OWNER/NAME`.
pub(super) struct Name(String);

impl<S: Sync> FromRequestParts<S> for Name {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        // Of `/schedules/NAME`. The base is removed already.
        let name = parts.uri.path().split('/').nth(2).unwrap_or_default();
        let name = String::from_utf8(ids::decoded(name.as_bytes()).into_owned());
        let wrong = |_| Failure::Wrong("the name of a schedule is text in UTF-8".to_owned());
        Ok(Self(name.map_err(wrong)?))
    }
}

/// All schedules, up to a number, with their next instants.
pub(super) async fn list(context: Context) -> Result<Response, Problem> {
    let (queue, schedules) = context.schedules()?;
    // One more shows that there are more.
    let mut entries = schedules.list_within(MOST_LISTED + 1).await.map_err(failure)?;
    let complete = entries.len() <= MOST_LISTED;
    entries.truncate(MOST_LISTED);
    let entries: Vec<_> = entries.iter().map(|entry| shown(&context, entry)).collect();
    let value = json!({ "queue": queue, "schedules": entries, "complete": complete });
    Ok(answer(StatusCode::OK, &value))
}

/// One schedule, with the outcome of its last instant.
pub(super) async fn get(Name(name): Name, context: Context) -> Result<Response, Problem> {
    let (_, schedules) = context.schedules()?;
    let entry = schedules.get(&name).await.map_err(failure)?.ok_or_else(unknown)?;
    let mut value = shown(&context, &entry);
    let last = schedules.last_ticks(std::slice::from_ref(&entry)).await.map_err(failure)?;
    value["last"] = match last.into_iter().next().flatten() {
        Some(last) => json!({
            "instant": Timestamp::try_from(last.instant).unwrap_or(Timestamp::MAX).to_string(),
            "id": last.id,
            "state": last.status.map(delayline::message::Status::name),
        }),
        None => Value::Null,
    };
    Ok(answer(StatusCode::OK, &value))
}

/// Creates a schedule, or changes it.
pub(super) async fn put(
    Name(name): Name,
    context: Context,
    request: Request,
) -> Result<Response, Problem> {
    context.require(Role::Operator)?;
    let body = context.shared.bodies.read(request, JSON, MOST_OBJECT_BYTES).await?;
    let fields = members(&body, &FIELDS)?;
    let written = Members::read("the body", &body, FIELDS.into_iter()).map_err(Failure::Wrong)?;
    let spec = json::schedule_spec(fields, written.get("payload")).map_err(Failure::Wrong)?;
    let put = audited::put(&context, &name, spec).await?;
    let status = if put == Put::Created { StatusCode::CREATED } else { StatusCode::OK };
    let mut value = match context.schedules()?.1.get(&name).await {
        Ok(Some(entry)) => shown(&context, &entry),
        // It has been removed meanwhile, or cannot be read now. It was put in any case.
        _ => json!({ "name": name }),
    };
    value["outcome"] = word(put).into();
    Ok(answer(status, &value))
}

/// Makes the schedules of an owner those of the body.
pub(super) async fn declare(context: Context, request: Request) -> Result<Response, Problem> {
    context.require(Role::Operator)?;
    let body = context.shared.bodies.read(request, JSON, MOST_BODY_BYTES).await?;
    let OwnedSchedules { owner, schedules } =
        OwnedSchedules::from_json(&body).map_err(Failure::Wrong)?;
    if schedules.len() > MOST_LISTED {
        let why = format!(
            "there are {} schedules in the body; at most {MOST_LISTED} are allowed",
            schedules.len()
        );
        return Err(Failure::Wrong(why).into());
    }
    let declared = audited::declare(&context, &owner, schedules).await?;
    let value = json!({
        "owner": owner,
        "created": declared.created,
        "changed": declared.changed,
        "unchanged": declared.unchanged,
        "removed": declared.removed,
    });
    Ok(answer(StatusCode::OK, &value))
}

pub(super) async fn remove(name: Name, context: Context) -> Result<Response, Problem> {
    act(name, &context, Act::Remove, "removed").await
}

pub(super) async fn pause(name: Name, context: Context) -> Result<Response, Problem> {
    act(name, &context, Act::Pause, "paused").await
}

pub(super) async fn resume(name: Name, context: Context) -> Result<Response, Problem> {
    act(name, &context, Act::Resume, "resumed").await
}

pub(super) async fn run(name: Name, context: Context) -> Result<Response, Problem> {
    act(name, &context, Act::RunNow, "sent").await
}

async fn act(
    Name(name): Name,
    context: &Context,
    act: Act,
    word: &str,
) -> Result<Response, Problem> {
    let sent = match audited::act(context, &name, act).await? {
        Acted::Unknown => return Err(unknown().into()),
        Acted::Done => {
            return Ok(answer(StatusCode::OK, &json!({ "name": name, "outcome": word })));
        }
        Acted::Sent(sent) => sent,
    };
    let mut value = Map::new();
    value.insert("name".to_owned(), name.into());
    value.insert("id".to_owned(), sent.id.to_string().into());
    let created = matches!(sent.outcome, Enqueued::Created { .. });
    value.insert("outcome".to_owned(), if created { word } else { "not_sent" }.into());
    if created {
        return Ok(answer(StatusCode::OK, &Value::Object(value)));
    }
    let detail = "not sent: the message of an earlier instant is not finished";
    Ok(problem(StatusCode::CONFLICT, detail, value))
}

fn shown(context: &Context, entry: &Entry) -> Value {
    json::schedule(entry, context.sees_unredacted())
}

fn unknown() -> Failure {
    Failure::Unknown("there is no schedule of this name".to_owned())
}

/// As people write them, and as they are stored and shown.
const FIELDS: [&str; 13] = [
    "queue", "cron", "zone", "every", "payload", "kind", "group", "overlap", "lead", "grace",
    "every_ms", "lead_ms", "grace_ms",
];
/// Maximum number of schedules of one answer or of one request.
const MOST_LISTED: usize = 1_000;
