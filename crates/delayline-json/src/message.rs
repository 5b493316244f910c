//! Messages as JSON. Bytes that are not UTF-8 stand under another name, in base64.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use delayline::admin::Explanation;
use delayline::after::{Member, Members};
use delayline::limits::MAX_BATCH_BYTES;
use delayline::message::{
    Attempt, Group, Headers, Message, MessageInfo, MessageState, Progress, Sent, Status,
};
use delayline::{Bytes, Completion, Enqueued, MessageId};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::harmless_json;

/// A value as a line, with its line break. Nothing in it can steer a terminal.
///
/// # Errors
///
/// If the value cannot be written as JSON, such as a map whose keys are not text.
pub fn line(value: &impl Serialize) -> Result<String, serde_json::Error> {
    Ok(harmless_json(serde_json::to_string(value)?) + "\n")
}

/// A live message without its content.
#[must_use]
pub fn info(info: &MessageInfo) -> Value {
    let mut object = id(&info.id);
    object.extend(members(json!({
        "state": info.state.status().name(),
        "group": info.group.as_ref().map(Group::as_str),
        "priority": info.priority.name(),
        "sequence": info.sequence,
        "enqueued_at": info.enqueued_at.to_string(),
        "due": info.due.to_string(),
        "expires_at": info.expires_at.map(|instant| instant.to_string()),
        "epoch": info.epoch,
        "failures": info.failures,
        "max_failures": info.max_failures,
        "crashes": info.crashes,
        "max_crashes": info.max_crashes,
        "payload_bytes": info.payload_bytes,
        "first_error": info.first_error,
        "last_error": info.last_error,
    })));
    object.extend(members(match info.state {
        MessageState::Leased { deadline, cancel_requested } => {
            json!({
                "deadline": deadline.to_string(),
                "cancel_requested": cancel_requested,
                "holder": info.holder.map(|process| process.to_string()),
            })
        }
        MessageState::Dead { reason: why, since } => {
            json!({"reason": why.name(), "dead_since": since.to_string()})
        }
        _ => Value::Null,
    }));
    object.extend(info.progress.as_ref().map(|progress| ("progress".to_owned(), done(progress))));
    Value::Object(object)
}

/// The progress of a message: `done` from 0 to 1, and a `text`.
#[must_use]
pub fn done(progress: &Progress) -> Value {
    json!({"done": progress.done(), "text": progress.text})
}

/// A live message with its attempts, but without its content.
#[must_use]
pub fn without_content(message: &Message<Bytes>) -> Value {
    let mut object = members(info(&message.info));
    object.insert("attempts".to_owned(), message.attempts.iter().map(attempt).collect());
    Value::Object(object)
}

/// An attempt that did not succeed.
fn attempt(attempt: &Attempt) -> Value {
    json!({
        "at": attempt.at.to_string(),
        "outcome": attempt.outcome.name(),
        "error": attempt.error,
    })
}

/// All of a live message.
#[must_use]
pub fn message(message: &Message<Bytes>) -> Value {
    let mut object = members(without_content(message));
    object.insert("headers".to_owned(), headers(&message.headers));
    object.extend([named("payload", &message.payload)]);
    object.extend(message.checkpoint.as_ref().map(|bytes| named("checkpoint", bytes)));
    if let Some(waiting) = &message.waiting {
        object.insert("after".to_owned(), waiting.members.iter().map(member).collect());
        object.insert("on_failure".to_owned(), waiting.on_failure.name().into());
        let at_most = format!("{}ms", waiting.at_most.as_millis());
        object.insert("wait_at_most".to_owned(), at_most.into());
    }
    if let Some(follower) = &message.follower {
        object.insert(
            "follower".to_owned(),
            json!({
                "enqueued_at": follower.enqueued_at.to_string(),
                "due": follower.due.to_string(),
                "expires_at": follower.expires_at.map(|instant| instant.to_string()),
                "group": follower.group.as_ref().map(Group::as_str),
                "priority": follower.priority.name(),
                "payload_bytes": follower.payload_bytes,
            }),
        );
    }
    Value::Object(object)
}

/// A message that another one waits for: its id, and its queue if it is another one.
#[must_use]
pub fn member(member: &Member) -> Value {
    let mut object = id(member.id());
    if let Some(queue) = member.queue() {
        object.insert("queue".to_owned(), queue.as_str().into());
    }
    Value::Object(object)
}

/// The messages that a delivered one has waited for: `why` it was delivered, and under `ended` each
/// member with its `state`, and the `reason` of a dead letter or the result of an ack. Results
/// beyond the bytes of a batch are left out.
#[must_use]
pub fn ended(all: &Members) -> Value {
    let mut bytes = 0;
    let ended = all.ended.iter().map(|ended| {
        let mut object = members(member(&ended.member));
        object.extend(members(progress(ended.member.id(), &ended.completion)));
        bytes += ended.completion.result().map_or(0, Bytes::len);
        if bytes > MAX_BATCH_BYTES {
            object.remove("result");
            object.remove("result_base64");
        }
        Value::Object(object)
    });
    json!({"why": all.why.name(), "ended": ended.collect::<Value>()})
}

/// The result of a send: its `outcome`, whether the message is `accepted`, and when it is `due`,
/// the `state` of the message with its id, or `until` when it is throttled.
#[must_use]
pub fn sent(sent: &Sent) -> Map<String, Value> {
    let mut object = id(&sent.id);
    object.insert("outcome".to_owned(), sent.outcome.name().into());
    let detail = match sent.outcome {
        Enqueued::Created { due } | Enqueued::Updated { due } => Some(("due", due.to_string())),
        Enqueued::Following { .. } => Some(("state", Status::Leased.name().to_owned())),
        Enqueued::Duplicate { status } | Enqueued::Conflict { status } => {
            Some(("state", status.name().to_owned()))
        }
        Enqueued::Throttled { until } => Some(("until", until.to_string())),
        _ => None,
    };
    if let Some((key, text)) = detail {
        object.insert(key.to_owned(), text.into());
    }
    object.insert("accepted".to_owned(), sent.is_accepted().into());
    object
}

/// The status of an id that is not a live message's.
#[must_use]
pub fn stateless(message: &MessageId, state: &str) -> Value {
    let mut object = id(message);
    object.insert("state".to_owned(), state.into());
    Value::Object(object)
}

/// Why a message is not delivered: a name under `why`, and a sentence under `explanation`.
#[must_use]
pub fn explanation(message: &MessageId, explanation: &Explanation) -> Value {
    let mut object = id(message);
    object.insert("why".to_owned(), explanation.name().into());
    object.insert("explanation".to_owned(), explanation.to_string().into());
    if let Explanation::Leased { progress: Some(progress), .. } = explanation {
        object.insert("progress".to_owned(), done(progress));
    }
    object.extend(explanation.behind().map(|front| named("behind", front.as_bytes())));
    Value::Object(object)
}

/// How far a message has come: its `state`, the `reason` of a dead letter, and the result of an ack
/// under `result` or `result_base64`.
#[must_use]
pub fn progress(message: &MessageId, progress: &Completion) -> Value {
    let mut object = id(message);
    object.insert("state".to_owned(), progress_name(progress).into());
    if let Completion::Dead(reason) = progress {
        object.insert("reason".to_owned(), reason.name().into());
    }
    if let Some(result) = progress.result() {
        object.extend([named("result", result)]);
    }
    Value::Object(object)
}

/// `pending`, `dead`, `unknown`, or the name of the status of a finished message.
#[must_use]
pub const fn progress_name(progress: &Completion) -> &'static str {
    match progress {
        Completion::Dead(_) => Status::Dead.name(),
        Completion::Finished { status, .. } => status.name(),
        Completion::Unknown => "unknown",
        _ => "pending",
    }
}

/// An object with the id only, under `id` or `id_base64`.
#[must_use]
pub fn id(id: &MessageId) -> Map<String, Value> {
    [named("id", id.as_bytes())].into_iter().collect()
}

/// The headers as an object; a value that is not UTF-8 stands under `NAME_base64`.
#[must_use]
pub fn headers(headers: &Headers) -> Value {
    Value::Object(headers.iter().map(|(name, value)| named(name, value)).collect())
}

/// The id and the payload of a message, to be flattened into the object of a delivery. Bytes that
/// are not UTF-8 stand under another name, in base64.
#[derive(Serialize)]
pub struct Content<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
}

impl<'a> Content<'a> {
    /// The content of a delivery.
    #[must_use]
    pub fn new(id: &'a MessageId, payload: &'a [u8]) -> Self {
        let (id, id_base64) = text_or_base64(id.as_bytes());
        let (payload, payload_base64) = text_or_base64(payload);
        Self { id, id_base64, payload, payload_base64 }
    }
}

/// Omits all of it.
impl fmt::Debug for Content<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Content").finish_non_exhaustive()
    }
}

/// Bytes as text, if they are UTF-8, or else in base64.
#[must_use]
pub fn text_or_base64(bytes: &[u8]) -> (Option<&str>, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text), None),
        Err(_) => (None, Some(STANDARD.encode(bytes))),
    }
}

/// Returns a member for bytes: under this name as text if they are UTF-8, or else under
/// `NAME_base64`.
#[must_use]
pub fn named(name: &str, bytes: &[u8]) -> (String, Value) {
    match text_or_base64(bytes) {
        (Some(text), _) => (name.to_owned(), text.into()),
        (None, base64) => (format!("{name}_base64"), base64.into()),
    }
}

fn members(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use delayline::Timestamp;
    use delayline::backend::Follower;
    use delayline::message::{AttemptOutcome, DeathReason};

    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_ms(ms).unwrap()
    }

    fn text(ms: u64) -> String {
        at(ms).to_string()
    }

    #[test]
    fn bytes_are_text_or_base64_under_another_name() {
        assert_eq!(named("id", b"a"), ("id".to_owned(), json!("a")));
        assert_eq!(named("id", b"\xff"), ("id_base64".to_owned(), json!("/w==")));
        let mut all = Headers::new();
        all.set("shop", "9").unwrap();
        all.set("seal", &b"\xff"[..]).unwrap();
        assert_eq!(headers(&all), json!({"shop": "9", "seal_base64": "/w=="}));
        let id = MessageId::new(&b"\xff"[..]).unwrap();
        let content = serde_json::to_value(Content::new(&id, b"hunter2")).unwrap();
        assert_eq!(content, json!({"id_base64": "/w==", "payload": "hunter2"}));
        assert!(!format!("{:?}", Content::new(&id, b"hunter2")).contains("hunter2"));
        assert_eq!(stateless(&id, "acked"), json!({"id_base64": "/w==", "state": "acked"}));
    }

    #[test]
    fn each_state_has_its_members() {
        let id = MessageId::new("a").unwrap();
        let in_state = |state| info(&MessageInfo::new(id.clone(), state, 7, at(1), at(2)));
        let ready = in_state(MessageState::Ready);
        assert_eq!((&ready["id"], &ready["state"]), (&json!("a"), &json!("ready")));
        assert_eq!((&ready["sequence"], &ready["due"]), (&json!(7), &json!(text(2))));
        assert_eq!(ready["group"], Value::Null);
        assert_eq!((ready.get("deadline"), ready.get("reason")), (None, None));
        let leased = in_state(MessageState::Leased { deadline: at(3), cancel_requested: true });
        assert_eq!(leased["deadline"], text(3));
        assert_eq!((&leased["cancel_requested"], &leased["holder"]), (&json!(true), &Value::Null));
        let dead = in_state(MessageState::Dead { reason: DeathReason::MaxFailures, since: at(4) });
        assert_eq!(
            (&dead["reason"], &dead["dead_since"]),
            (&json!("max_failures"), &json!(text(4)))
        );
        let failed = attempt(&Attempt::new(at(5), AttemptOutcome::Failed, "timed out"));
        assert_eq!(failed, json!({"at": text(5), "outcome": "failed", "error": "timed out"}));
    }

    #[test]
    fn a_message_and_its_follower_have_groups() {
        let [group, other] = ["t\u{e9}nant", "other"].map(|name| Group::new(name).ok());
        let id = MessageId::new("a").unwrap();
        let mut info = MessageInfo::new(id, MessageState::Ready, 7, at(1), at(2));
        info.group = group;
        let mut follower = Follower::new(at(3), at(4));
        follower.group = other;
        let mut all = Message::new(info, Bytes::new());
        all.follower = Some(follower);
        let shown = message(&all);
        let groups = (&shown["group"], &shown["follower"]["group"]);
        assert_eq!(groups, (&json!("t\u{e9}nant"), &json!("other")));
    }

    #[test]
    fn what_was_saved_is_shown_and_the_checkpoint_is_content() {
        let id = MessageId::new("a").unwrap();
        let mut info = MessageInfo::new(id, MessageState::Ready, 7, at(1), at(2));
        info.progress = Some(Progress::new(0.4, "page 12 of 30"));
        let mut all = Message::new(info, Bytes::new());
        all.checkpoint = Some(Bytes::from_static(b"\xff"));
        let shown = message(&all);
        assert_eq!(shown["progress"], json!({"done": 0.4, "text": "page 12 of 30"}));
        assert_eq!(shown["checkpoint_base64"], "/w==");
        let open = without_content(&all);
        assert_eq!((&open["progress"], open.get("checkpoint_base64")), (&shown["progress"], None));
    }

    #[test]
    fn progress_has_a_state_and_what_belongs_to_it() {
        let id = MessageId::new("a").unwrap();
        let shown = |completion| progress(&id, &completion);
        assert_eq!(shown(Completion::Pending), json!({"id": "a", "state": "pending"}));
        assert_eq!(shown(Completion::Unknown), json!({"id": "a", "state": "unknown"}));
        let dead = shown(Completion::Dead(DeathReason::Rejected));
        assert_eq!(dead, json!({"id": "a", "state": "dead", "reason": "rejected"}));
        let cancelled = shown(Completion::finished(Status::Cancelled));
        assert_eq!(cancelled, json!({"id": "a", "state": "cancelled"}));
        let acked = shown(Completion::acked_with("done"));
        assert_eq!(acked, json!({"id": "a", "state": "acked", "result": "done"}));
    }
}
