//! Where a dead letter of the SQS endpoint comes from.

use delayline::message::Headers;
use serde::Deserialize;

use crate::Visitor;

/// The header with what the SQS endpoint knows of a message.
pub const SQS_HEADER: &str = "delayline-sqs";

#[derive(Deserialize)]
struct Origin {
    #[serde(default, rename = "q")]
    queue: Option<String>,
}

/// Returns an error if headers name a queue that the visitor does not know as the origin of a
/// message: a message move task, perhaps of another user, would send the message there.
pub(crate) fn known(visitor: &Visitor, headers: &Headers) -> Result<(), String> {
    let origin = headers.get(SQS_HEADER).and_then(|json| serde_json::from_slice(json).ok());
    match origin.and_then(|Origin { queue }| queue) {
        Some(queue) if !visitor.knows(&queue) => {
            Err(format!("the header {SQS_HEADER} names a queue that does not exist here"))
        }
        _ => Ok(()),
    }
}
