//! The attributes of a queue, as SQS names them.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use delayline::limits::{MAX_DELAY_MS, MAX_LEASE_MS};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::error::{Code, Error};
use crate::names::{Arn, FIFO};

/// What SQS knows of a queue. Stored as the payload of a message whose id is the name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Settings {
    /// The attributes that were set; the others have their defaults.
    #[serde(default, deserialize_with = "stored")]
    pub(crate) attributes: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) tags: BTreeMap<String, String>,
    /// Milliseconds since 1970.
    #[serde(default)]
    pub(crate) created_ms: u64,
    /// The latest change, or the deletion, in milliseconds since 1970.
    #[serde(default)]
    pub(crate) modified_ms: u64,
    /// The latest purge, in milliseconds since 1970; 0 without one.
    #[serde(default)]
    pub(crate) purged_ms: u64,
    /// The queue is being deleted, was deleted shortly before or while it had leased messages, or
    /// its storage keeps its counters.
    #[serde(default)]
    pub(crate) is_deleted: bool,
    /// Whether messages of a deleted queue are being removed.
    #[serde(skip)]
    pub(crate) is_being_deleted: bool,
    /// The sequence number of the message; 0 for settings that are not stored.
    #[serde(skip)]
    pub(crate) version: u64,
}

/// Reads the attributes of stored settings. A number beyond its limits, which only damage or
/// another program stores, has its default.
fn stored<'de, D: Deserializer<'de>>(stored: D) -> Result<BTreeMap<String, String>, D::Error> {
    let mut attributes = BTreeMap::<String, String>::deserialize(stored)?;
    attributes.retain(|name, value| is_within_limits(name, value, false));
    Ok(attributes)
}

/// Where the messages of a queue go that were received too often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Redrive {
    /// The name of the dead-letter queue.
    pub(crate) queue: String,
    pub(crate) max_receive_count: u64,
}

impl Redrive {
    /// The policy with the count as a number.
    fn write(&self, policy: &str) -> String {
        match serde_json::from_str(policy) {
            Ok(Value::Object(mut members)) if members["maxReceiveCount"].is_string() => {
                members.insert("maxReceiveCount".to_owned(), self.max_receive_count.into());
                Value::Object(members).to_string()
            }
            _ => policy.to_owned(),
        }
    }
}

impl Settings {
    fn number(&self, name: &str, usual: u64) -> u64 {
        self.attributes.get(name).and_then(|text| text.parse().ok()).unwrap_or(usual)
    }

    pub(crate) fn visibility_timeout_s(&self) -> u64 {
        self.number("VisibilityTimeout", 30)
    }

    pub(crate) fn delay_s(&self) -> u64 {
        self.number("DelaySeconds", 0)
    }

    pub(crate) fn wait_s(&self) -> u64 {
        self.number("ReceiveMessageWaitTimeSeconds", 0)
    }

    pub(crate) fn most_message_bytes(&self) -> u64 {
        self.number("MaximumMessageSize", MOST_MESSAGE_BYTES)
    }

    pub(crate) fn retention_s(&self) -> u64 {
        self.number("MessageRetentionPeriod", 345_600)
    }

    /// How long after its send a message expires that is due after `delay`; `None` for never.
    pub(crate) fn expiry(&self, delay: Duration, is_strict: bool) -> Option<Duration> {
        if !is_strict && !self.attributes.contains_key("MessageRetentionPeriod") {
            return None;
        }
        let after = delay + Duration::from_secs(self.retention_s());
        Some(after.min(Duration::from_millis(MAX_DELAY_MS)))
    }

    fn is(&self, name: &str, value: &str) -> bool {
        self.attributes.get(name).is_some_and(|known| known == value)
    }

    pub(crate) fn deduplicates_contents(&self) -> bool {
        self.is("ContentBasedDeduplication", "true")
    }

    /// Whether a deduplication id counts within its group only.
    pub(crate) fn deduplicates_by_group(&self) -> bool {
        self.is("DeduplicationScope", "messageGroup")
    }

    /// Returns an error if an attribute does not go with the others.
    pub(crate) fn check_together(&self) -> Result<(), Error> {
        if self.is("FifoThroughputLimit", "perMessageGroupId") && !self.deduplicates_by_group() {
            let why = "The perMessageGroupId value is allowed only when the value for \
                       DeduplicationScope is messageGroup.";
            return Err(Error::new(Code::InvalidAttributeValue, why));
        }
        Ok(())
    }

    /// Whether this queue may be the dead-letter queue of another one.
    pub(crate) fn may_take_from(&self, queue: &str) -> bool {
        self.sources().is_none_or(|sources| sources.iter().any(|source| source == queue))
    }

    /// The queues whose dead-letter queue this one may be; `None` for all.
    pub(crate) fn sources(&self) -> Option<Vec<String>> {
        sources(self.attributes.get("RedriveAllowPolicy")?).flatten()
    }

    pub(crate) fn redrive(&self) -> Option<Redrive> {
        redrive(self.attributes.get("RedrivePolicy")?).ok()
    }

    /// Sets attributes. An empty text removes the attribute.
    pub(crate) fn set(
        &mut self,
        queue: &str,
        attributes: &BTreeMap<String, String>,
        is_strict: bool,
    ) -> Result<(), Error> {
        let sets_key = attributes.get(KEY).is_some_and(|key| !key.is_empty());
        let sets_sse = attributes.get(SSE).is_some_and(|value| value == "true");
        if sets_key && sets_sse {
            let why = "You can use one type of server-side encryption (SSE) at one time. You can \
                       either enable KMS SSE or SQS SSE.";
            return Err(Error::new(Code::InvalidAttributeName, why));
        }
        for (name, value) in attributes {
            check(queue, name, value, is_strict)?;
            let value = match &**name {
                "FifoQueue" | "ContentBasedDeduplication" => value.to_ascii_lowercase(),
                // SQS shows the count as a number, however it was set.
                "RedrivePolicy" if !value.is_empty() => redrive(value)?.write(value),
                // Without a sign and zeros before it.
                name if limits(name, is_strict).is_some() => {
                    value.parse().map_or_else(|_| value.clone(), |number: u64| number.to_string())
                }
                _ => value.clone(),
            };
            if value.is_empty() {
                self.attributes.remove(name);
            } else {
                self.attributes.insert(name.clone(), value);
            }
        }
        // One kind of encryption ends the other one.
        if sets_key {
            self.attributes.remove(SSE);
        } else if sets_sse {
            self.attributes.remove(KEY);
        }
        Ok(())
    }

    /// The attributes as SQS shows them, without counts.
    pub(crate) fn shown(&self, is_fifo: bool) -> BTreeMap<String, String> {
        let mut shown = self.with_defaults(is_fifo);
        // It belongs to a key.
        if !shown.contains_key(KEY) {
            shown.remove(KEY_PERIOD);
        }
        shown
    }

    /// The attributes that were set, and the defaults of the others.
    pub(crate) fn with_defaults(&self, is_fifo: bool) -> BTreeMap<String, String> {
        let mut shown = self.attributes.clone();
        let mut usual = |name: &str, value: String| {
            shown.entry(name.to_owned()).or_insert(value);
        };
        usual("VisibilityTimeout", self.visibility_timeout_s().to_string());
        usual("DelaySeconds", self.delay_s().to_string());
        usual("ReceiveMessageWaitTimeSeconds", self.wait_s().to_string());
        usual("MaximumMessageSize", self.most_message_bytes().to_string());
        usual("MessageRetentionPeriod", self.retention_s().to_string());
        let has_key = self.attributes.contains_key(KEY);
        usual(SSE, (!has_key).to_string());
        if has_key {
            usual(KEY_PERIOD, "300".to_owned());
        }
        usual("CreatedTimestamp", (self.created_ms / 1_000).to_string());
        usual("LastModifiedTimestamp", (self.modified_ms / 1_000).to_string());
        if is_fifo {
            usual("FifoQueue", "true".to_owned());
            usual("ContentBasedDeduplication", "false".to_owned());
            usual("DeduplicationScope", "queue".to_owned());
            usual("FifoThroughputLimit", "perQueue".to_owned());
        }
        shown
    }
}

/// The least and the greatest value of an attribute that is a number.
fn limits(name: &str, is_strict: bool) -> Option<RangeInclusive<u64>> {
    let within = |strict: u64, ours: u64| if is_strict { strict } else { ours };
    Some(match name {
        "DelaySeconds" => 0..=within(900, MAX_DELAY_MS / 1_000),
        KEY_PERIOD => 60..=86_400,
        "MaximumMessageSize" => 1_024..=MOST_MESSAGE_BYTES,
        "MessageRetentionPeriod" => 60..=within(1_209_600, MAX_DELAY_MS / 1_000),
        "ReceiveMessageWaitTimeSeconds" => 0..=MOST_WAIT_S,
        "VisibilityTimeout" => 0..=within(43_200, MAX_LEASE_MS / 1_000),
        _ => return None,
    })
}

/// Whether a value is a number within the limits, if the attribute is a number.
fn is_within_limits(name: &str, value: &str, is_strict: bool) -> bool {
    let is_within =
        |limits: RangeInclusive<u64>| value.parse().is_ok_and(|it| limits.contains(&it));
    limits(name, is_strict).is_none_or(is_within)
}

/// Checks the name and the value of an attribute to set.
fn check(queue: &str, name: &str, value: &str, is_strict: bool) -> Result<(), Error> {
    let is_fifo = queue.ends_with(FIFO);
    let wrong = || {
        let why = format!("Invalid value for the parameter {name}.");
        Err(Error::new(Code::InvalidAttributeValue, why))
    };
    let is = |word: &str| value.eq_ignore_ascii_case(word);
    let one_of = |values: &[&str]| if values.contains(&value) { Ok(()) } else { wrong() };
    match name {
        KEY_PERIOD if value.is_empty() => Ok(()),
        _ if !is_within_limits(name, value, is_strict) => wrong(),
        "RedrivePolicy" if !value.is_empty() => {
            let redrive = redrive(value)?;
            if redrive.queue.ends_with(FIFO) == is_fifo { Ok(()) } else { wrong() }
        }
        "RedriveAllowPolicy" if !value.is_empty() => match sources(value) {
            Some(_) => Ok(()),
            None => wrong(),
        },
        "Policy" if !value.is_empty() => match serde_json::from_str::<Value>(value) {
            Ok(Value::Object(_)) => Ok(()),
            _ => wrong(),
        },
        "FifoQueue" if is_fifo && is("true") => Ok(()),
        "FifoQueue" if is_fifo => {
            let why = "Invalid value for the parameter FifoQueue. Reason: Modifying queue type is \
                       not supported.";
            Err(Error::new(Code::InvalidAttributeValue, why))
        }
        "ContentBasedDeduplication" if is_fifo && (is("true") || is("false")) => Ok(()),
        "ContentBasedDeduplication" if is_fifo => wrong(),
        "DeduplicationScope" if is_fifo => one_of(&["queue", "messageGroup"]),
        "FifoThroughputLimit" if is_fifo => one_of(&["perQueue", "perMessageGroupId"]),
        "DeduplicationScope" | "FifoThroughputLimit" => {
            let why = format!("You can specify the {name} only when FifoQueue is set to true.");
            Err(Error::new(Code::InvalidAttributeName, why))
        }
        SSE => one_of(&["true", "false", ""]),
        // An empty text removes them. The policy and the key have no effect here.
        "Policy" | "RedrivePolicy" | "RedriveAllowPolicy" | KEY => Ok(()),
        _ if limits(name, is_strict).is_some() => Ok(()),
        _ => Err(Error::new(Code::InvalidAttributeName, format!("Unknown Attribute {name}."))),
    }
}

/// Reads a redrive policy.
fn redrive(json: &str) -> Result<Redrive, Error> {
    let wrong = |why: &str| {
        let why = format!("Invalid value for the parameter RedrivePolicy. Reason: {why}.");
        Error::value(why)
    };
    let policy: Value = serde_json::from_str(json).map_err(|_| wrong("it is not a JSON object"))?;
    let arn = policy.get("deadLetterTargetArn").and_then(Value::as_str);
    let arn = arn.ok_or_else(|| wrong("it does not contain deadLetterTargetArn"))?;
    let queue = Arn::queue(arn).ok_or_else(|| wrong("deadLetterTargetArn is no ARN of a queue"))?;
    let count = match policy.get("maxReceiveCount") {
        Some(Value::String(text)) => text.parse().ok(),
        Some(value) => value.as_u64(),
        None => return Err(wrong("it does not contain maxReceiveCount")),
    };
    let is_count = |count: &u64| (1..=1_000).contains(count);
    let count = count
        .filter(is_count)
        .ok_or_else(|| wrong("maxReceiveCount must be an integer from 1 to 1000"))?;
    Ok(Redrive { queue, max_receive_count: count })
}

/// Reads a redrive allow policy. Returns the names of the queues whose dead-letter queue it permits
/// to be this one, `Some(None)` for all of them; `None` if the policy is invalid.
fn sources(json: &str) -> Option<Option<Vec<String>>> {
    let policy: Value = serde_json::from_str(json).ok()?;
    // Some clients send null for no queues.
    let arns = match policy.get("sourceQueueArns").filter(|arns| !arns.is_null()) {
        Some(arns) => Some(arns.as_array()?),
        None => None,
    };
    match (policy.get("redrivePermission")?.as_str()?, arns) {
        ("allowAll", None) => Some(None),
        ("denyAll", None) => Some(Some(Vec::new())),
        ("byQueue", Some(arns)) if (1..=MOST_SOURCES).contains(&arns.len()) => {
            let names: Option<_> = arns.iter().map(|arn| Arn::queue(arn.as_str()?)).collect();
            Some(Some(names?))
        }
        _ => None,
    }
}

/// Whether a request may ask for an attribute of this name.
pub(crate) fn is_known(name: &str, is_fifo: bool) -> bool {
    KNOWN.contains(&name) && (is_fifo || !OF_FIFO.contains(&name))
}

const KNOWN: [&str; 22] = [
    "All",
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesDelayed",
    "ApproximateNumberOfMessagesNotVisible",
    "ContentBasedDeduplication",
    "CreatedTimestamp",
    "DeduplicationScope",
    "DelaySeconds",
    "FifoQueue",
    "FifoThroughputLimit",
    KEY_PERIOD,
    KEY,
    "LastModifiedTimestamp",
    "MaximumMessageSize",
    "MessageRetentionPeriod",
    "Policy",
    "QueueArn",
    "ReceiveMessageWaitTimeSeconds",
    "RedriveAllowPolicy",
    "RedrivePolicy",
    SSE,
    "VisibilityTimeout",
];

const OF_FIFO: [&str; 4] =
    ["ContentBasedDeduplication", "DeduplicationScope", "FifoQueue", "FifoThroughputLimit"];
const KEY: &str = "KmsMasterKeyId";
const KEY_PERIOD: &str = "KmsDataKeyReusePeriodSeconds";
const SSE: &str = "SqsManagedSseEnabled";
/// Queues that a redrive allow policy may name.
const MOST_SOURCES: usize = 10;
/// Longest message, with its attributes.
pub(crate) const MOST_MESSAGE_BYTES: u64 = 1_048_576;
/// Longest wait of a receive.
pub(crate) const MOST_WAIT_S: u64 = 20;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(queue: &str, name: &str, value: &str, is_strict: bool) -> Result<Settings, Error> {
        let mut settings = Settings::default();
        let attributes = BTreeMap::from([(name.to_owned(), value.to_owned())]);
        settings.set(queue, &attributes, is_strict).map(|()| settings)
    }

    #[test]
    fn attributes_have_the_limits_of_sqs_or_ours() {
        for (queue, name, value, is_valid, is_valid_strictly) in [
            ("q", "DelaySeconds", "900", true, true),
            ("q", "DelaySeconds", "901", true, false),
            ("q", "DelaySeconds", "-1", false, false),
            ("q", "VisibilityTimeout", "43201", true, false),
            ("q", "VisibilityTimeout", "86401", false, false),
            ("q", "MessageRetentionPeriod", "59", false, false),
            ("q", "ReceiveMessageWaitTimeSeconds", "21", false, false),
            ("q", "FifoQueue", "true", false, false),
            ("q.fifo", "FifoQueue", "true", true, true),
            ("q.fifo", "FifoQueue", "false", false, false),
            ("q", "Policy", "", true, true),
            ("q", "Policy", "x", false, false),
            ("q", "KmsDataKeyReusePeriodSeconds", "60", true, true),
            ("q", "KmsDataKeyReusePeriodSeconds", "59", false, false),
            ("q", "RedriveAllowPolicy", r#"{"redrivePermission":"denyAll"}"#, true, true),
            ("q", "RedriveAllowPolicy", r#"{"redrivePermission":"byQueue"}"#, false, false),
            ("q", "RedriveAllowPolicy", r#"{"redrivePermission":"bogus"}"#, false, false),
            ("q", "QueueArn", "x", false, false),
            ("q", "Unknown", "x", false, false),
        ] {
            assert_eq!(set(queue, name, value, false).is_ok(), is_valid, "{name} {value}");
            assert_eq!(set(queue, name, value, true).is_ok(), is_valid_strictly, "{name} {value}");
        }
    }

    #[test]
    fn numbers_are_shown_without_signs_and_zeros() {
        for value in ["05", "+5", "5"] {
            let settings = set("q", "DelaySeconds", value, true).unwrap();
            assert_eq!(settings.shown(false)["DelaySeconds"], "5");
        }
    }

    #[test]
    fn a_queue_has_one_kind_of_encryption() {
        let mut settings = Settings::default();
        let (key, period, sse) = (KEY, KEY_PERIOD, SSE);
        for (asked, expected) in [
            (vec![(key, "k")], [Some("k"), Some("300"), Some("false")]),
            (vec![(sse, "true")], [None, None, Some("true")]),
            (vec![(key, "k"), (period, "60")], [Some("k"), Some("60"), Some("false")]),
            (vec![(key, "")], [None, None, Some("true")]),
            (vec![(sse, "false")], [None, None, Some("false")]),
            (vec![(key, "k"), (sse, "false")], [Some("k"), Some("60"), Some("false")]),
        ] {
            let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
            settings.set("q", &asked.iter().map(owned).collect(), true).unwrap();
            let shown = settings.shown(false);
            let shown = [key, period, sse].map(|name| shown.get(name).map(String::as_str));
            assert_eq!(shown, expected, "{asked:?}");
        }
        let both = BTreeMap::from([(key.into(), "k".into()), (sse.into(), "true".into())]);
        assert!(settings.set("q", &both, true).is_err());
    }

    #[test]
    fn a_throughput_limit_of_groups_needs_their_scope() {
        let mut settings = set("q.fifo", "FifoThroughputLimit", "perMessageGroupId", true).unwrap();
        assert!(settings.check_together().is_err());
        let scope = BTreeMap::from([("DeduplicationScope".into(), "messageGroup".into())]);
        settings.set("q.fifo", &scope, true).unwrap();
        settings.check_together().unwrap();
    }

    #[test]
    fn a_redrive_allow_policy_names_the_sources() {
        let arns = ["arn:aws:sqs:eu-central-1:000000000000:a"];
        let by_queue = json!({"redrivePermission": "byQueue", "sourceQueueArns": arns});
        let by_queue = by_queue.to_string();
        for (policy, a, b) in [
            (&*by_queue, true, false),
            (r#"{"redrivePermission":"denyAll"}"#, false, false),
            (r#"{"redrivePermission":"allowAll"}"#, true, true),
            (r#"{"redrivePermission":"allowAll","sourceQueueArns":null}"#, true, true),
            ("", true, true),
        ] {
            let settings = set("q", "RedriveAllowPolicy", policy, true).unwrap();
            assert_eq!((settings.may_take_from("a"), settings.may_take_from("b")), (a, b));
        }
    }

    #[test]
    fn a_redrive_policy_names_a_queue_of_its_kind() {
        let policy = |queue: &str, count: &str| {
            let arn = format!("arn:aws:sqs:eu-central-1:000000000000:{queue}");
            format!(r#"{{"deadLetterTargetArn":"{arn}","maxReceiveCount":{count}}}"#)
        };
        for count in ["3", "\"3\""] {
            let settings = set("q", "RedrivePolicy", &policy("dead", count), true).unwrap();
            let redrive = Redrive { queue: "dead".to_owned(), max_receive_count: 3 };
            assert_eq!(settings.redrive(), Some(redrive));
        }
        for (queue, count) in [("dead", "0"), ("dead", "1001"), ("dead", "\"x\""), ("d.fifo", "3")]
        {
            assert!(set("q", "RedrivePolicy", &policy(queue, count), true).is_err());
        }
        assert!(set("q", "RedrivePolicy", "{}", true).is_err());
        assert_eq!(set("q", "RedrivePolicy", "", true).unwrap().redrive(), None);
    }
}
