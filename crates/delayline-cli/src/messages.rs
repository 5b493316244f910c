//! Messages as the command shows them: JSON objects and table rows.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use delayline::{
    DeathReason, Found, Headers, Message, MessageInfo, MessageState, Priority, Status,
};
use serde_json::{Map, Value, json};

use crate::print::one_line;
use crate::time::rfc3339;

/// All there is to know about a message but its content.
pub(crate) fn info_json(info: &MessageInfo) -> Map<String, Value> {
    let mut object = Map::new();
    put_bytes(&mut object, "id", info.id.as_bytes());
    let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
    put("state", json!(status_name(info.state.status())));
    put("priority", json!(priority_name(info.priority)));
    put("due", json!(rfc3339(info.due)));
    put("enqueued_at", json!(rfc3339(info.enqueued_at)));
    put("expires_at", json!(info.expires_at.map(rfc3339)));
    put("epoch", json!(info.epoch));
    put("failures", json!(info.failures));
    put("max_failures", json!(info.max_failures));
    put("crashes", json!(info.crashes));
    put("max_crashes", json!(info.max_crashes));
    put("payload_bytes", json!(info.payload_bytes));
    put("first_error", json!(info.first_error));
    put("last_error", json!(info.last_error));
    match info.state {
        MessageState::Scheduled | MessageState::Ready => {}
        MessageState::Leased { deadline, cancel_requested } => {
            put("deadline", json!(rfc3339(deadline)));
            put("cancel_requested", json!(cancel_requested));
        }
        MessageState::Dead { reason, since } => {
            put("reason", json!(reason_name(reason)));
            put("dead_since", json!(rfc3339(since)));
        }
    }
    object
}

/// The same with headers and payload: as text if it is UTF-8, else in base64.
pub(crate) fn message_json(message: &Message) -> Map<String, Value> {
    let mut object = info_json(&message.info);
    object.insert("headers".to_owned(), headers_json(&message.headers));
    put_bytes(&mut object, "payload", &message.payload);
    object
}

/// The headers as an object; a value that is not UTF-8 stands under `NAME_base64`.
pub(crate) fn headers_json(headers: &Headers) -> Value {
    let mut object = Map::new();
    for (name, value) in headers.iter() {
        put_bytes(&mut object, name, value);
    }
    Value::Object(object)
}

/// The bytes as text, if they are some; else in base64, under another name.
fn put_bytes(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match text_or_base64(bytes) {
        (Some(text), _) => object.insert(name.to_owned(), text.into()),
        (None, base64) => object.insert(format!("{name}_base64"), base64.into()),
    };
}

/// One of the two.
pub(crate) fn text_or_base64(bytes: &[u8]) -> (Option<&str>, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text), None),
        Err(_) => (None, Some(BASE64.encode(bytes))),
    }
}

/// What is known of an id.
pub(crate) fn found_json(id: &str, found: &Found) -> Value {
    match found {
        Found::Live(message) => Value::Object(message_json(message)),
        Found::Finished(status) => json!({"id": id, "state": status_name(*status)}),
        Found::Unreadable => json!({"id": id, "state": "unreadable"}),
        Found::Unknown => json!({"id": id, "state": "unknown"}),
    }
}

pub(crate) const ROW_HEAD: [&str; 6] = ["id", "state", "due", "failures", "crashes", "last error"];

/// A message in one row.
pub(crate) fn row(info: &MessageInfo) -> Vec<String> {
    let state = match info.state {
        MessageState::Dead { reason, .. } => format!("dead: {}", reason_name(reason)),
        state => status_name(state.status()).to_owned(),
    };
    vec![
        one_line(info.id.to_string().as_str()),
        state,
        rfc3339(info.due),
        format!("{}/{}", info.failures, info.max_failures),
        format!("{}/{}", info.crashes, info.max_crashes),
        info.last_error.as_deref().map(one_line).unwrap_or_default(),
    ]
}

pub(crate) const fn status_name(status: Status) -> &'static str {
    match status {
        Status::Scheduled => "scheduled",
        Status::Ready => "ready",
        Status::Leased => "leased",
        Status::Dead => "dead",
        Status::Acked => "acked",
        Status::Cancelled => "cancelled",
        Status::Purged => "purged",
    }
}

pub(crate) const fn reason_name(reason: DeathReason) -> &'static str {
    match reason {
        DeathReason::MaxFailures => "max-failures",
        DeathReason::MaxCrashes => "max-crashes",
        DeathReason::Rejected => "rejected",
        DeathReason::Expired => "expired",
        DeathReason::Unreadable => "unreadable",
        _ => "other",
    }
}

const fn priority_name(priority: Priority) -> &'static str {
    match priority {
        Priority::Urgent => "urgent",
        Priority::High => "high",
        Priority::Normal => "normal",
        Priority::Low => "low",
    }
}
