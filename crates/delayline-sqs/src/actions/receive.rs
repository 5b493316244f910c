//! Receiving messages.

use std::sync::Arc;
use std::time::Duration;

use delayline::MessageId;
use delayline::Timestamp;
use delayline::after;
use delayline::backend::{Claim, Delivery, Extend, Millis, Op};
use delayline::limits::MAX_LEASE_MS;
use delayline::message::MessageState;
use delayline_web::waiting::{Hold, shown as shown_headers};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::attributes::{self, Extras};
use crate::call::{Answer, Call, Number, read, to_the_end, token};
use crate::digest::{hex, of_attributes, of_body};
use crate::error::{Code, Error};
use crate::leases::{claim_ids, transfer};
use crate::names::Arn;
use crate::queues::Open;
use crate::receipt::Receipt;
use crate::settings::{MOST_WAIT_S, Settings};

/// What a receiver asks for.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Asked {
    max_number_of_messages: Option<Number>,
    visibility_timeout: Option<Number>,
    wait_time_seconds: Option<Number>,
    #[serde(default)]
    attribute_names: Option<Vec<String>>,
    #[serde(default)]
    message_system_attribute_names: Option<Vec<String>>,
    #[serde(default)]
    message_attribute_names: Option<Vec<String>>,
    receive_request_attempt_id: Option<String>,
}

pub(super) async fn receive(call: &Call, input: Value) -> Result<Answer, Error> {
    let (open, settings) = call.queue(&input).await?;
    let stop = open.stop();
    let asked: Asked = read(input)?;
    let shared = &call.shared;
    let max = asked.max_number_of_messages.unwrap_or(Number(1));
    let max = max.within("MaxNumberOfMessages", 1, 10)?;
    let most_visibility_s = if shared.queues.is_strict { 43_200 } else { MAX_LEASE_MS / 1_000 };
    let visibility_s = match asked.visibility_timeout {
        Some(number) => number.within("VisibilityTimeout", 0, most_visibility_s)?,
        None => settings.visibility_timeout_s(),
    };
    let wait_s = match asked.wait_time_seconds {
        Some(number) => number.within("WaitTimeSeconds", 0, MOST_WAIT_S)?,
        None => settings.wait_s(),
    };
    let wanted = Wanted::read(&asked)?;
    // A lease has at least a millisecond.
    let lease = Millis::new((visibility_s * 1_000).max(1))?;
    let max = usize::try_from(max).unwrap_or(1);
    let deadline =
        (wait_s > 0 && !stop.is_cancelled()).then(|| Instant::now() + Duration::from_secs(wait_s));
    let attempt = token("ReceiveRequestAttemptId", asked.receive_request_attempt_id)?;
    let mut attempt = attempt.filter(|_| open.is_fifo());
    let (mut failure, mut failures) = (None, 0);
    for _ in 0..MOST_CLAIMS {
        let visitor = &call.caller.visitor.name;
        let attempt = attempt.take();
        let is_new = attempt.is_none();
        let (consumer, claim_id) = claim_ids(visitor, &open.name, attempt.as_deref())?;
        let hold = Hold::new(&open.polls.claims, &open.queue, claim_id).await;
        // As in Amazon SQS, several messages of a group come together.
        let claim = Claim::new(consumer, claim_id, max, lease).several_in_order(open.is_fifo());
        let queue = &open.queue;
        let granted = open.polls.claim(queue, claim, is_new, &hold, deadline, &stop).await?;
        let was_empty = granted.claimed.deliveries.is_empty();
        let work = {
            let (call, open, settings) = (call.clone(), Arc::clone(&open), Arc::clone(&settings));
            let (deliveries, hold) = (granted.claimed.deliveries, hold.clone());
            async move {
                let left = not_buried(&call, &open, &settings, deliveries).await;
                if let Some(at) = granted.at.filter(|_| !is_new) {
                    extend(&open, &left.0, lease, at).await?;
                }
                drop(hold);
                Ok(left)
            }
        };
        let (deliveries, error) = to_the_end(work).await?;
        if !deliveries.is_empty() {
            let written = |it: &Delivery| wanted.write(call, &open, it, granted.at);
            let messages: Vec<_> = deliveries.iter().map(written).collect();
            return Ok(Answer { value: json!({"Messages": messages}), hold: Some(hold) });
        }
        if error.is_some() {
            // Released, they would be the first ones of each claim.
            hold.delivered();
            failure = error;
            failures += 1;
        }
        // The messages of an earlier request of this attempt may have been deleted.
        let is_last = was_empty && is_new;
        // A move fails after the patience of its queue.
        let has_tried = failures >= MOST_FAILURES;
        if is_last || has_tried || deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            break;
        }
    }
    failure.map_or_else(|| Ok(json!({}).into()), Err)
}

/// Lets the leases that an earlier request of the attempt was granted last as long as new ones, as
/// in Amazon SQS.
async fn extend(
    open: &Open,
    deliveries: &[Delivery],
    lease: Millis,
    at: Timestamp,
) -> Result<(), Error> {
    let is_old = |it: &&Delivery| match it.message.info.state {
        MessageState::Leased { deadline, .. } => deadline.since(at) < Duration::from(lease),
        _ => false,
    };
    let old = deliveries.iter().filter(is_old);
    let old: Vec<_> = old.map(|it| (it.message.info.id.clone(), it.lease)).collect();
    if !old.is_empty() {
        open.queue.apply(&Op::Extend(Extend::new(old, lease))).await?;
    }
    Ok(())
}

/// Moves the messages that have been received too often. Returns the others, and the error of a
/// move that failed: that message, and those of its group behind it, stay leased.
async fn not_buried(
    call: &Call,
    open: &Open,
    settings: &Settings,
    deliveries: Vec<Delivery>,
) -> (Vec<Delivery>, Option<Error>) {
    let (mut left, mut failure, mut blocked) = (Vec::new(), None, Vec::new());
    for delivery in deliveries {
        let group = delivery.message.info.group.clone();
        if open.is_fifo() && group.is_some() && blocked.contains(&group) {
            continue;
        }
        // The server may be full, and each move would take seconds to fail.
        if failure.is_some() && has_been_received_too_often(settings, &delivery) {
            blocked.push(group);
            continue;
        }
        match buried(call, open, settings, &delivery).await {
            Ok(true) => {}
            Ok(false) => left.push(delivery),
            Err(error) => {
                failure = Some(error);
                blocked.push(group);
            }
        }
    }
    (left, failure)
}

fn has_been_received_too_often(settings: &Settings, delivery: &Delivery) -> bool {
    let most = settings.redrive().map(|redrive| redrive.max_receive_count);
    most.is_some_and(|most| delivery.message.info.epoch > most)
}

/// Moves a message to the dead-letter queue if it has been received too often. Returns `true` if it
/// did.
async fn buried(
    call: &Call,
    open: &Open,
    settings: &Settings,
    delivery: &Delivery,
) -> Result<bool, Error> {
    let Some(redrive) = settings.redrive() else { return Ok(false) };
    if !has_been_received_too_often(settings, delivery) {
        return Ok(false);
    }
    // A dead-letter queue that was deleted: the message stays, as it does in SQS.
    let (target, to) = match call.shared.queues.get(&redrive.queue).await {
        Ok(target) => target,
        Err(error) if error.code() == Code::QueueDoesNotExist => return Ok(false),
        Err(error) => return Err(error),
    };
    let mut extras = Extras::of(&delivery.message.headers);
    extras.source = Some(open.name.clone());
    let info = &delivery.message.info;
    if open.is_fifo() {
        // Replayed under the first one, the message would be a duplicate of itself.
        extras.deduplication_id = Some(shown(&info.id));
    } else {
        extras.sent_ms.get_or_insert(info.enqueued_at.as_ms());
    }
    // Not the epoch: if the move is repeated, the message must have the same content.
    extras.receives = extras.receives.saturating_add(redrive.max_receive_count);
    let expiry = to.expiry(Duration::ZERO, call.shared.queues.is_strict);
    transfer(open, delivery, &target, expiry, extras, false).await?;
    Ok(true)
}

/// The attributes that a receiver wants.
struct Wanted {
    system: Vec<String>,
    attributes: Vec<String>,
}

impl Wanted {
    fn read(asked: &Asked) -> Result<Self, Error> {
        let lists = [&asked.attribute_names, &asked.message_system_attribute_names];
        let system: Vec<_> = lists.into_iter().flatten().flatten().cloned().collect();
        if let Some(unknown) = system.iter().find(|name| !SYSTEM.contains(&name.as_str())) {
            let shown: String = unknown.chars().take(80).collect();
            let why = format!("Unknown Attribute {shown}.");
            return Err(Error::new(Code::InvalidAttributeName, why));
        }
        let attributes = asked.message_attribute_names.clone().unwrap_or_default();
        Ok(Self { system, attributes })
    }

    fn write(&self, call: &Call, open: &Open, delivery: &Delivery, at: Option<Timestamp>) -> Value {
        let message = &delivery.message;
        let headers = shown_headers(&call.caller.visitor, &message.headers);
        let (info, extras) = (&message.info, Extras::of(&headers));
        let payload = after::delivered(&message.headers, &message.payload)
            .map_or_else(|_| message.payload.clone(), |(payload, _)| payload);
        let body = attributes::body(&payload);
        let receipt =
            Receipt { id: info.id.clone(), lease: delivery.lease, sequence: info.sequence };
        // Another server may have delivered it first. Then the due time comes closest.
        let received = at.unwrap_or(info.due);
        let first = if info.epoch <= 1 { received } else { info.due };
        let first = open.latest.keep(&receipt, received, first, &info.state);
        let mut value = json!({
            "MessageId": shown(&info.id),
            "ReceiptHandle": receipt.write(&open.name),
            "MD5OfBody": of_body(&body),
            "Body": body,
        });
        let Value::Object(members) = &mut value else { return value };
        let all = attributes::of_headers(&headers, &extras);
        let attributes = attributes::only(all, &self.attributes);
        if let Some(md5) = of_attributes(&attributes) {
            members.insert("MD5OfMessageAttributes".to_owned(), md5.into());
            members.insert("MessageAttributes".to_owned(), attributes::write(&attributes));
        }
        let receives = info.epoch.saturating_add(extras.receives);
        let sent_ms = extras.sent_ms.unwrap_or(info.enqueued_at.as_ms());
        let source = extras.source.as_ref();
        let system = [
            ("SenderId", Some(extras.sender.unwrap_or_else(|| SENDER.to_owned()))),
            ("SentTimestamp", Some(sent_ms.to_string())),
            ("ApproximateReceiveCount", Some(receives.to_string())),
            ("ApproximateFirstReceiveTimestamp", Some(first.as_ms().to_string())),
            ("SequenceNumber", open.is_fifo().then(|| format!("{:020}", info.sequence))),
            ("MessageDeduplicationId", extras.deduplication_id),
            ("MessageGroupId", info.group.as_ref().map(|group| group.as_str().to_owned())),
            ("AWSTraceHeader", extras.trace_header),
            (
                "DeadLetterQueueSourceArn",
                source.map(|queue| Arn::write(&call.caller.region, queue)),
            ),
        ];
        let is_wanted = |name: &str| self.system.iter().any(|it| it == "All" || it == name);
        let system: serde_json::Map<_, _> = system
            .into_iter()
            .filter(|(name, _)| is_wanted(name))
            .filter_map(|(name, value)| Some((name.to_owned(), Value::String(value?))))
            .collect();
        if !system.is_empty() {
            members.insert("Attributes".to_owned(), system.into());
        }
        value
    }
}

/// The id of a message as an answer has it. Programs with the library may choose ids that are no
/// text.
fn shown(id: &MessageId) -> String {
    match id.as_str() {
        Some(text) if text.chars().all(attributes::is_allowed) => text.to_owned(),
        _ => hex(id.as_bytes()),
    }
}

const SYSTEM: [&str; 11] = [
    "All",
    "SenderId",
    "SentTimestamp",
    "ApproximateReceiveCount",
    "ApproximateFirstReceiveTimestamp",
    "SequenceNumber",
    "MessageDeduplicationId",
    "MessageGroupId",
    "AWSTraceHeader",
    "DeadLetterQueueSourceArn",
    // Asked for by some clients; there is no value.
    "SqsManagedSseEnabled",
];
/// The sender of messages without one.
const SENDER: &str = "delayline";
/// Claims of one receive whose messages all go to a dead-letter queue.
const MOST_CLAIMS: usize = 20;
/// Maximum number of claims of one request of which a move fails.
const MOST_FAILURES: u32 = 2;
