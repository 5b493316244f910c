//! Where a dead letter of the SQS endpoint comes from.

use delayline::message::Headers;
use serde_json::Value;

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
