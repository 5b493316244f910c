//! What a message waits for, as the fields of its JSON object say.

use delayline::MessageId;
use delayline::after::{Member, OnFailure, Waiting};
use delayline::backend::QueueName;
use serde_json::value::RawValue;

use crate::duration;
use crate::object::Object;

/// What a message waits for.
pub(crate) fn waiting(
    after: Option<Vec<Member>>,
    on_failure: Option<String>,
    at_most: Option<String>,
) -> Result<Option<Waiting>, String> {
    let Some(members) = after else {
        return match (on_failure, at_most) {
            (None, None) => Ok(None),
            (Some(_), _) => Err("on_failure is for messages with after".to_owned()),
            (None, Some(_)) => Err("wait_at_most is for messages with after".to_owned()),
        };
    };
    let mut waiting = Waiting::new();
    waiting.members = members;
    if let Some(name) = on_failure {
        let wrong = || "on_failure must be wait, deliver or cancel".to_owned();
        waiting.on_failure = OnFailure::named(&name).ok_or_else(wrong)?;
    }
    if let Some(at_most) = at_most {
        waiting.at_most = duration(&at_most).map_err(|why| format!("wait_at_most: {why}"))?;
    }
    Ok(Some(waiting))
}

/// The same message, as a message of the queue `own` names it: without the queue if it is that one.
pub(crate) fn seen_from(own: &str, member: Member) -> Member {
    let is_own = member.queue().is_some_and(|queue| queue.as_str() == own);
    if is_own { Member::new(None, member.id().clone()) } else { member }
}

/// A message that another one waits for, or wakes: an id, or a queue and an id.
pub(crate) fn member(value: &RawValue) -> Result<Member, String> {
    const FORM: &str = "an id, or an object with queue and id";
    if let Ok(id) = serde_json::from_str::<String>(value.get()) {
        return Member::try_from(id).map_err(|why| why.to_string());
    }
    let object = serde_json::from_str::<Object<String>>(value.get());
    let mut object = object.map_err(|_| format!("a member must be {FORM}"))?.0;
    object.sort_unstable();
    match &object[..] {
        [(id_name, id), (queue_name, queue)] if id_name == "id" && queue_name == "queue" => {
            let queue = QueueName::new(queue.as_str()).map_err(|why| why.to_string())?;
            Ok(Member::new(queue, MessageId::try_from(id.as_str()).map_err(|why| why.to_string())?))
        }
        _ => Err(format!("a member must be {FORM}")),
    }
}

#[cfg(test)]
mod tests {
    use crate::Fields;

    #[test]
    fn a_member_of_the_own_queue_is_the_same_with_its_queue() {
        let message = |fields: &str| {
            let line = format!(r#"{{"id": "a", "payload": 1, {fields}}}"#);
            Fields::from_json(line.as_bytes())?.message("orders", || Err("it has no id".to_owned()))
        };
        for [named, plain] in [
            [r#""after": [{"queue": "orders", "id": "b"}, "b"]"#, r#""after": ["b"]"#],
            [r#""wakes": {"queue": "orders", "id": "b"}"#, r#""wakes": "b""#],
        ] {
            assert_eq!(message(named).unwrap(), message(plain).unwrap());
        }
        let error = message(r#""after": [{"queue": "orders", "id": "a"}]"#).unwrap_err();
        assert!(error.contains("would wait for itself"), "{error}");
        let error = message(r#""after": [{"in": "orders", "queue": "b"}]"#).unwrap_err();
        assert!(error.contains("an object with queue and id"), "{error}");
    }
}
