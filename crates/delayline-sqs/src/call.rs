//! Requests: who makes them, their parameters and their answers.

use std::collections::HashSet;
use std::sync::Arc;

use delayline_web::waiting::Hold;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::access::Caller;
use crate::error::{Code, Error};
use crate::names;
use crate::queues::Open;
use crate::settings::Settings;
use crate::shared::Shared;

/// A request: who makes it, and how it names the server.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) shared: Arc<Shared>,
    pub(crate) caller: Caller,
    /// How the URLs of queues begin.
    pub(crate) base: String,
    /// The trace that the request belongs to, as AWS X-Ray names it.
    pub(crate) trace: Option<String>,
}

/// The answer to an action.
pub(crate) struct Answer {
    pub(crate) value: Value,
    /// The leases that the answer has. They are released if no connection takes it.
    pub(crate) hold: Option<Hold>,
}

impl From<Value> for Answer {
    fn from(value: Value) -> Self {
        Self { value, hold: None }
    }
}

impl Call {
    /// Returns the queue that the request names by its URL, and its settings.
    pub(crate) async fn queue(&self, input: &Value) -> Result<(Arc<Open>, Arc<Settings>), Error> {
        self.named(&queue_name(input)?).await
    }

    /// Returns the queue of a name, and its settings.
    pub(crate) async fn named(&self, name: &str) -> Result<(Arc<Open>, Arc<Settings>), Error> {
        if !self.caller.knows(name) {
            return Err(Error::no_queue());
        }
        self.shared.queues.get(name).await
    }

    pub(crate) fn url(&self, queue: &str) -> String {
        names::url(&self.base, queue)
    }
}

/// Reads the parameters of an action.
pub(crate) fn read<T: DeserializeOwned>(input: Value) -> Result<T, Error> {
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
pub(crate) struct Number(pub(crate) i64);

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
    pub(crate) fn within(self, name: &str, least: u64, most: u64) -> Result<u64, Error> {
        let number = u64::try_from(self.0).ok().filter(|it| (least..=most).contains(it));
        number.ok_or_else(|| {
            let number = self.0;
            // SQS writes the limits of one parameter differently.
            let must = match name {
                "WaitTimeSeconds" => format!(">= {least} and <= {most}"),
                _ => format!("between {least} and {most}"),
            };
            Error::value(format!(
                "Value {number} for parameter {name} is invalid. Reason: Must be {must}, if \
                 provided."
            ))
        })
    }
}

/// Returns a parameter that names something, if it has the characters and the length of such names.
pub(crate) fn token(name: &str, value: Option<String>) -> Result<Option<String>, Error> {
    let is_valid =
        |text: &str| (1..=128).contains(&text.len()) && text.chars().all(|c| c.is_ascii_graphic());
    let Some(text) = value else { return Ok(None) };
    if is_valid(&text) {
        return Ok(Some(text));
    }
    let shown: String = text.chars().take(200).collect();
    Err(Error::value(format!(
        "Value {shown} for parameter {name} is invalid. Reason: {name} can only include \
         alphanumeric and punctuation characters. 1 to 128 in length."
    )))
}

/// The entries of a batch, each with its id.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Batch {
    #[serde(default)]
    entries: Vec<Value>,
}

/// Returns the entries of a batch of an action with their ids.
pub(crate) fn entries(action: &str, input: Value) -> Result<Vec<(String, Value)>, Error> {
    let Batch { entries } = read(input)?;
    if entries.is_empty() {
        let why = format!("There should be at least one {action}BatchRequestEntry in the request.");
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
pub(crate) fn batch_answer(results: Vec<(String, Result<Value, Error>)>) -> Value {
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
pub(crate) async fn to_the_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    tokio::spawn(work).await.map_err(|_| Error::internal())?
}

/// The name of the queue that a request names by its URL.
pub(crate) fn queue_name(input: &Value) -> Result<String, Error> {
    let url = input.get("QueueUrl").and_then(Value::as_str).filter(|url| !url.is_empty());
    names::of_url(url.ok_or_else(|| Error::missing("QueueUrl"))?)
}

const MOST_ENTRIES: usize = 10;
