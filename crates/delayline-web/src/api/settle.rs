//! Ends of leases.

use std::time::SystemTime;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use delayline::backend::{
    HandOff, HandedOff, Hold, Millis, NewMessage, NewResult, Op, Outcome, Reply, Schedule, Settled,
    Settlement,
};
use delayline::{Bytes, Enqueued, Error, MessageId, RetryPolicy, Timestamp, Violation, limits};
use delayline_json as json;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::input::{MOST_BODY_BYTES, Members};
use super::operations::{Operations, apply, operations};
use super::place::Place;
use super::problem::{Problem, answer, failed, failed_items};
use super::pull::{consumed, message_id, token};
use super::save::save;
use crate::audited::to_the_end;
use crate::body::JSON;
use crate::context::ForWorkers;
use crate::failure::Failure;
use crate::pull::token::Token;
use crate::{Rights, Visitor};

/// Ends many leases. Each is answered, in order.
pub(super) async fn settle(
    place: Place,
    ForWorkers(context): ForWorkers,
    request: Request,
) -> Result<Response, Problem> {
    let served = consumed(&context, &place.queue).await?;
    let body = context.shared.bodies.read(request, JSON, MOST_BODY_BYTES).await?;
    let items = items(&context.visitor, &place.queue, &body)?;
    // Nothing is sent unless all of it may be.
    let (plain, carrying) = (operations_of(&items, false)?, operations_of(&items, true)?);
    let visitor = json::harmless_line(&context.visitor.name);
    let rights = context.visitor.rights;
    let name = place.queue;
    let work = async move {
        // The messages take as much memory, until they are sent.
        let _counts = body;
        let plain = apply(&served.queue, &plain, results).await;
        let carrying = apply(&served.queue, &carrying, results).await;
        let response = response_of(&items, rights, plain, carrying);
        tracing::debug!(
            target: "delayline_web::audit",
            %visitor,
            action = "settle",
            queue = name,
            messages = items.len(),
            outcome = response.status().as_u16(),
            "action"
        );
        response
    };
    Ok(to_the_end(work).await?)
}

/// The operations for the items that carry messages or a result, or for the others.
fn operations_of(items: &[HandOff], carrying: bool) -> Result<Operations, Violation> {
    let picked = items.iter().filter(|item| carries(item) == carrying).cloned();
    let picked: Vec<HandOff> = picked.collect();
    if picked.is_empty() && !items.is_empty() {
        return Ok(Vec::new());
    }
    operations(&picked, &|part| {
        if carrying {
            return Op::HandOff(part.to_vec());
        }
        Op::Settle(part.iter().map(|item| item.settlement.clone()).collect())
    })
}

const fn carries(item: &HandOff) -> bool {
    !item.messages.is_empty() || item.result.is_some()
}

fn results(reply: Reply) -> Option<Vec<HandedOff>> {
    match reply {
        Reply::Settle(items) => Some(items.into_iter().map(HandedOff::from).collect()),
        Reply::HandOff(items) => Some(items),
        _ => None,
    }
}

fn response_of(
    items: &[HandOff],
    rights: Rights,
    plain: Vec<Result<HandedOff, Error>>,
    carrying: Vec<Result<HandedOff, Error>>,
) -> Response {
    let mut failures = plain.iter().chain(&carrying).filter_map(|result| result.as_ref().err());
    let failure = failures.next().cloned();
    let (mut plain, mut carrying) = (plain.into_iter(), carrying.into_iter());
    let results: Value = items
        .iter()
        .map(|item| {
            let of = if carries(item) { &mut carrying } else { &mut plain };
            let mut value = json::id(&item.settlement.id);
            match of.next() {
                Some(Ok(result)) => value.extend(settled(item, &result)),
                Some(Err(error)) => value.extend(failed(&error, rights)),
                None => {}
            }
            Value::Object(value)
        })
        .collect();
    match failure {
        None => answer(StatusCode::OK, &json!({ "results": results })),
        Some(first) => {
            let detail = "some are not known to be settled; repeat those with the outcome `failed`";
            failed_items(first, detail, results)
        }
    }
}

/// The outcome for a lease.
fn settled(item: &HandOff, result: &HandedOff) -> Map<String, Value> {
    let mut value = Map::new();
    let (outcome, state) = match result.settled {
        Settled::Done { status } => ("settled", Some(status)),
        Settled::AlreadyDone { ended } => ("already_settled", ended),
        Settled::Stale => ("stale", None),
        _ => ("missing", None),
    };
    value.insert("outcome".to_owned(), outcome.into());
    if let Some(state) = state {
        value.insert("state".to_owned(), state.name().into());
    }
    if item.result.is_some() {
        value.insert("result_kept".to_owned(), result.result_kept.into());
    }
    if !item.messages.is_empty() {
        let sent = item.messages.iter().zip(&result.messages);
        let sent = sent.map(|(message, enqueued)| Value::Object(followed(&message.id, *enqueued)));
        value.insert("messages".to_owned(), sent.collect());
    }
    value
}

/// The outcome for a message that follows.
fn followed(id: &MessageId, enqueued: Enqueued) -> Map<String, Value> {
    let mut value = json::id(id);
    value.insert("outcome".to_owned(), enqueued.name().into());
    if let Enqueued::Created { due } = enqueued {
        value.insert("due".to_owned(), due.to_string().into());
    }
    value
}

/// All settlements of a body, unless one of them is not valid.
fn items(visitor: &Visitor, own: &str, body: &[u8]) -> Result<Vec<HandOff>, Failure> {
    const NAME: &str = "settlements";
    let members = Members::read("the body", body, [NAME].into_iter()).map_err(Failure::Wrong)?;
    members.batch(NAME, |part| item(visitor, own, part))
}

fn item(visitor: &Visitor, own: &str, part: &RawValue) -> Result<HandOff, String> {
    let names = NAMES.into_iter().chain(json::Saved::NAMES);
    let members = Members::read("it", part.get().as_bytes(), names)?;
    let text = |name| members.text(name);
    let id = message_id(text("id")?.as_deref(), text("id_base64")?.as_deref())?;
    let token = token(text("token")?.as_deref())?;
    let schedule = schedule(text("delay")?, text("at")?)?;
    let error = text("error")?;
    let name = text("outcome")?.unwrap_or_default();
    let (takes_schedule, takes_error) = (["retry", "snooze"], ["retry", "reject"]);
    if schedule.is_some() && !takes_schedule.contains(&name.as_str()) {
        return Err("delay and at are for retry and snooze".to_owned());
    }
    if error.is_some() && !takes_error.contains(&name.as_str()) {
        return Err("error is for retry and reject".to_owned());
    }
    let error = error.unwrap_or_default();
    let outcome = match name.as_str() {
        "ack" => Outcome::Ack,
        "retry" => Outcome::Retry { schedule: schedule.unwrap_or_else(|| backoff(token)), error },
        "snooze" => Outcome::Snooze { schedule: schedule.ok_or("a snooze needs delay or at")? },
        "release" => Outcome::Release,
        "reject" => Outcome::Reject { error },
        _ => return Err("outcome is ack, retry, snooze, release or reject".to_owned()),
    };
    let hold = text("hold_group")?.map(|hold| after(&hold)).transpose()?;
    // As the library does at the server that has granted the lease.
    let snooze = match &outcome {
        Outcome::Snooze { schedule } if token.has_waited => Some(*schedule),
        _ => None,
    };
    let now = Timestamp::try_from(SystemTime::now()).unwrap_or(Timestamp::MAX);
    let hold = hold.into_iter().chain(snooze).max_by_key(|until| until.instant(now));
    let hold = hold.map(Hold::Group);
    let result = result(&members)?;
    if result.is_some() && outcome != Outcome::Ack {
        return Err("a result is for ack".to_owned());
    }
    let messages = messages(visitor, own, &members)?;
    let settlement = Settlement::new(id, token.lease, outcome).hold(hold).save(save(&members)?);
    let item = HandOff::new(settlement, messages).with_result(result);
    // Each item alone, so that the answer says which of them is beyond a limit.
    let alone = if carries(&item) {
        Op::HandOff(vec![item.clone()])
    } else {
        Op::Settle(vec![item.settlement.clone()])
    };
    alone.validate().map_err(|violation| violation.to_string())?;
    Ok(item)
}

/// When the message is due again.
fn schedule(delay: Option<String>, at: Option<String>) -> Result<Option<Schedule>, String> {
    match (delay, at) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err("it has both delay and at".to_owned()),
        (Some(text), None) => after(&text).map(Some),
        (None, Some(at)) => {
            let at = Timestamp::try_from(json::instant(&at)?);
            Ok(Some(Schedule::At(at.map_err(|violation| violation.to_string())?)))
        }
    }
}

/// A delay.
fn after(text: &str) -> Result<Schedule, String> {
    let delay = Millis::try_from(json::duration(text)?);
    Ok(Schedule::In(delay.map_err(|violation| violation.to_string())?))
}

/// The delay of a retry that names none.
fn backoff(token: Token) -> Schedule {
    let random = || u64::from_be_bytes(Uuid::new_v4().as_u64_pair().0.to_be_bytes());
    let delay = RetryPolicy::default().delay(token.failures.saturating_add(1), random);
    Schedule::In(Millis::try_from(delay).unwrap_or(Millis::MAX))
}

fn result(members: &Members<'_>) -> Result<Option<NewResult>, String> {
    let bytes = match (members.get("result"), members.text("result_base64")?) {
        (None, None) => None,
        (Some(value), None) => Some(json::text_or_compact("result", value)?),
        (None, Some(base64)) => {
            let bytes = STANDARD.decode(base64);
            Some(Bytes::from(bytes.map_err(|_| "result_base64 is not base64".to_owned())?))
        }
        (Some(_), Some(_)) => return Err("it has both result and result_base64".to_owned()),
    };
    let keep = members.text("keep_result")?.map(|keep| json::duration(&keep)).transpose()?;
    match (bytes, keep) {
        (Some(bytes), Some(keep)) => {
            let keep = Millis::try_from(keep).map_err(|violation| violation.to_string())?;
            Ok(Some(NewResult::new(bytes, keep)))
        }
        (None, None) => Ok(None),
        (Some(_), None) => Err("a result needs keep_result".to_owned()),
        (None, Some(_)) => Err("keep_result needs a result".to_owned()),
    }
}

/// The messages that follow. One without an id gets one.
fn messages(
    visitor: &Visitor,
    own: &str,
    members: &Members<'_>,
) -> Result<Vec<NewMessage>, String> {
    let Some(parts) = members.get("messages") else { return Ok(Vec::new()) };
    let parts: Vec<&RawValue> = serde_json::from_str(parts.get())
        .map_err(|_| "messages must be an array of objects".to_owned())?;
    if parts.len() > limits::MAX_FOLLOW_UPS {
        let most = limits::MAX_FOLLOW_UPS;
        return Err(format!("at most {most} messages can follow one settlement"));
    }
    let read = |(index, part): (usize, &RawValue)| {
        let message = super::send::message(visitor, own, part.get().as_bytes());
        message.map_err(|why| format!("messages[{index}]: {why}"))
    };
    parts.into_iter().enumerate().map(read).collect()
}

const NAMES: [&str; 12] = [
    "id",
    "id_base64",
    "token",
    "outcome",
    "delay",
    "at",
    "error",
    "result",
    "result_base64",
    "keep_result",
    "messages",
    "hold_group",
];
