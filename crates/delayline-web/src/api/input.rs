//! Bodies of requests.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use axum::extract::Request;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use delayline::backend::{Millis, Op, Rate, Schedule, SetLimits};
use delayline::limits::{
    MAX_BATCH, MAX_LEASED, MAX_RATE_COUNT, MAX_RATE_PERIOD_MS, MIN_RATE_PERIOD_MS,
};
use delayline::{MessageId, Timestamp};
use delayline_json::{Object, distinct};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::body::JSON;
use crate::context::Context;
use crate::failure::{Failure, unknown};

/// A JSON object whose members have these names only.
pub(super) async fn object(
    context: &Context,
    request: Request,
    names: &[&str],
) -> Result<Map<String, Value>, Failure> {
    let body = context.shared.bodies.read(request, JSON, MOST_OBJECT_BYTES).await?;
    members(&body, names)
}

/// Returns the members of a body that is a JSON object, if all have these names.
pub(super) fn members(body: &[u8], names: &[&str]) -> Result<Map<String, Value>, Failure> {
    let wrong = |why: String| Failure::Wrong(format!("the body must be a JSON object{why}"));
    match distinct(body).map_err(|why| wrong(format!(": {why}")))? {
        Value::Object(members) => {
            known("the body", &members, names).map_err(Failure::Wrong)?;
            Ok(members)
        }
        _ => Err(wrong(String::new())),
    }
}

/// Refuses members of other names.
fn known(owner: &str, members: &Map<String, Value>, names: &[&str]) -> Result<(), String> {
    match members.keys().find(|name| !names.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => Err(unknown(owner, "member", name, names.iter().copied())),
    }
}

/// The members of a JSON object as they are written: as values, they could take many times the
/// memory of the body.
pub(super) struct Members<'a>(BTreeMap<String, &'a RawValue>);

impl<'a> Members<'a> {
    /// Returns the members of an object, if all have these names.
    pub(super) fn read(
        owner: &str,
        json: &'a [u8],
        names: impl Iterator<Item = &'static str> + Clone,
    ) -> Result<Self, String> {
        let object: Object<&RawValue> =
            serde_json::from_slice(json).map_err(|_| format!("{owner} must be an object"))?;
        let members = Self(object.members()?.into_iter().collect());
        match members.0.keys().find(|name| !names.clone().any(|known| known == *name)) {
            None => Ok(members),
            Some(name) => Err(unknown(owner, "member", name, names)),
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.0.get(name).copied()
    }

    /// A string, if it is given.
    pub(super) fn text(&self, name: &str) -> Result<Option<String>, String> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let text = serde_json::from_str(value.get());
        text.map(Some).map_err(|_| format!("{name} must be a string"))
    }

    /// The objects of a list, at most as many as a batch may have, each as `read` returns it.
    pub(super) fn batch<T>(
        &self,
        name: &str,
        read: impl Fn(&'a RawValue) -> Result<T, String>,
    ) -> Result<Vec<T>, Failure> {
        let parts = self.get(name).and_then(|list| serde_json::from_str(list.get()).ok());
        let parts: Vec<&RawValue> = parts.ok_or_else(|| {
            Failure::Wrong(format!("the body must be an object with the array {name}"))
        })?;
        if parts.len() > MAX_BATCH {
            let (more, most) = (parts.len(), MAX_BATCH);
            let why = format!("there are {more} {name} in the body; at most {most} are allowed");
            return Err(Failure::Wrong(why));
        }
        let (mut items, mut wrong) = (Vec::new(), Vec::new());
        for (index, part) in parts.into_iter().enumerate() {
            match read(part) {
                Ok(item) => items.push(item),
                Err(why) => wrong.push((index, why)),
            }
        }
        if wrong.is_empty() { Ok(items) } else { Err(Failure::Items(wrong)) }
    }
}

/// The changes of limits that the members ask for; null removes a limit.
pub(super) fn set_limits(members: &Map<String, Value>) -> Result<SetLimits, Failure> {
    let mut set = SetLimits::new();
    if let Some(leased) = members.get("leased") {
        set = set.leased(number_or_null("leased", leased)?);
    }
    if let Some(most) = members.get("each_group") {
        set = set.each_group(number_or_null("each_group", most)?);
    }
    match members.get("in_order") {
        None => {}
        Some(Value::Bool(in_order)) => set = set.in_order(*in_order),
        Some(_) => return Err(Failure::Wrong("in_order must be true or false".to_owned())),
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
    let object = value.as_object().ok_or_else(wrong)?;
    known("rate", object, &MEMBERS).map_err(Failure::Wrong)?;
    let member = |name, range| number(name, object.get(name).ok_or_else(wrong)?, range);
    let per_ms = member("per_ms", MIN_RATE_PERIOD_MS..=MAX_RATE_PERIOD_MS)?;
    let burst = if object.contains_key("burst") { "burst" } else { "count" };
    let count = |name| member(name, 1..=MAX_RATE_COUNT.into());
    Ok(Rate::new(count("count")?, Duration::from_millis(per_ms.into()), count(burst)?))
}

fn number_or_null(name: &str, value: &Value) -> Result<Option<u32>, Failure> {
    if value.is_null() { Ok(None) } else { number(name, value, 1..=MAX_LEASED.into()).map(Some) }
}

/// Reads a number, whose limits are checked later. They are named if it is none of 32 bits.
fn number(name: &str, value: &Value, range: RangeInclusive<u64>) -> Result<u32, Failure> {
    let number = value.as_u64().and_then(|value| u32::try_from(value).ok());
    number.ok_or_else(|| {
        let is = if value.is_number() { format!(" is {value}; it") } else { String::new() };
        let (least, most) = range.into_inner();
        Failure::Wrong(format!("{name}{is} must be a whole number from {least} to {most}"))
    })
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
