//! Consumers over HTTP: claim and extend. `settle.rs` ends leases.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use axum::response::{IntoResponse as _, Response};
use delayline::after;
use delayline::backend::{
    Claim, ConsumerName, Delivery, Extend, Extended, Lease, Millis, Op, Reply, Save,
};
use delayline::message::{Group, MessageState};
use delayline::{Error, MessageId, Timestamp, Violation, limits};
use delayline_json as json;
use http_body_util::{BodyExt as _, Full};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use uuid::Uuid;

use super::input::{MOST_BODY_BYTES, MOST_OBJECT_BYTES, Members, members};
use super::operations::{Operations, apply, operations};
use super::place::Place;
use super::problem::{Problem, answer, failed, failed_items};
use super::save::save;
use crate::audited::to_the_end;
use crate::body::JSON;
use crate::context::{Context, ForWorkers};
use crate::failure::Failure;
use crate::pull::hold::Hold;
use crate::pull::polls::Granted;
use crate::pull::token::Token;
use crate::served::Served;
use crate::{Visitor, origin};

/// Leases messages, and waits for them.
pub(super) async fn claim(
    place: Place,
    ForWorkers(context): ForWorkers,
    request: Request,
) -> Result<Response, Problem> {
    let served = consumed(&context, &place.queue).await?;
    let body = context.shared.bodies.read(request, JSON, MOST_OBJECT_BYTES).await?;
    let names = ["max", "lease", "wait", "consumer", "claim_id", "several_in_order"];
    let asked = if body.is_empty() { Map::new() } else { members(&body, &names)? };
    drop(body);
    let Asked { claim, claim_id, is_new, wait } = Asked::read(&context, &place.queue, &asked)?;
    let (polls, queue, stop) = (&served.polls, &served.queue, &context.shared.stop);
    let hold = Hold::new(&polls.claims, queue, claim.claim_id).await;
    let deadline = (!wait.is_zero() && !stop.is_cancelled()).then(|| Instant::now() + wait);
    let granted = polls.claim(queue, claim, is_new, &hold, deadline, stop).await?;
    tracing::debug!(
        target: "delayline_web::audit",
        visitor = %json::harmless_line(&context.visitor.name),
        action = "claim",
        queue = place.queue,
        messages = granted.claimed.deliveries.len(),
        "action"
    );
    Ok(answered(&context.visitor, &granted, &claim_id, hold)?)
}

/// Extends leases, and saves what consumers want to keep.
pub(super) async fn extend(
    place: Place,
    ForWorkers(context): ForWorkers,
    request: Request,
) -> Result<Response, Problem> {
    let served = consumed(&context, &place.queue).await?;
    let body = context.shared.bodies.read(request, JSON, MOST_BODY_BYTES).await?;
    let (leases, operations) = extensions(&body)?;
    let work = async move {
        // The leases take as much memory, until they are extended.
        let _counts = body;
        let read = |reply| if let Reply::Extend(items) = reply { Some(items) } else { None };
        apply(&served.queue, &operations, read).await
    };
    let results = to_the_end(work).await?;
    let first = results.iter().find_map(|result| result.as_ref().err().cloned());
    if let Some(error) = first.clone().filter(|_| results.iter().all(Result::is_err)) {
        return Err(error.into());
    }
    let rights = context.visitor.rights;
    let told = leases.iter().zip(results).map(|((id, ..), result)| {
        let mut value = json::id(id);
        value.extend(result.map_or_else(|error| failed(&error, rights), extended));
        Value::Object(value)
    });
    let told: Value = told.collect();
    Ok(match first {
        None => answer(StatusCode::OK, &json!({ "results": told })),
        Some(first) => {
            let detail =
                "some are not known to be extended; repeat those with the outcome `failed`";
            failed_items(first, detail, told)
        }
    })
}

/// The leases that a body names, and the operations that extend them, unless one is not valid.
fn extensions(body: &[u8]) -> Result<(Vec<Held>, Operations), Failure> {
    let names = ["leases", "lease"];
    let members = Members::read("the body", body, names.into_iter()).map_err(Failure::Wrong)?;
    let duration = lease(members.text("lease").map_err(Failure::Wrong)?.as_deref())?;
    let leases = members.batch("leases", held)?;
    let extend = |part: &[Held]| {
        let leases = part.iter().map(|(id, lease, _)| (id.clone(), *lease)).collect();
        let saves = part.iter().filter_map(|(id, _, save)| Some((id.clone(), save.clone()?)));
        Op::Extend(Extend::new(leases, duration).saves(saves.collect()))
    };
    let operations = operations(&leases, &extend)?;
    Ok((leases, operations))
}

/// Returns the queue of a consumer. Where queues are looked for, it may not exist yet.
pub(super) async fn consumed(context: &Context, name: &str) -> Result<Arc<Served>, Failure> {
    if let Some(served) = context.known.queues.get(name) {
        return Ok(Arc::clone(served));
    }
    if !context.visitor.knows(name) {
        return Err(context.unknown_queue());
    }
    match context.shared.directory.open_for_consumers(name).await {
        Some(opened) => Ok(opened?),
        None => Err(context.unknown_queue()),
    }
}

/// What a client asks for.
struct Asked {
    claim: Claim,
    /// As the client names it.
    claim_id: String,
    /// No earlier request can have made the claim.
    is_new: bool,
    wait: Duration,
}

impl Asked {
    fn read(context: &Context, queue: &str, members: &Map<String, Value>) -> Result<Self, Failure> {
        let max = match members.get("max") {
            None => 1,
            Some(max) => {
                let most = limits::MAX_BATCH;
                let max = max.as_u64().and_then(|max| usize::try_from(max).ok());
                max.filter(|max| (1..=most).contains(max))
                    .ok_or_else(|| Failure::Wrong(format!("max is a number from 1 to {most}")))?
            }
        };
        let wait = duration("wait", text(members, "wait")?)?.unwrap_or(USUAL_WAIT);
        if wait > LONGEST_WAIT {
            let most = LONGEST_WAIT.as_secs();
            return Err(Failure::Wrong(format!("wait is at most {most}s")));
        }
        let consumer = text(members, "consumer")?;
        let claim_id = text(members, "claim_id")?;
        if claim_id.is_some_and(|id| !(1..=MOST_CLAIM_ID_BYTES).contains(&id.len())) {
            let most = MOST_CLAIM_ID_BYTES;
            return Err(Failure::Wrong(format!("claim_id has 1 to {most} bytes")));
        }
        if claim_id.is_some() && consumer.is_none() {
            let why = "a claim_id needs a consumer, whose latest claim can be repeated";
            return Err(Failure::Wrong(why.to_owned()));
        }
        let several = match members.get("several_in_order") {
            None => false,
            Some(Value::Bool(several)) => *several,
            Some(_) => {
                return Err(Failure::Wrong("several_in_order must be true or false".to_owned()));
            }
        };
        let visitor = context.visitor.name.as_bytes();
        let consumer = match consumer {
            Some(name) => ConsumerName::try_from(name)?,
            None => unnamed(visitor)?,
        };
        let is_new = claim_id.is_none();
        let claim_id = claim_id.map_or_else(|| Uuid::now_v7().to_string(), str::to_owned);
        let parts = [visitor, queue.as_bytes(), consumer.as_bytes(), claim_id.as_bytes()];
        let real = context.shared.claim_ids.of(parts);
        let lease = lease(text(members, "lease")?)?;
        let claim = Claim::new(consumer, real, max, lease).several_in_order(several);
        // A poll may wait before the queue would refuse it.
        Op::Claim(claim.clone()).validate()?;
        Ok(Self { claim, claim_id, is_new, wait })
    }
}

/// Names a consumer for a claim that names none. A consumer makes one claim at a time, so
/// concurrent claims of a visitor have different ones: 256 each, since a queue remembers 1,000
/// consumers.
fn unnamed(visitor: &[u8]) -> Result<ConsumerName, Violation> {
    let number = format!("-{:02x}", UNNAMED.fetch_add(1, Ordering::Relaxed));
    let most = limits::MAX_CONSUMER_BYTES - number.len();
    ConsumerName::new([visitor.get(..most).unwrap_or(visitor), number.as_bytes()].concat())
}

/// Answers a claim. The leases count as delivered once the connection takes the body.
fn answered(
    visitor: &Visitor,
    granted: &Granted,
    claim_id: &str,
    hold: Hold,
) -> Result<Response, Failure> {
    let Granted { claimed, at } = granted;
    let answer = Answer {
        claim_id,
        deliveries: claimed.deliveries.iter().map(|it| delivered(visitor, it, *at)).collect(),
        more: claimed.more,
        next: claimed.next.map(|instant| instant.to_string()),
    };
    let body = serde_json::to_string(&answer).map_err(|_| Failure::Protocol)?;
    let body = Bytes::from(json::harmless_json(body));
    let length = HeaderValue::from(body.len());
    // An empty answer says nothing of leases that another request of this claim is granted.
    let has_leases = !claimed.deliveries.is_empty();
    let body = Full::new(body).map_frame(move |frame| {
        if has_leases {
            hold.delivered();
        }
        frame
    });
    let headers =
        [(CONTENT_TYPE, HeaderValue::from_static("application/json")), (CONTENT_LENGTH, length)];
    Ok((headers, Body::new(body)).into_response())
}

/// The answer to a claim. Written without a tree of values, which would take most of its time.
#[derive(Serialize)]
struct Answer<'a> {
    claim_id: &'a str,
    deliveries: Vec<Delivered<'a>>,
    more: bool,
    next: Option<String>,
}

/// A leased message.
#[derive(Serialize)]
struct Delivered<'a> {
    #[serde(flatten)]
    content: json::Content<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    members: Option<Value>,
    token: String,
    deadline: Option<String>,
    headers: Value,
    keep_result: Option<String>,
    group: Option<&'a str>,
    priority: &'static str,
    due: String,
    lateness_ms: Option<u64>,
    epoch: u64,
    failures: u32,
    max_failures: u32,
    crashes: u32,
    max_crashes: u32,
    last_error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    checkpoint: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    checkpoint_base64: Option<String>,
}

fn delivered<'a>(
    visitor: &Visitor,
    delivery: &'a Delivery,
    at: Option<Timestamp>,
) -> Delivered<'a> {
    let message = &delivery.message;
    let (length, waited) = match after::delivered(&message.headers, &message.payload) {
        Ok((payload, waited)) => (payload.len(), waited),
        // As it is stored: the consumer cannot read it either.
        Err(_) => (message.payload.len(), None),
    };
    let payload = message.payload.get(..length).unwrap_or_default();
    let (info, headers) = (&message.info, &message.headers);
    let deadline = match info.state {
        MessageState::Leased { deadline, .. } => Some(deadline),
        _ => None,
    };
    let (checkpoint, checkpoint_base64) =
        message.checkpoint.as_deref().map(json::text_or_base64).unwrap_or_default();
    let (lease, failures, has_waited) = (delivery.lease, info.failures, waited.is_some());
    let token = Token { lease, failures, has_waited };
    Delivered {
        content: json::Content::new(&info.id, payload),
        members: waited.as_ref().map(json::ended),
        token: token.write(),
        deadline: deadline.map(|instant| instant.to_string()),
        headers: json::headers(&origin::shown(visitor, headers)),
        keep_result: headers.result_retention().map(|keep| format!("{}ms", keep.as_millis())),
        group: info.group.as_ref().map(Group::as_str),
        priority: info.priority.name(),
        due: info.due.to_string(),
        lateness_ms: at.and_then(|at| u64::try_from(delivery.lateness(at).as_millis()).ok()),
        epoch: info.epoch,
        failures: info.failures,
        max_failures: info.max_failures,
        crashes: info.crashes,
        max_crashes: info.max_crashes,
        last_error: info.last_error.as_deref(),
        progress: info.progress.as_ref().map(json::done),
        checkpoint,
        checkpoint_base64,
    }
}

fn extended(extended: Extended) -> Map<String, Value> {
    let mut value = Map::new();
    let outcome = match extended {
        Extended::Done { deadline, cancel_requested } => {
            value.insert("deadline".to_owned(), deadline.to_string().into());
            value.insert("cancel_requested".to_owned(), cancel_requested.into());
            "extended"
        }
        Extended::Stale => "stale",
        _ => "missing",
    };
    value.insert("outcome".to_owned(), outcome.into());
    value
}

/// The id, the lease and the save of an item of an extension.
type Held = (MessageId, Lease, Option<Save>);

/// Reads an item of an extension.
fn held(item: &RawValue) -> Result<Held, String> {
    let names = ["id", "id_base64", "token"].into_iter().chain(json::Saved::NAMES);
    let members = Members::read("it", item.get().as_bytes(), names)?;
    let text = |name| members.text(name);
    let id = message_id(text("id")?.as_deref(), text("id_base64")?.as_deref())?;
    Ok((id, token(text("token")?.as_deref())?.lease, save(&members)?))
}

/// The id that an item names.
pub(super) fn message_id(id: Option<&str>, base64: Option<&str>) -> Result<MessageId, String> {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    let id = match (id, base64) {
        (Some(id), None) => MessageId::new(id.to_owned()),
        (None, Some(base64)) => {
            MessageId::new(STANDARD.decode(base64).map_err(|_| "id_base64 is not base64")?)
        }
        _ => return Err("it must have one of id and id_base64, a string".to_owned()),
    };
    id.map_err(|violation| violation.to_string())
}

/// The lease that an item names.
pub(super) fn token(text: Option<&str>) -> Result<Token, String> {
    let text = text.ok_or("it must have the token of the delivery")?;
    Token::read(text).ok_or_else(|| "the token is not one of a delivery".to_owned())
}

fn lease(text: Option<&str>) -> Result<Millis, Failure> {
    let lease = duration("lease", text)?.unwrap_or(USUAL_LEASE);
    Ok(Millis::try_from(lease).map_err(Error::from)?)
}

fn duration(name: &str, text: Option<&str>) -> Result<Option<Duration>, Failure> {
    let Some(text) = text else { return Ok(None) };
    json::duration(text).map(Some).map_err(|why| Failure::Wrong(format!("{name}: {why}")))
}

fn text<'a>(members: &'a Map<String, Value>, name: &str) -> Result<Option<&'a str>, Failure> {
    match members.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(Failure::Wrong(format!("{name} must be a string"))),
    }
}

/// Number of the next consumer without a name.
static UNNAMED: AtomicU8 = AtomicU8::new(0);

const USUAL_LEASE: Duration = Duration::from_secs(30);
const USUAL_WAIT: Duration = Duration::from_secs(20);
/// Many proxies end a request after 60 s.
const LONGEST_WAIT: Duration = Duration::from_secs(50);
const MOST_CLAIM_ID_BYTES: usize = 64;
