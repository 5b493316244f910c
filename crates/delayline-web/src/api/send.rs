//! Messages that clients send.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::{HeaderValue, LOCATION};
use axum::response::Response;
use delayline::backend::{NewMessage, Schedule};
use delayline::codec::Raw;
use delayline::message::FinishedIds;
use delayline::update::{Known, UpdateDue};
use delayline::{Bytes, Enqueued, Error, ErrorClass, MessageId, Queue, limits};
use delayline_json::{self as json, Fields};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::input::MOST_BODY_BYTES;
use super::place::Place;
use super::problem::{Problem, answer, failed_items, problem};
use crate::audited::to_the_end;
use crate::body::JSON_OR_LINES;
use crate::context::Context;
use crate::failure::Failure;
use crate::ids::encoded;
use crate::{Role, Visitor, origin};

/// One message, or many.
pub(super) async fn send(
    place: Place,
    context: Context,
    request: Request,
) -> Result<Response, Problem> {
    context.require(Role::Operator)?;
    let (served, is_new) = context.known_or_new(&place.queue).await?;
    let body = context.shared.bodies.read(request, JSON_OR_LINES, MOST_BODY_BYTES).await?;
    let (visitor, own) = (&context.visitor, place.queue.as_str());
    let batch = match (body.media_type, body.trim_ascii_start().first()) {
        ("application/json", Some(b'{')) => {
            Batch::One(Box::new(message(visitor, own, &body).map_err(Failure::Wrong)?))
        }
        ("application/json", _) => Batch::Many(valid(visitor, own, &items(&body)?)?),
        _ => Batch::Many(valid(visitor, own, &lines(&body))?),
    };
    let visitor = json::harmless_line(&context.visitor.name);
    let (name, shared) = (place.queue, Arc::clone(&context.shared));
    let work = async move {
        // The messages take as much memory, until they are sent.
        let _counts = body;
        let (count, response) = match batch {
            Batch::One(message) => (1, one(&served.queue, *message).await),
            Batch::Many(messages) => (messages.len(), many(&served.queue, messages).await),
        };
        if is_new && response.status().is_success() {
            shared.directory.add(&name, served);
        }
        // Sends are frequent, so they are logged at a lower level.
        tracing::debug!(
            target: "delayline_web::audit",
            %visitor,
            action = "send",
            queue = name,
            messages = count,
            outcome = response.status().as_u16(),
            "action"
        );
        response
    };
    Ok(to_the_end(work).await?)
}

/// What a body has: one message, or a list. The answers differ.
enum Batch {
    One(Box<NewMessage>),
    Many(Vec<NewMessage>),
}

/// Sends one message, together with others that are sent at the same time.
async fn one(queue: &Queue<Bytes, Raw>, message: NewMessage) -> Response {
    let id = message.id.clone();
    let reuses = message.finished_ids == FinishedIds::Reuse && message.known == Known::Refuse;
    let mut draft = queue.message(&message.payload).id(message.id);
    draft = match message.schedule {
        Schedule::In(delay) => draft.due_in(delay.into()),
        Schedule::At(due) => draft.due_at(due.into()),
    };
    draft = match message.expires {
        Some(Schedule::In(after)) => draft.expires_in(after.into()),
        Some(Schedule::At(instant)) => draft.expires_at(instant.into()),
        None => draft,
    };
    if let Some(group) = message.group {
        draft = draft.group(group);
    }
    for (name, value) in message.headers.iter() {
        draft = draft.header(name, value.clone());
    }
    draft = draft
        .priority(message.priority)
        .max_failures(message.max_failures)
        .max_crashes(message.max_crashes);
    if message.finished_ids == FinishedIds::Reuse {
        draft = draft.reuse_finished_id();
    }
    if let Some(window) = message.throttle {
        draft = draft.throttle(window.into());
    }
    if let Known::Update(update) = message.known {
        let Ok(due) = UpdateDue::try_from(update.due) else {
            return problem(StatusCode::BAD_REQUEST, "this update is not supported", Map::new());
        };
        draft = draft.update_as(update.content, due, update.token);
    }
    let sent = match draft.send().await {
        Ok(sent) => sent,
        Err(error) => return not_sent(&id, reuses, error),
    };
    let value = json::sent(&sent);
    match sent.outcome {
        Enqueued::Throttled { .. } => return answer(StatusCode::OK, &Value::Object(value)),
        Enqueued::TooManyThrottled => {
            let detail = "the queue throttles too many ids already; nothing was changed";
            return problem(StatusCode::SERVICE_UNAVAILABLE, detail, value);
        }
        Enqueued::Conflict { .. } => {
            let detail = "the queue knows this id with different content; nothing was changed";
            return problem(StatusCode::CONFLICT, detail, value);
        }
        _ if !sent.is_accepted() => {
            let detail =
                "the queue knows this message, and will not deliver it; nothing was changed";
            return problem(StatusCode::CONFLICT, detail, value);
        }
        _ => {}
    }
    let created = matches!(sent.outcome, Enqueued::Created { .. });
    let status = if created { StatusCode::CREATED } else { StatusCode::OK };
    let mut response = answer(status, &Value::Object(value));
    let location = format!("messages/{}", encoded(sent.id.as_bytes()));
    if let Ok(location) = HeaderValue::try_from(location) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

/// The answer has the id: under another one, a repeated send could be a second message.
fn not_sent(id: &MessageId, reuses: bool, error: Error) -> Response {
    let more = failed(id, &error);
    let mut detail = error.to_string();
    detail.push_str(match error.class() {
        ErrorClass::Rejected => "",
        ErrorClass::Ambiguous if reuses => {
            "; sent again, it may be a second message if this one has ended"
        }
        _ => "; to send it again, use the id given here",
    });
    problem(Failure::Queue(error).status(), &detail, more)
}

/// Sends many messages.
async fn many(queue: &Queue<Bytes, Raw>, messages: Vec<NewMessage>) -> Response {
    let ids: Vec<_> = messages.iter().map(|message| message.id.clone()).collect();
    let results = queue.send_many(messages).await;
    let first = results.iter().find_map(|result| result.as_ref().err().cloned());
    let told = ids.iter().zip(results).map(|(id, result)| match result {
        Ok(sent) => Value::Object(json::sent(&sent)),
        Err(error) => {
            let mut value = failed(id, &error);
            value.insert("detail".to_owned(), error.to_string().into());
            Value::Object(value)
        }
    });
    let told: Value = told.collect();
    match first {
        None => answer(StatusCode::OK, &json!({ "results": told })),
        Some(first) => {
            let detail = "some are not known to be sent; repeat those with the outcome `failed`, \
                          under the ids in `results`, unless their class is `ambiguous` and they \
                          reuse finished ids";
            failed_items(first, detail, told)
        }
    }
}

/// A message that is not known to be sent.
fn failed(id: &MessageId, error: &Error) -> Map<String, Value> {
    let mut value = json::id(id);
    value.insert("outcome".to_owned(), "failed".into());
    value.insert("accepted".to_owned(), false.into());
    value.insert("class".to_owned(), error.class().name().into());
    value
}

/// A message without an id gets one.
pub(super) fn message(visitor: &Visitor, own: &str, json: &[u8]) -> Result<NewMessage, String> {
    let fields = Fields::from_json(json)?;
    if let Some(other) = fields.queues().find(|queue| !visitor.knows(queue.as_str())) {
        return Err(format!("there is no queue {other} here"));
    }
    let message = fields.message(own, || Ok(Uuid::now_v7().to_string()))?;
    origin::known(visitor, &message.headers)?;
    Ok(message)
}

/// All messages, unless one of them is not valid. Each part has its place in the body.
fn valid(
    visitor: &Visitor,
    own: &str,
    parts: &[(usize, &[u8])],
) -> Result<Vec<NewMessage>, Failure> {
    match parts.len() {
        0 => return Err(Failure::Wrong("there is no message in the body".to_owned())),
        1..=limits::MAX_BATCH => {}
        more => {
            return Err(Failure::Wrong(format!(
                "there are {more} messages in the body; at most {} are allowed",
                limits::MAX_BATCH
            )));
        }
    }
    let (mut messages, mut wrong) = (Vec::new(), Vec::new());
    for (index, part) in parts {
        match message(visitor, own, part) {
            Ok(message) => messages.push(message),
            Err(why) => wrong.push((*index, why)),
        }
    }
    if wrong.is_empty() { Ok(messages) } else { Err(Failure::Items(wrong)) }
}

fn items(body: &[u8]) -> Result<Vec<(usize, &[u8])>, Failure> {
    let items: Vec<&RawValue> = serde_json::from_slice(body).map_err(|_| {
        Failure::Wrong("the body must be a JSON object or an array of them".to_owned())
    })?;
    Ok(items.into_iter().map(|item| item.get().as_bytes()).enumerate().collect())
}

/// The lines that are not blank.
fn lines(body: &[u8]) -> Vec<(usize, &[u8])> {
    let lines = body.split(|&byte| byte == b'\n').enumerate();
    lines.filter(|(_, line)| !line.trim_ascii().is_empty()).collect()
}
