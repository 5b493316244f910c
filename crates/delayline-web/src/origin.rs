//! Queues that headers name: the queue of the message that waits for this one, and the queue that a
//! dead letter of the SQS endpoint comes from.

use std::borrow::Cow;

use delayline::Bytes;
use delayline::after::{self, WAKES};
use delayline::message::Headers;
use serde_json::{Map, Value};

use crate::Visitor;

/// The header with what the SQS endpoint knows of a message.
pub const SQS_HEADER: &str = "delayline-sqs";

/// Returns an error if headers name a queue that the visitor does not know as the origin of a
/// message: a message move task, perhaps of another user, would send the message there.
pub(crate) fn known(visitor: &Visitor, headers: &Headers) -> Result<(), String> {
    let Some(Ok(extras)) = headers.get(SQS_HEADER).map(|json| serde_json::from_slice(json)) else {
        return Ok(());
    };
    let Value::Object(extras) = extras else {
        return Err(format!("the header {SQS_HEADER} is no JSON object"));
    };
    match extras.get("q") {
        Some(Value::String(queue)) if !visitor.knows(queue) => {
            Err(format!("the header {SQS_HEADER} names a queue that does not exist here"))
        }
        _ => Ok(()),
    }
}

/// The headers as the visitor may see them: they name no queue that the visitor does not know.
#[must_use]
pub fn shown<'a>(visitor: &Visitor, headers: &'a Headers) -> Cow<'a, Headers> {
    if visitor.queues.is_none() {
        return Cow::Borrowed(headers);
    }
    let waiting = after::wakes(headers);
    let waits_in = waiting.as_ref().and_then(|member| member.queue());
    let hides_wakes = waits_in.is_some_and(|queue| !visitor.knows(queue.as_str()));
    let extras = without_origin(visitor, headers);
    if !hides_wakes && extras.is_none() {
        return Cow::Borrowed(headers);
    }
    let mut shown = Headers::new();
    for (name, value) in headers.iter().filter(|(name, _)| !(hides_wakes && *name == WAKES)) {
        let value = extras.as_ref().filter(|_| name == SQS_HEADER).unwrap_or(value);
        // It has room without the queue. If not, it is not shown.
        drop(shown.set(name, value.clone()));
    }
    Cow::Owned(shown)
}

/// What the SQS endpoint knows of a message without its origin, if the visitor does not know that.
fn without_origin(visitor: &Visitor, headers: &Headers) -> Option<Bytes> {
    let mut extras: Map<String, Value> = serde_json::from_slice(headers.get(SQS_HEADER)?).ok()?;
    let origin = extras.remove("q")?;
    let is_hidden = origin.as_str().is_some_and(|queue| !visitor.knows(queue));
    is_hidden.then(|| Value::Object(extras).to_string().into())
}
