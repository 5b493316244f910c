//! Bodies of requests.

use std::time::Duration;

use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use delayline::backend::{Millis, Op, Rate, Schedule, SetLimits};
use delayline::{MessageId, Timestamp};
use delayline_json::Object;
use serde_json::{Map, Value};

use crate::body::Whole;
use crate::context::Context;
use crate::failure::Failure;

/// The type of a body, without its parameters.
pub(super) fn media_type(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    Some(value.split(';').next()?.trim().to_ascii_lowercase())
}

/// A whole body and its type.
pub(super) async fn whole(
    context: &Context,
    request: Request,
    most: usize,
) -> Result<(Option<String>, Whole), Failure> {
    let kind = media_type(request.headers());
    Ok((kind, context.shared.bodies.read(request.into_body(), most).await?))
}

/// A JSON object whose members have these names only.
pub(super) async fn object(
    context: &Context,
    request: Request,
    names: &[&str],
) -> Result<Map<String, Value>, Failure> {
    let (kind, body) = whole(context, request, MOST_OBJECT_BYTES).await?;
    members(kind, &body, names)
}

/// Returns the members of a body that is a JSON object, if all have these names.
pub(super) fn members(
    kind: Option<String>,
    body: &[u8],
    names: &[&str],
) -> Result<Map<String, Value>, Failure> {
    if kind.as_deref() != Some("application/json") {
        return Err(Failure::MediaType("application/json"));
    }
    let wrong = || Failure::Wrong("the body must be a JSON object".to_owned());
    let object: Object<Value> = serde_json::from_slice(body).map_err(|_| wrong())?;
    let members: Map<_, _> = object.members().map_err(Failure::Wrong)?.into_iter().collect();
    match members.keys().find(|name| !names.contains(&name.as_str())) {
        None => Ok(members),
        Some(_) => Err(Failure::Wrong(format!("the body may only have the members {names:?}"))),
    }
}

/// The changes of limits that `leased`, `rate` and `hold` ask for; null removes a limit.
pub(super) fn set_limits(members: &Map<String, Value>) -> Result<SetLimits, Failure> {
    let mut set = SetLimits::new();
    if let Some(leased) = members.get("leased") {
        let most = if leased.is_null() { None } else { Some(number("leased", leased)?) };
        set = set.leased(most);
    }
    if let Some(rate) = members.get("rate") {
        set = set.rate(if rate.is_null() { None } else { Some(rate_of(rate)?) });
    }
    match members.get("hold") {
        None => {}
        Some(Value::Null) => set = set.end_hold(),
        Some(Value::String(hold)) => {
            let hold = delayline_json::duration(hold).map_err(Failure::Wrong)?;
            Millis::try_from(hold).map_err(|error| Failure::Wrong(format!("hold: {error}")))?;
            set = set.hold_for(hold);
        }
        Some(_) => return Err(Failure::Wrong("hold must be a string or null".to_owned())),
    }
    Op::SetLimits(set).validate()?;
    Ok(set)
}

fn rate_of(value: &Value) -> Result<Rate, Failure> {
    const MEMBERS: [&str; 3] = ["count", "per_ms", "burst"];
    let wrong = || Failure::Wrong(format!("rate must be null or have the members {MEMBERS:?}"));
    let object = value.as_object().filter(|it| it.len() == MEMBERS.len()).ok_or_else(wrong)?;
    let member = |name| number(name, object.get(name).ok_or_else(wrong)?);
    let per = Duration::from_millis(member("per_ms")?.into());
    Ok(Rate::new(member("count")?, per, member("burst")?))
}

fn number(name: &str, value: &Value) -> Result<u32, Failure> {
    let number = value.as_u64().and_then(|value| u32::try_from(value).ok());
    number.ok_or_else(|| Failure::Wrong(format!("{name} must be a whole number of 32 bits")))
}

/// `delay` or `at`, if one of them is given.
pub(super) fn schedule(members: &Map<String, Value>) -> Result<Option<Schedule>, Failure> {
    let text = |name: &str| match members.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str())),
        Some(_) => Err(Failure::Wrong(format!("{name} must be a string"))),
    };
    match (text("delay")?, text("at")?) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(Failure::Wrong("it has both delay and at".to_owned())),
        (Some(delay), None) => {
            let delay = delayline_json::duration(delay).map_err(Failure::Wrong)?;
            Ok(Some(Schedule::In(Millis::try_from(delay)?)))
        }
        (None, Some(at)) => {
            let at = delayline_json::instant(at).map_err(Failure::Wrong)?;
            Ok(Some(Schedule::At(Timestamp::try_from(at)?)))
        }
    }
}

/// `ids`, and `ids_base64` for ids that are no text.
pub(super) fn ids(members: &Map<String, Value>) -> Result<Vec<MessageId>, Failure> {
    let list = |name: &str| match members.get(name) {
        None => Ok(Vec::new()),
        Some(Value::Array(items)) => items
            .iter()
            .map(|item| item.as_str().ok_or_else(|| strings(name)))
            .collect::<Result<Vec<_>, _>>(),
        Some(_) => Err(strings(name)),
    };
    let mut all = Vec::new();
    for id in list("ids")? {
        all.push(MessageId::new(id.to_owned())?);
    }
    for id in list("ids_base64")? {
        let bytes = STANDARD.decode(id);
        let bytes = bytes.map_err(|_| Failure::Wrong("ids_base64 must be base64".to_owned()))?;
        all.push(MessageId::new(bytes)?);
    }
    Ok(all)
}

fn strings(name: &str) -> Failure {
    Failure::Wrong(format!("{name} must be an array of strings"))
}

/// A payload of 1 MiB in which every byte is written as `\u00XX`, and room for the rest.
pub(super) const MOST_BODY_BYTES: usize = 8 * 1024 * 1024;
/// 1,000 ids of 128 bytes, written in the same way, and room for the rest.
pub(super) const MOST_OBJECT_BYTES: usize = 2 * 1024 * 1024;
