//! Dead-letter queues: their sources, and tasks that move messages back.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::manage;
use crate::call::{Call, Number, read, to_the_end};
use crate::error::{Code, Error};
use crate::leases::counted;
use crate::moves::{MOST_PER_SECOND, Status, Task};
use crate::names::Arn;
use crate::queues::{Open, now_ms};

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Sources {
    max_results: Option<Number>,
    next_token: Option<String>,
}

pub(super) async fn sources(call: &Call, input: Value) -> Result<Value, Error> {
    let (open, _) = call.queue(&input).await?;
    let Sources { max_results, next_token } = read(input)?;
    let mut names = call.shared.queues.sources_of(&open.name).await?;
    names.retain(|name| call.caller.knows(name));
    manage::page(call, "queueUrls", names, max_results, next_token.as_deref())
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Start {
    source_arn: Option<String>,
    destination_arn: Option<String>,
    max_number_of_messages_per_second: Option<Number>,
    max_results: Option<Number>,
}

impl Start {
    /// The queue of the source.
    async fn source(&self, call: &Call) -> Result<Arc<Open>, Error> {
        let arn = self.source_arn.as_deref().ok_or_else(|| Error::missing("SourceArn"))?;
        queue(call, "SourceArn", arn).await
    }
}

/// The queue of an ARN.
async fn queue(call: &Call, parameter: &str, arn: &str) -> Result<Arc<Open>, Error> {
    let missing = || {
        let why =
            format!("The resource that you specified for the {parameter} parameter doesn't exist.");
        Error::new(Code::ResourceNotFound, why)
    };
    let name = Arn::queue(arn).ok_or_else(missing)?;
    match call.named(&name).await {
        Ok((open, _)) => Ok(open),
        Err(error) if error.code() == Code::QueueDoesNotExist => Err(missing()),
        Err(error) => Err(error),
    }
}

pub(super) async fn start(call: &Call, input: Value) -> Result<Value, Error> {
    let asked: Start = read(input)?;
    let source = asked.source(call).await?;
    let destination = match &asked.destination_arn {
        Some(arn) => Some(queue(call, "DestinationArn", arn).await?),
        None => None,
    };
    let is_other = |it: &Arc<Open>| it.name != source.name && it.is_fifo() == source.is_fifo();
    if !destination.as_ref().is_none_or(is_other) {
        let why = "The destination must be another queue, and of the same type as the source.";
        return Err(Error::value(why));
    }
    let per_second = match asked.max_number_of_messages_per_second {
        Some(number) => Some(number.within("MaxNumberOfMessagesPerSecond", 1, MOST_PER_SECOND)?),
        None => None,
    };
    if call.shared.queues.sources_of(&source.name).await?.is_empty() {
        let why = "Source queue must be configured as a Dead Letter Queue.";
        return Err(Error::value(why));
    }
    let task = Task {
        id: Uuid::new_v4().to_string(),
        source: source.name.clone(),
        destination: destination.map(|it| it.name.clone()),
        returns_to: call.shared.queues.known_to(&call.caller.visitor),
        per_second,
        region: call.caller.region.clone(),
        total: counted(&source).await?.ready,
        started_ms: now_ms(),
        moved: 0,
        status: Status::Running,
        failure: None,
    };
    let handle = task.handle();
    let shared = Arc::clone(&call.shared);
    to_the_end(async move { shared.moves.start(task).await }).await?;
    Ok(json!({"TaskHandle": handle}))
}

pub(super) async fn cancel(call: &Call, input: Value) -> Result<Value, Error> {
    let handle = input.get("TaskHandle").and_then(Value::as_str);
    let handle = handle.ok_or_else(|| Error::missing("TaskHandle"))?;
    let (id, arn) = Task::of_handle(handle)
        .ok_or_else(|| Error::value("Value for parameter TaskHandle is invalid."))?;
    let source = queue(call, "SourceArn", &arn).await?;
    let task = call.shared.moves.of(&source).await?.into_iter().find(|task| task.id == id);
    let task = task.ok_or_else(|| Error::new(Code::ResourceNotFound, "Task does not exist."))?;
    if !task.is_running() {
        let why = "Only active tasks can be cancelled.";
        return Err(Error::new(Code::UnsupportedOperation, why));
    }
    let (shared, moved) = (Arc::clone(&call.shared), task.moved);
    to_the_end(async move { shared.moves.cancel(&task).await }).await?;
    Ok(json!({"ApproximateNumberOfMessagesMoved": moved}))
}

pub(super) async fn list(call: &Call, input: Value) -> Result<Value, Error> {
    let asked: Start = read(input)?;
    let source = asked.source(call).await?;
    let max = asked.max_results.unwrap_or(Number(1)).within("MaxResults", 1, 10)?;
    let tasks = call.shared.moves.of(&source).await?;
    let most = usize::try_from(max).unwrap_or(1);
    let results: Vec<_> = tasks.iter().take(most).map(|task| task_shown(call, task)).collect();
    Ok(json!({"Results": results}))
}

fn task_shown(call: &Call, task: &Task) -> Value {
    let mut value = json!({
        "Status": task.status,
        "SourceArn": Arn::write(&task.region, &task.source),
        "ApproximateNumberOfMessagesMoved": task.moved,
        "ApproximateNumberOfMessagesToMove": task.total,
        "StartedTimestamp": task.started_ms,
    });
    let mut add = |name: &str, member: Option<Value>| {
        if let (Value::Object(members), Some(member)) = (&mut value, member) {
            members.insert(name.to_owned(), member);
        }
    };
    add("TaskHandle", (task.status == Status::Running).then(|| task.handle().into()));
    let destination = task.destination.as_ref().filter(|it| call.caller.knows(it));
    add("DestinationArn", destination.map(|it| Arn::write(&task.region, it).into()));
    add("MaxNumberOfMessagesPerSecond", task.per_second.map(Into::into));
    add("FailureReason", task.failure.clone().map(Into::into));
    value
}
