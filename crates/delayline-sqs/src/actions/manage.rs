//! Queues, their attributes and their tags.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use delayline::admin::SetLimits;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::call::{Call, Number, queue_name, read, to_the_end};
use crate::error::{Code, Error};
use crate::leases::counted;
use crate::names::{self, Arn, FIFO};
use crate::queues::{MOST_TRIES, clear, now_ms};
use crate::settings::{self, Settings};

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Create {
    queue_name: Option<String>,
    #[serde(default)]
    attributes: Option<BTreeMap<String, String>>,
    #[serde(default, alias = "tags")]
    tags: Option<BTreeMap<String, String>>,
}

pub(super) async fn create(call: &Call, input: Value) -> Result<Value, Error> {
    let Create { queue_name, attributes, tags } = read(input)?;
    let name = queue_name.ok_or_else(|| Error::missing("QueueName"))?;
    let attributes = attributes.unwrap_or_default();
    let (shared, tags) = (&call.shared, tags.unwrap_or_default());
    names::valid(&name, shared.queues.is_strict)?;
    let wants_fifo =
        attributes.get("FifoQueue").is_some_and(|value| value.eq_ignore_ascii_case("true"));
    if name.ends_with(FIFO) && !wants_fifo {
        let why = "The name of a queue that is no FIFO queue must not end with .fifo.";
        return Err(Error::value(why));
    }
    if wants_fifo && !name.ends_with(FIFO) {
        return Err(Error::value("The name of a FIFO queue must end with .fifo."));
    }
    if !call.caller.knows(&name) || shared.queues.permitted(&name).is_err() {
        let why = "The user may not create a queue of this name.";
        return Err(Error::new(Code::AccessDenied, why));
    }
    let now_ms = shared.queues.settings().server_time().await?.as_ms();
    let mut settings =
        Settings { tags, created_ms: now_ms, modified_ms: now_ms, ..Settings::default() };
    settings.set(&name, &attributes, shared.queues.is_strict)?;
    settings.check_together()?;
    valid_tags(&name, &settings.tags)?;
    has_target(call, &name, &settings).await?;
    let url = json!({"QueueUrl": call.url(&name)});
    let shared = Arc::clone(shared);
    let is_strict = shared.queues.is_strict;
    let work = async move {
        shared.queues.wait_for_removal(&name, MOST_WAIT).await?;
        let _changing = shared.queues.changing().await;
        for _ in 0..MOST_TRIES {
            let known = shared.queues.read(&name).await?;
            settings.version = known.as_ref().map_or(0, |known| known.version);
            match known.as_deref() {
                Some(known) if !known.is_deleted => {
                    shared.queues.opened(&name).await?.ensure_order().await?;
                    return same(known, &settings, &name, attributes.keys());
                }
                Some(known)
                    if is_strict && now_ms < known.modified_ms.saturating_add(MINUTE_MS) =>
                {
                    let why = "You must wait 60 seconds after deleting a queue before you can \
                               create another with the same name.";
                    return Err(Error::new(Code::QueueDeletedRecently, why));
                }
                Some(known) if known.is_being_deleted => {
                    let why = "A server is deleting a queue of this name. Repeat the request.";
                    return Err(Error::new(Code::QueueDeletedRecently, why));
                }
                _ => {}
            }
            if name.ends_with(FIFO) {
                let open = shared.queues.opened(&name).await?;
                open.queue.set_limits(SetLimits::new().in_order(true)).await?;
            }
            if shared.queues.put(&name, &settings).await? {
                return Ok(());
            }
        }
        Err(Error::busy())
    };
    to_the_end(work).await?;
    Ok(url)
}

/// Returns an error unless a queue that exists has the values that a request asks for, and its tags
/// if it has any.
fn same<'a>(
    known: &Settings,
    asked: &Settings,
    queue: &str,
    mut names: impl Iterator<Item = &'a String>,
) -> Result<(), Error> {
    if !asked.tags.is_empty() && asked.tags != known.tags {
        let why = "A queue already exists with the same name and different tags";
        return Err(Error::new(Code::QueueNameExists, why));
    }
    let [known, asked] = [known, asked].map(|it| it.with_defaults(queue.ends_with(FIFO)));
    let other = names.find(|name| {
        let [has, asked] = [&known, &asked].map(|it| it.get(*name).map_or("", String::as_str));
        has != asked && json_of(has) != json_of(asked)
    });
    let Some(name) = other else { return Ok(()) };
    let why = format!(
        "A queue already exists with the same name and a different value for attribute {name}"
    );
    Err(Error::new(Code::QueueNameExists, why))
}

/// Returns an error if the queue of a redrive policy does not exist for the caller, or does not
/// permit this source.
async fn has_target(call: &Call, name: &str, settings: &Settings) -> Result<(), Error> {
    let Some(redrive) = settings.redrive() else { return Ok(()) };
    match call.named(&redrive.queue).await {
        Err(error) if error.code() == Code::QueueDoesNotExist => {
            let why = "The value for parameter RedrivePolicy is invalid. Reason: Dead letter \
                       target does not exist.";
            Err(Error::value(why))
        }
        Ok((_, target)) if !target.may_take_from(name) => {
            let why = "The value for parameter RedrivePolicy is invalid. Reason: The redrive allow \
                       policy of the dead letter target does not permit this source queue.";
            Err(Error::value(why))
        }
        found => found.map(drop),
    }
}

/// A policy as a value, so that its spaces do not count. Other texts are themselves.
fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}

pub(super) async fn delete(call: &Call, input: Value) -> Result<Value, Error> {
    let (open, _) = call.queue(&input).await?;
    let shared = Arc::clone(&call.shared);
    to_the_end(async move { shared.queues.delete(&open.name).await }).await?;
    Ok(json!({}))
}

pub(super) async fn purge(call: &Call, input: Value) -> Result<Value, Error> {
    let (open, _) = call.queue(&input).await?;
    let at = open.queue.server_time().await?.as_ms();
    let known = call.shared.queues.current(&open.name).await?.1;
    if call.shared.queues.is_strict && at < known.purged_ms.saturating_add(MINUTE_MS) {
        let name = &open.name;
        let why = format!("Only one PurgeQueue operation on {name} is allowed every 60 seconds.");
        return Err(Error::new(Code::PurgeQueueInProgress, why));
    }
    let call = call.clone();
    let work = async move {
        clear(&open, u64::MAX).await?;
        // Not before: a purge that fails can be repeated. Another one may have ended meanwhile.
        let purged = |settings: &mut Settings, _: &str| {
            settings.purged_ms = settings.purged_ms.max(at);
            Ok(())
        };
        change(&call, &input, purged).await
    };
    to_the_end(work).await
}

pub(super) async fn url(call: &Call, input: Value) -> Result<Value, Error> {
    let name = input.get("QueueName").and_then(Value::as_str).unwrap_or_default();
    if name.is_empty() {
        return Err(Error::missing("QueueName"));
    }
    let owner = input.get("QueueOwnerAWSAccountId").and_then(Value::as_str);
    if owner.is_some_and(|owner| owner != names::ACCOUNT) {
        return Err(Error::no_queue());
    }
    call.named(name).await?;
    Ok(json!({"QueueUrl": call.url(name)}))
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Listed {
    queue_name_prefix: Option<String>,
    max_results: Option<Number>,
    next_token: Option<String>,
}

pub(super) async fn list(call: &Call, input: Value) -> Result<Value, Error> {
    let Listed { queue_name_prefix, max_results, next_token } = read(input)?;
    let prefix = queue_name_prefix.unwrap_or_default();
    let mut names = call.shared.queues.names().await?;
    names.retain(|name| name.starts_with(&prefix) && call.caller.knows(name));
    page(call, "QueueUrls", names, max_results, next_token.as_deref())
}

/// A page of queues. The token is the last name of the page before.
pub(super) fn page(
    call: &Call,
    member: &str,
    mut names: Vec<String>,
    max_results: Option<Number>,
    next_token: Option<&str>,
) -> Result<Value, Error> {
    let max = match max_results {
        Some(number) => Some(number.within("MaxResults", 1, MOST_RESULTS)?),
        None => None,
    };
    if let Some(token) = next_token {
        let wrong = || Error::value("The value for parameter NextToken is invalid.");
        let last = URL_SAFE_NO_PAD.decode(token).map_err(|_| wrong())?;
        let last = String::from_utf8(last).map_err(|_| wrong())?;
        names.retain(|name| *name > last);
    }
    let most = usize::try_from(max.unwrap_or(MOST_RESULTS)).unwrap_or(usize::MAX);
    let has_more = names.len() > most;
    names.truncate(most);
    let urls: Vec<_> = names.iter().map(|name| call.url(name)).collect();
    let mut value = json!({});
    let Value::Object(members) = &mut value else { return Ok(value) };
    if !urls.is_empty() || member != "QueueUrls" {
        members.insert(member.to_owned(), urls.into());
    }
    // Without a number of results, SQS returns the first thousand and no token.
    if let (true, Some(_), Some(last)) = (has_more, max, names.last()) {
        members.insert("NextToken".to_owned(), URL_SAFE_NO_PAD.encode(last).into());
    }
    Ok(value)
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Wanted {
    #[serde(default)]
    attribute_names: Option<Vec<String>>,
}

pub(super) async fn attributes(call: &Call, input: Value) -> Result<Value, Error> {
    let (open, settings) = call.queue(&input).await?;
    let wanted = read::<Wanted>(input)?.attribute_names.unwrap_or_default();
    if let Some(unknown) = wanted.iter().find(|name| !settings::is_known(name, open.is_fifo())) {
        let shown: String = unknown.chars().take(80).collect();
        let why = format!("Unknown Attribute {shown}.");
        return Err(Error::new(Code::InvalidAttributeName, why));
    }
    let mut shown = settings.shown(open.is_fifo());
    // They would name queues that do not exist for the caller.
    if settings.redrive().is_some_and(|it| !call.caller.knows(&it.queue)) {
        shown.remove("RedrivePolicy");
    }
    if !settings.sources().iter().flatten().all(|name| call.caller.knows(name)) {
        shown.remove("RedriveAllowPolicy");
    }
    shown.insert("QueueArn".to_owned(), Arn::write(&call.caller.region, &open.name));
    if wanted.iter().any(|name| name == "All" || name.starts_with("Approximate")) {
        let stats = counted(&open).await?;
        let mut count = |name: &str, count: u64| {
            shown.insert(format!("ApproximateNumberOfMessages{name}"), count.to_string());
        };
        count("", stats.ready);
        count("Delayed", stats.scheduled);
        count("NotVisible", stats.leased);
    }
    let is_wanted = |name: &String| wanted.iter().any(|it| it == "All" || it == name);
    let shown: BTreeMap<_, _> = shown.into_iter().filter(|(name, _)| is_wanted(name)).collect();
    Ok(if shown.is_empty() { json!({}) } else { json!({"Attributes": shown}) })
}

/// Changes the settings of the queue that a request names. The change is made again if a change at
/// another server was faster.
async fn change(
    call: &Call,
    input: &Value,
    change: impl Fn(&mut Settings, &str) -> Result<(), Error>,
) -> Result<Value, Error> {
    let (open, _) = call.queue(input).await?;
    let mut changing = call.shared.queues.changing().await;
    for _ in 0..MOST_TRIES {
        let known = call.shared.queues.current(&open.name).await?.1;
        let mut settings = (*known).clone();
        change(&mut settings, &open.name)?;
        if *known == settings {
            return Ok(json!({}));
        }
        let (shared, open) = (Arc::clone(&call.shared), Arc::clone(&open));
        let put = async move { Ok((shared.queues.put(&open.name, &settings).await?, changing)) };
        let (is_stored, still) = to_the_end(put).await?;
        if is_stored {
            return Ok(json!({}));
        }
        changing = still;
    }
    Err(Error::busy())
}

pub(super) async fn set_attributes(call: &Call, input: Value) -> Result<Value, Error> {
    let asked: Create = read(input.clone())?;
    let attributes = asked.attributes.unwrap_or_default();
    if attributes.is_empty() {
        return Err(Error::missing("Attribute.Name"));
    }
    let is_strict = call.shared.queues.is_strict;
    let mut asked = Settings::default();
    let name = queue_name(&input)?;
    asked.set(&name, &attributes, is_strict)?;
    has_target(call, &name, &asked).await?;
    change(call, &input, |settings, name| {
        settings.set(name, &attributes, is_strict)?;
        settings.check_together()?;
        settings.modified_ms = now_ms();
        Ok(())
    })
    .await
}

pub(super) async fn tag(call: &Call, input: Value) -> Result<Value, Error> {
    let tags = read::<Create>(input.clone())?.tags.unwrap_or_default();
    if tags.is_empty() {
        return Err(Error::missing("Tags"));
    }
    change(call, &input, |settings, name| {
        settings.tags.extend(tags.clone());
        valid_tags(name, &settings.tags)
    })
    .await
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Untag {
    #[serde(default)]
    tag_keys: Vec<String>,
}

pub(super) async fn untag(call: &Call, input: Value) -> Result<Value, Error> {
    let Untag { tag_keys } = read(input.clone())?;
    if tag_keys.is_empty() {
        return Err(Error::value("Tag keys must be between 1 and 128 characters in length."));
    }
    change(call, &input, |settings, _| {
        settings.tags.retain(|key, _| !tag_keys.contains(key));
        Ok(())
    })
    .await
}

pub(super) async fn tags(call: &Call, input: Value) -> Result<Value, Error> {
    let name = queue_name(&input)?;
    let (_, settings) = call.named(&name).await?;
    Ok(match settings.tags.is_empty() {
        true => json!({}),
        false => json!({"Tags": settings.tags}),
    })
}

fn valid_tags(queue: &str, tags: &BTreeMap<String, String>) -> Result<(), Error> {
    if tags.len() > MOST_TAGS {
        return Err(Error::value(format!("Too many tags added for queue {queue}.")));
    }
    let is_valid = |(key, value): (&String, &String)| {
        (1..=128).contains(&key.chars().count()) && value.chars().count() <= 256
    };
    if tags.iter().all(is_valid) {
        return Ok(());
    }
    Err(Error::value("A tag key has 1 to 128 characters, and a value at most 256."))
}

/// Minimum interval between two purges of a queue, and between its deletion and its next creation,
/// as in SQS.
const MINUTE_MS: u64 = 60_000;
/// How long a creation waits for the end of a deletion.
const MOST_WAIT: Duration = Duration::from_secs(1);
const MOST_TAGS: usize = 50;
const MOST_RESULTS: u64 = 1_000;
