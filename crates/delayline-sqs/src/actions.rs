//! The actions of SQS.

mod dead;
mod manage;
mod receive;
mod send;
mod settle;

use std::collections::HashSet;
use std::sync::Arc;

use delayline_web::Role;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::access::Caller;
use crate::error::{Code, Error};
use crate::names;
use crate::queues::Open;
use crate::settings::Settings;
use crate::sqs::Shared;
use crate::wire::{Answer, queue_name};

pub(crate) use self::dead::transfer;
pub(crate) use self::manage::counted;
pub(crate) use self::receive::claim_ids;
use self::receive::reclaim;

/// A request: who makes it, and how it names the server.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) shared: Arc<Shared>,
    pub(crate) caller: Caller,
    /// How the URLs of queues begin.
    pub(crate) base: String,
}

/// Executes an action.
pub(crate) async fn execute(call: &Call, action: &str, input: Value) -> Result<Answer, Error> {
    let roles: &[Role] = match action {
        "ReceiveMessage"
        | "DeleteMessage"
        | "DeleteMessageBatch"
        | "ChangeMessageVisibility"
        | "ChangeMessageVisibilityBatch" => &[Role::Worker],
        "GetQueueUrl"
        | "ListQueues"
        | "GetQueueAttributes"
        | "ListQueueTags"
        | "ListDeadLetterSourceQueues"
        | "ListMessageMoveTasks" => &[Role::Viewer, Role::Worker],
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
        _ => {
            let why = "The action is not one of SQS.";
            return Err(Error::new(Code::UnknownOperation, why));
        }
    };
    // Sends are frequent, as reads are, so they are logged at a lower level.
    if roles == [Role::Operator] && !action.starts_with("Send") {
        tracing::info!(target: "delayline_sqs::audit", visitor, action, queue, "action");
    } else {
        tracing::debug!(target: "delayline_sqs::audit", visitor, action, queue, "action");
    }
    Ok(value.into())
}

impl Call {
    /// Returns the queue that the request names by its URL, and its settings.
    async fn queue(&self, input: &Value) -> Result<(Arc<Open>, Arc<Settings>), Error> {
        self.named(&queue_name(input)?).await
    }

    /// Returns the queue of a name, and its settings.
    async fn named(&self, name: &str) -> Result<(Arc<Open>, Arc<Settings>), Error> {
        if !self.caller.knows(name) {
            return Err(Error::no_queue());
        }
        self.shared.queues.get(name).await
    }

    fn url(&self, queue: &str) -> String {
        names::url(&self.base, queue)
    }
}

/// Reads the parameters of an action.
fn read<T: DeserializeOwned>(input: Value) -> Result<T, Error> {
    serde_json::from_value(input).map_err(|error| {
        // The texts of these errors may quote values.
        let why = if error.to_string().starts_with("missing field") {
            "a required parameter is missing"
        } else {
            "a parameter has the wrong type"
        };
        Error::value(format!("The parameters of the action cannot be read: {why}."))
    })
}

/// A number, which the Query protocol sends as text.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "Value")]
struct Number(i64);

impl TryFrom<Value> for Number {
    type Error = &'static str;

    fn try_from(value: Value) -> Result<Self, Self::Error> {
        let number = match &value {
            Value::Number(number) => number.as_i64(),
            Value::String(text) => text.parse().ok(),
            _ => None,
        };
        number.map(Self).ok_or("it is no integer")
    }
}

impl Number {
    /// Returns the number if it is within the limits.
    fn within(self, name: &str, least: u64, most: u64) -> Result<u64, Error> {
        let number = u64::try_from(self.0).ok().filter(|it| (least..=most).contains(it));
        number.ok_or_else(|| {
            let number = self.0;
            Error::value(format!(
                "Value {number} for parameter {name} is invalid. Reason: Must be between {least} \
                 and {most}, if provided."
            ))
        })
    }
}

/// The entries of a batch, each with its id.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Batch {
    #[serde(default)]
    entries: Vec<Value>,
}

/// Returns the entries of a batch with their ids.
fn entries(input: Value) -> Result<Vec<(String, Value)>, Error> {
    let Batch { entries } = read(input)?;
    if entries.is_empty() {
        let why = "There should be at least one entry in the request.";
        return Err(Error::new(Code::EmptyBatchRequest, why));
    }
    if entries.len() > MOST_ENTRIES {
        let count = entries.len();
        let why = format!(
            "Maximum number of entries per request are {MOST_ENTRIES}. You have sent {count}."
        );
        return Err(Error::new(Code::TooManyEntries, why));
    }
    let mut ids = HashSet::new();
    let mut named = Vec::with_capacity(entries.len());
    for entry in entries {
        let id = entry.get("Id").and_then(Value::as_str).unwrap_or_default().to_owned();
        let is_id = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        if id.is_empty() || id.len() > 80 || !id.chars().all(is_id) {
            let why = "A batch entry id can only contain alphanumeric characters, hyphens and \
                       underscores. It can be at most 80 letters long.";
            return Err(Error::new(Code::InvalidBatchEntryId, why));
        }
        if !ids.insert(id.clone()) {
            let why = format!("Id {id} repeated.");
            return Err(Error::new(Code::BatchEntryIdsNotDistinct, why));
        }
        named.push((id, entry));
    }
    Ok(named)
}

/// The answer to a batch: what each entry has become.
fn batch_answer(results: Vec<(String, Result<Value, Error>)>) -> Value {
    let (mut successful, mut failed) = (Vec::new(), Vec::new());
    for (id, result) in results {
        match result {
            Ok(Value::Object(mut members)) => {
                members.insert("Id".to_owned(), id.into());
                successful.push(Value::Object(members));
            }
            Ok(_) => successful.push(json!({"Id": id})),
            Err(error) => failed.push(json!({
                "Id": id,
                "SenderFault": error.is_of_sender(),
                "Code": error.query_code(),
                "Message": error.message(),
            })),
        }
    }
    let lists = [("Successful", successful), ("Failed", failed)];
    let lists = lists.into_iter().filter(|(_, list)| !list.is_empty());
    lists.map(|(name, list)| (name.to_owned(), list.into())).collect::<Map<_, _>>().into()
}

/// Ends the work even if its client disconnects.
async fn to_the_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    tokio::spawn(work).await.map_err(|_| Error::internal())?
}

/// Characters of a queue's URL in a line of the log.
const MOST_LOGGED: usize = 300;
const MOST_ENTRIES: usize = 10;
