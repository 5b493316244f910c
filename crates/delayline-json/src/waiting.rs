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
