//! The actions of SQS.

mod dead;
mod manage;
mod receive;
mod send;
mod settle;

use delayline_web::Role;
use serde_json::Value;

use crate::call::{Answer, Call};
use crate::error::{Code, Error};

/// Whether an action changes nothing.
pub(crate) fn only_reads(action: &str) -> bool {
    READS.contains(&action)
}

/// Executes an action.
pub(crate) async fn execute(call: &Call, action: &str, input: Value) -> Result<Answer, Error> {
    let roles: &[Role] = match action {
        "ReceiveMessage"
        | "DeleteMessage"
        | "DeleteMessageBatch"
        | "ChangeMessageVisibility"
        | "ChangeMessageVisibilityBatch" => &[Role::Worker],
        action if only_reads(action) => &[Role::Viewer, Role::Worker],
        _ => &[Role::Operator],
    };
    let name = ["QueueUrl", "QueueName", "SourceArn"].into_iter();
    let queue = name.filter_map(|name| input.get(name)).find_map(Value::as_str);
    let queue: String = queue.unwrap_or_default().chars().take(MOST_LOGGED).collect();
    let queue = queue.escape_debug().to_string();
    let visitor = call.caller.visitor.name.escape_debug().to_string();
    if let Err(error) = call.caller.require(roles) {
        let outcome = error.message();
        tracing::warn!(
            target: "delayline_sqs::audit", visitor, action, queue, outcome, "refused"
        );
        return Err(error);
    }
    let value = match action {
        "SendMessage" => send::one(call, input).await?,
        "SendMessageBatch" => send::batch(call, input).await?,
        "ReceiveMessage" => return receive::receive(call, input).await,
        "DeleteMessage" => settle::delete(call, input).await?,
        "DeleteMessageBatch" => settle::delete_batch(call, input).await?,
        "ChangeMessageVisibility" => settle::change(call, input).await?,
        "ChangeMessageVisibilityBatch" => settle::change_batch(call, input).await?,
        "CreateQueue" => manage::create(call, input).await?,
        "DeleteQueue" => manage::delete(call, input).await?,
        "GetQueueUrl" => manage::url(call, input).await?,
        "ListQueues" => manage::list(call, input).await?,
        "GetQueueAttributes" => manage::attributes(call, input).await?,
        "SetQueueAttributes" => manage::set_attributes(call, input).await?,
        "PurgeQueue" => manage::purge(call, input).await?,
        "TagQueue" => manage::tag(call, input).await?,
        "UntagQueue" => manage::untag(call, input).await?,
        "ListQueueTags" => manage::tags(call, input).await?,
        "ListDeadLetterSourceQueues" => dead::sources(call, input).await?,
        "StartMessageMoveTask" => dead::start(call, input).await?,
        "CancelMessageMoveTask" => dead::cancel(call, input).await?,
        "ListMessageMoveTasks" => dead::list(call, input).await?,
        "AddPermission" | "RemovePermission" => {
            let why = "Permissions are not offered. Limit users to queues in the file of users.";
            return Err(Error::new(Code::UnsupportedOperation, why));
        }
        _ => return Err(Error::unknown_action(action)),
    };
    // Sends are frequent, as reads are, so they are logged at a lower level.
    if roles == [Role::Operator] && !action.starts_with("Send") {
        tracing::info!(target: "delayline_sqs::audit", visitor, action, queue, "action");
    } else {
        tracing::debug!(target: "delayline_sqs::audit", visitor, action, queue, "action");
    }
    Ok(value.into())
}

const READS: [&str; 6] = [
    "GetQueueUrl",
    "ListQueues",
    "GetQueueAttributes",
    "ListQueueTags",
    "ListDeadLetterSourceQueues",
    "ListMessageMoveTasks",
];
/// Characters of a queue's URL in a line of the log.
const MOST_LOGGED: usize = 300;
