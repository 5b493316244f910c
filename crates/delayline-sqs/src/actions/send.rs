//! Sending messages.

use std::collections::HashMap;
use std::time::Duration;

use delayline::backend::{Completion, Found, Op, Reply};
use delayline::limits::{MAX_ATTEMPT_LIMIT, MAX_DELAY_MS};
use delayline::{Bytes, Draft, Enqueued, MessageId};
use ring::digest::{Context, SHA256};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::attributes::{self, Attributes, Content, Extras};
use crate::call::{Call, Number, batch_answer, entries, read, to_the_end, token};
use crate::digest;
use crate::error::{Code, Error};
use crate::leases::DEDUPLICATION;
use crate::queues::Open;
use crate::settings::{MOST_MESSAGE_BYTES, Settings};

/// A message as a request has it.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    message_body: Option<String>,
    delay_seconds: Option<Number>,
    #[serde(default)]
    message_attributes: Option<Map<String, Value>>,
    #[serde(default)]
    message_system_attributes: Option<Map<String, Value>>,
    message_deduplication_id: Option<String>,
    message_group_id: Option<String>,
}

/// A message that is ready to be sent.
struct Prepared {
    body: String,
    delay: Duration,
    attributes: Attributes,
    system: Attributes,
    group: Option<String>,
    deduplication_id: Option<String>,
    extras: Extras,
}

pub(super) async fn one(call: &Call, input: Value) -> Result<Value, Error> {
    let (open, settings) = call.queue(&input).await?;
    let entry: Entry = read(input)?;
    entry.is_complete(&open, &settings)?;
    let prepared = prepare(call, &open, &settings, entry)?;
    let call = call.clone();
    let sent = to_the_end(async move {
        Ok(send(&call, &open, &settings, vec![prepared]).await?.into_iter().next())
    });
    sent.await?.unwrap_or_else(|| Err(Error::internal()))
}

pub(super) async fn batch(call: &Call, input: Value) -> Result<Value, Error> {
    let (open, settings) = call.queue(&input).await?;
    let (mut ids, mut prepared, mut results) = (Vec::new(), Vec::new(), Vec::new());
    let entries =
        entries("SendMessage", input)?.into_iter().map(|(id, entry)| (id, read::<Entry>(entry)));
    let entries: Vec<_> = entries.collect();
    for entry in entries.iter().filter_map(|(_, entry)| entry.as_ref().ok()) {
        // The code is another one than that of a single message.
        entry.is_complete(&open, &settings).map_err(|error| Error::value(error.message()))?;
    }
    // One entry that is too long makes the batch too long.
    let bodies = entries.iter().filter_map(|(_, entry)| entry.as_ref().ok()?.message_body.as_ref());
    not_too_long(bodies.map(|body| u64::try_from(body.len()).unwrap_or(u64::MAX)).sum())?;
    for (id, entry) in entries {
        match entry.and_then(|entry| prepare(call, &open, &settings, entry)) {
            Ok(message) => {
                ids.push(id);
                prepared.push(message);
            }
            Err(error) => results.push((id, Err(error))),
        }
    }
    not_too_long(prepared.iter().map(Prepared::bytes).sum())?;
    let call = call.clone();
    let sent = to_the_end(async move { send(&call, &open, &settings, prepared).await }).await?;
    results.extend(ids.into_iter().zip(sent));
    Ok(batch_answer(results))
}

/// Returns an error if a batch has more bytes than SQS permits.
fn not_too_long(bytes: u64) -> Result<(), Error> {
    if bytes <= MOST_MESSAGE_BYTES {
        return Ok(());
    }
    let why = format!(
        "Batch requests cannot be longer than {MOST_MESSAGE_BYTES} bytes. You have sent {bytes} \
         bytes."
    );
    Err(Error::new(Code::BatchRequestTooLong, why))
}

impl Entry {
    /// Returns an error if a message of a FIFO queue has no group or no deduplication id. One such
    /// entry fails its whole batch.
    fn is_complete(&self, open: &Open, settings: &Settings) -> Result<(), Error> {
        if !open.is_fifo() {
            return Ok(());
        }
        if self.message_group_id.is_none() {
            return Err(Error::missing("MessageGroupId"));
        }
        if self.message_deduplication_id.is_none() && !settings.deduplicates_contents() {
            let why = "The queue should either have ContentBasedDeduplication enabled or \
                       MessageDeduplicationId provided explicitly";
            return Err(Error::value(why));
        }
        Ok(())
    }
}

impl Prepared {
    fn bytes(&self) -> u64 {
        let attributes = self.attributes.iter().map(|(name, it)| name.len() + it.bytes());
        u64::try_from(self.body.len() + attributes.sum::<usize>()).unwrap_or(u64::MAX)
    }

    /// The id of a message that is deduplicated. `generation` counts the messages of this
    /// deduplication id that the queue still has although their five minutes have passed.
    fn id(&self, settings: &Settings, generation: u8) -> Option<MessageId> {
        let deduplication_id = self.deduplication_id.as_ref()?;
        let scope = match &self.group {
            Some(group) if settings.deduplicates_by_group() => group.as_str(),
            _ => "",
        };
        let mut hash = Context::new(&SHA256);
        // A purge, and a new queue of this name, forget the ids from before.
        for instant in [settings.created_ms, settings.purged_ms] {
            hash.update(&instant.to_be_bytes());
        }
        for part in [scope, deduplication_id] {
            hash.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            hash.update(part.as_bytes());
        }
        hash.update(&[generation]);
        let bytes = hash.finish().as_ref().first_chunk().copied()?;
        MessageId::try_from(uuid::Builder::from_random_bytes(bytes).into_uuid().to_string()).ok()
    }

    /// The message as the queue gets it.
    fn draft(
        &self,
        call: &Call,
        open: &Open,
        settings: &Settings,
        id: &MessageId,
    ) -> Result<Draft, Error> {
        let headers = attributes::headers(&self.attributes, self.extras.clone())?;
        let mut draft = open.queue.message(&Bytes::from(self.body.clone())).id(id);
        for (name, value) in headers.iter() {
            draft = draft.header(name, value.clone());
        }
        // The end of a lease is no failure: only a redrive policy ends the attempts.
        draft = draft.max_failures(MAX_ATTEMPT_LIMIT).max_crashes(MAX_ATTEMPT_LIMIT);
        draft = draft.due_in(self.delay);
        if let Some(after) = settings.expiry(self.delay, call.shared.queues.is_strict) {
            draft = draft.expires_in(after);
        }
        if let Some(group) = &self.group {
            draft = draft.group(group);
        }
        if self.deduplication_id.is_some() {
            draft = draft.throttle(DEDUPLICATION);
        }
        Ok(draft)
    }
}

fn prepare(call: &Call, open: &Open, settings: &Settings, entry: Entry) -> Result<Prepared, Error> {
    let body = entry.message_body.ok_or_else(|| Error::missing("MessageBody"))?;
    attributes::valid_body(&body)?;
    let is_fifo = open.is_fifo();
    let delay_s = match entry.delay_seconds {
        Some(Number(seconds)) if is_fifo && seconds != 0 => {
            let why = format!(
                "Value {seconds} for parameter DelaySeconds is invalid. Reason: The request \
                 include parameter that is not valid for this queue type."
            );
            return Err(Error::value(why));
        }
        Some(number) if !is_fifo => {
            let most = if call.shared.queues.is_strict { 900 } else { MAX_DELAY_MS / 1_000 };
            number.within("DelaySeconds", 0, most)?
        }
        _ => settings.delay_s(),
    };
    let attributes = attributes::read(&entry.message_attributes.unwrap_or_default())?;
    if call.shared.queues.is_strict && attributes.len() > 10 {
        let count = attributes.len();
        let why =
            format!("Number of message attributes [{count}] exceeds the allowed maximum [10].");
        return Err(Error::value(why));
    }
    let system = attributes::read(&entry.message_system_attributes.unwrap_or_default())?;
    let mut extras = Extras { trace_header: call.trace.clone(), ..Extras::default() };
    for (name, attribute) in &system {
        match &attribute.content {
            Content::Text(text) if name == "AWSTraceHeader" => {
                extras.trace_header = Some(text.clone());
            }
            _ => {
                let why = format!("Unknown message system attribute {name}.");
                return Err(Error::value(why));
            }
        }
    }
    if call.caller.is_named {
        extras.sender = Some(call.caller.visitor.name.clone());
    }
    let group = token("MessageGroupId", entry.message_group_id)?;
    let mut deduplication_id = token("MessageDeduplicationId", entry.message_deduplication_id)?;
    if is_fifo {
        let of_content = || digest::hex(ring::digest::digest(&SHA256, body.as_bytes()).as_ref());
        deduplication_id.get_or_insert_with(of_content);
        extras.deduplication_id.clone_from(&deduplication_id);
    } else if deduplication_id.is_some() {
        let why = "The request include parameter MessageDeduplicationId that is not valid for \
                   this queue type";
        return Err(Error::value(why));
    }
    let delay = Duration::from_secs(delay_s);
    let prepared = Prepared { body, delay, attributes, system, group, deduplication_id, extras };
    let most = settings.most_message_bytes();
    if prepared.bytes() > most {
        let why = format!(
            "One or more parameters are invalid. Reason: Message must be shorter than {most} \
             bytes."
        );
        return Err(Error::value(why));
    }
    Ok(prepared)
}

/// Sends messages, and returns an answer for each of them.
async fn send(
    call: &Call,
    open: &Open,
    settings: &Settings,
    messages: Vec<Prepared>,
) -> Result<Vec<Result<Value, Error>>, Error> {
    let ids = ids(open, settings, &messages).await?;
    let mut drafts = Vec::new();
    // Where the result of each message is: a deduplication id may be there twice.
    let mut places: HashMap<&MessageId, usize> = HashMap::new();
    let mut drafted = Vec::new();
    for (message, id) in messages.iter().zip(&ids) {
        drafted.push(match places.get(id) {
            Some(place) => Ok(*place),
            None => message.draft(call, open, settings, id).map(|draft| {
                drafts.push(draft);
                let place = drafts.len() - 1;
                places.insert(id, place);
                place
            }),
        });
    }
    let outcomes = match drafts.len() {
        // Grouped with the sends of other requests.
        1 => vec![drafts.remove(0).send().await],
        _ => open.queue.send_many(drafts).await,
    };
    let sequences = sequences(open, &ids).await?;
    let answer = |((message, id), drafted): ((&Prepared, &MessageId), Result<usize, Error>)| {
        let sent = outcomes.get(drafted?).cloned().ok_or_else(Error::internal)??;
        match sent.outcome {
            Enqueued::TooManyThrottled => {
                let why = "The queue deduplicates 100,000 messages of the last five minutes.";
                Err(Error::new(Code::RequestThrottled, why))
            }
            // Anything else is a duplicate, which is accepted and not delivered.
            _ => Ok(answered(message, id, sequences.get(id).copied())),
        }
    };
    Ok(messages.iter().zip(&ids).zip(drafted).map(answer).collect())
}

fn answered(message: &Prepared, id: &MessageId, sequence: Option<u64>) -> Value {
    let mut value = json!({
        "MessageId": id.as_str().unwrap_or_default(),
        "MD5OfMessageBody": digest::of_body(&message.body),
    });
    let mut add = |name: &str, text: Option<String>| {
        if let (Value::Object(members), Some(text)) = (&mut value, text) {
            members.insert(name.to_owned(), text.into());
        }
    };
    add("MD5OfMessageAttributes", digest::of_attributes(&message.attributes));
    add("MD5OfMessageSystemAttributes", digest::of_attributes(&message.system));
    add("SequenceNumber", sequence.map(|number| format!("{number:020}")));
    value
}

/// The ids of messages. One that is deduplicated has an id of the first generation that the queue
/// does not have from more than five minutes ago.
async fn ids(
    open: &Open,
    settings: &Settings,
    messages: &[Prepared],
) -> Result<Vec<MessageId>, Error> {
    let mut ids = Vec::with_capacity(messages.len());
    for message in messages {
        ids.push(match message.id(settings, 0) {
            Some(id) => id,
            // Time-ordered, so that ids sort by creation.
            None => MessageId::try_from(Uuid::now_v7().to_string())?,
        });
    }
    let mut open_ends: Vec<usize> = match open.is_fifo() {
        true => (0..messages.len()).collect(),
        false => Vec::new(),
    };
    for generation in 1..=MOST_GENERATIONS {
        if open_ends.is_empty() {
            break;
        }
        let mut asked: Vec<_> = open_ends.iter().filter_map(|at| ids.get(*at).cloned()).collect();
        asked.sort();
        asked.dedup();
        let applied = open.queue.apply(&Op::Get(asked.clone())).await?;
        let Reply::Get(found) = applied.reply else { return Err(Error::internal()) };
        let is_old = |found: &Found| match found {
            Found::Live(message) => applied.at.since(message.info.enqueued_at) >= DEDUPLICATION,
            _ => false,
        };
        let old: Vec<_> =
            asked.iter().zip(&found).filter(|(_, found)| is_old(found)).map(|(id, _)| id).collect();
        open_ends.retain(|at| ids.get(*at).is_some_and(|id| old.contains(&id)));
        for at in &open_ends {
            if let (Some(id), Some(message)) = (ids.get_mut(*at), messages.get(*at))
                && let Some(next) = message.id(settings, generation)
            {
                *id = next;
            }
        }
    }
    Ok(ids)
}

/// The sequence numbers of the messages of a FIFO queue that are still there, or were deleted while
/// their deduplication ids count.
async fn sequences(open: &Open, ids: &[MessageId]) -> Result<HashMap<MessageId, u64>, Error> {
    if !open.is_fifo() || ids.is_empty() {
        return Ok(HashMap::new());
    }
    let mut asked = ids.to_vec();
    asked.sort();
    asked.dedup();
    let reply = open.queue.apply(&Op::Get(asked.clone())).await?.reply;
    let Reply::Get(found) = reply else { return Err(Error::internal()) };
    let live = found.into_iter().filter_map(|found| match found {
        Found::Live(message) => Some((message.info.id.clone(), message.info.sequence)),
        _ => None,
    });
    let mut numbers: HashMap<_, _> = live.collect();
    asked.retain(|id| !numbers.contains_key(id));
    if !asked.is_empty() {
        let reply = open.queue.apply(&Op::Progress(asked.clone())).await?.reply;
        let Reply::Progress(ended) = reply else { return Err(Error::internal()) };
        let kept = asked.into_iter().zip(ended).filter_map(|(id, ended)| match ended {
            Completion::Finished { result: Some(result), .. } => {
                Some((id, u64::from_be_bytes(result.as_ref().try_into().ok()?)))
            }
            _ => None,
        });
        numbers.extend(kept);
    }
    Ok(numbers)
}

/// Messages of one deduplication id that a queue can have at a time.
const MOST_GENERATIONS: u8 = u8::MAX;
