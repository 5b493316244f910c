//! From the fields of a JSON object to a message.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use delayline::after::{self, Member, set_wakes};
use delayline::backend::{Millis, NewMessage, QueueName, Schedule, UpdateDue};
use delayline::limits::MAX_ATTEMPT_LIMIT;
use delayline::message::{Group, Headers, Priority};
use delayline::update::{Known, Update, UpdateContent, UpdateToken};
use delayline::{Bytes, MessageId, Timestamp};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::object::Object;
use crate::text::{quoted, short};
use crate::waiting::{member, seen_from, waiting};
use crate::{duration, instant};

/// What a message is made of, however it was written down. Nothing is checked until
/// [`message`](Self::message).
#[derive(Default)]
pub struct Fields {
    /// The id.
    pub id: Option<String>,
    /// The payload. A message must have one.
    pub payload: Option<Bytes>,
    /// How long from now it is due: `90s`, `1h30m`; see [`duration`]. Not with `at`.
    pub delay: Option<String>,
    /// When it is due: `2026-12-01T09:00:00Z`; see [`instant`].
    pub at: Option<String>,
    /// Its group, such as a tenant. Not with a priority other than normal.
    pub group: Option<String>,
    /// How urgent it is.
    pub priority: Option<Priority>,
    /// The kind of the payload: the header `delayline-kind`.
    pub kind: Option<String>,
    /// Names and values of headers.
    pub headers: Vec<(String, String)>,
    /// With how many failures it is a dead letter.
    pub max_failures: Option<u32>,
    /// With how many expired leases it is a dead letter.
    pub max_crashes: Option<u32>,
    /// How long from now it is worth delivering; see [`duration`].
    pub expires_in: Option<String>,
    /// How long the result of its handler is kept; see [`duration`].
    pub keep_result: Option<String>,
    /// The messages that it waits for, if it waits.
    pub after: Option<Vec<Member>>,
    /// The effect of one of these that fails: `wait`, `deliver` or `cancel`.
    pub on_failure: Option<String>,
    /// How long it waits for them; see [`duration`].
    pub wait_at_most: Option<String>,
    /// The message that it wakes when it has ended.
    pub wakes: Option<Member>,
    /// Whether to send it also if a message of this id was finished a short while ago.
    pub reuse_finished_id: bool,
    /// In which time at most one message of its id is created; see [`duration`].
    pub throttle: Option<String>,
    /// Which kind of update it is: `replace`, `reschedule`, `coalesce` or `debounce`.
    pub update: Option<String>,
    /// For a debounce: how long after the first send it is due at the latest; see [`duration`].
    pub at_most: Option<String>,
    /// The token of the update, in 16 hexadecimal digits; a random one if none is given.
    pub update_token: Option<String>,
}

impl Fields {
    /// Reads a JSON object whose members are named like these fields, or `payload_base64`. A
    /// payload that is no string is sent as compact JSON.
    ///
    /// # Errors
    ///
    /// The reason, in words, without any value whose place is the payload's.
    pub fn from_json(line: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(line).map_err(|_| "it is not UTF-8".to_owned())?;
        let object: Object<&RawValue> =
            serde_json::from_str(text).map_err(|error| place(&error))?;
        let members = object.members()?;
        let has = |wanted: &str| members.iter().any(|(name, _)| name == wanted);
        if has("payload") && has("payload_base64") {
            return Err("it has both payload and payload_base64".to_owned());
        }
        let mut fields = Self::default();
        for (name, value) in members {
            fields.set(&name, value)?;
        }
        Ok(fields)
    }

    /// The other queues that the message names: those of the messages that it waits for or wakes.
    pub fn queues(&self) -> impl Iterator<Item = &QueueName> {
        self.after.iter().flatten().chain(&self.wakes).filter_map(Member::queue)
    }

    fn set(&mut self, name: &str, value: &RawValue) -> Result<(), String> {
        match name {
            "id" => self.id = Some(read(name, "a string", value)?),
            "payload" => self.payload = Some(text_or_compact(name, value)?),
            "payload_base64" => {
                let text: String = read(name, "a string", value)?;
                let bytes = STANDARD.decode(text);
                let bytes = bytes.map_err(|_| "payload_base64 is not base64".to_owned())?;
                self.payload = Some(bytes.into());
            }
            "delay" => self.delay = Some(read(name, "a string like \"90s\"", value)?),
            "at" => self.at = Some(read(name, AN_INSTANT, value)?),
            "group" => self.group = Some(read(name, "a string", value)?),
            "priority" => {
                let level: String = read(name, "a string", value)?;
                self.priority = Some(priority(&level)?);
            }
            "kind" => self.kind = Some(read(name, "a string", value)?),
            "headers" => {
                let headers: Object<String> = read(name, "an object of strings", value)?;
                self.headers = headers.0;
                // Their order is part of the content.
                self.headers.sort_unstable();
            }
            "max_failures" => self.max_failures = Some(attempts(name, value)?),
            "max_crashes" => self.max_crashes = Some(attempts(name, value)?),
            "expires_in" => self.expires_in = Some(read(name, "a string like \"90s\"", value)?),
            "keep_result" => self.keep_result = Some(read(name, "a string like \"90s\"", value)?),
            "after" => {
                let all: Vec<&RawValue> = read(name, "a list of ids", value)?;
                self.after = Some(all.into_iter().map(member).collect::<Result<_, _>>()?);
            }
            "on_failure" => self.on_failure = Some(read(name, "a string", value)?),
            "wait_at_most" => self.wait_at_most = Some(read(name, "a string like \"90s\"", value)?),
            "wakes" => self.wakes = Some(member(value)?),
            "throttle" => self.throttle = Some(read(name, "a string like \"90s\"", value)?),
            "reuse_finished_id" => self.reuse_finished_id = read(name, "true or false", value)?,
            "update" => self.update = Some(read(name, "a string", value)?),
            "at_most" => self.at_most = Some(read(name, "a string like \"90s\"", value)?),
            "update_token" => self.update_token = Some(read(name, "a string", value)?),
            unknown => return Err(unknown_field(unknown)),
        }
        Ok(())
    }

    /// The message of the queue `own`, checked against every limit. `make_id` makes an id where
    /// none was given.
    ///
    /// # Errors
    ///
    /// The reason, in words, without the payload.
    pub fn message(
        self,
        own: &str,
        make_id: impl FnOnce() -> Result<String, String>,
    ) -> Result<NewMessage, String> {
        let id = match self.id {
            Some(id) => id,
            None if self.update.is_some() => return Err("an update needs an id".to_owned()),
            None if self.throttle.is_some() => return Err("throttle needs an id".to_owned()),
            None => make_id()?,
        };
        let id = MessageId::try_from(id.as_str()).map_err(text)?;
        let mut message = NewMessage::new(id, self.payload.ok_or("it has no payload")?);
        message.schedule = match (self.delay, self.at) {
            (None, None) => Schedule::NOW,
            (Some(delay), None) => within(&delay).map_err(|why| format!("delay: {why}"))?,
            (None, Some(at)) => {
                let at = instant(&at).map_err(|why| format!("at: {why}"))?;
                Schedule::At(Timestamp::try_from(at).map_err(|why| format!("at: {why}"))?)
            }
            (Some(_), Some(_)) => return Err("it has both delay and at".to_owned()),
        };
        if let Some(expires_in) = self.expires_in {
            let expires = within(&expires_in).map_err(|why| format!("expires_in: {why}"))?;
            message.expires = Some(expires);
        }
        let mut headers = Headers::new();
        if let Some(kind) = self.kind {
            headers.set_kind(&kind).map_err(text)?;
        }
        for (name, value) in self.headers {
            if headers.get(&name).is_some() {
                return Err(format!("the header {} appears more than once", quoted(&name)));
            }
            if after::HEADERS.contains(&name.as_str()) {
                return Err(format!("the header {} is set by Delayline alone", quoted(&name)));
            }
            headers.set(name, value).map_err(text)?;
        }
        if let Some(retention) = self.keep_result {
            let retention = duration(&retention).map_err(|why| format!("keep_result: {why}"))?;
            let set = headers.set_result_retention(retention);
            set.map_err(|why| format!("keep_result: {why}"))?;
        }
        if let Some(waiting) = self.wakes {
            set_wakes(&mut headers, &seen_from(own, waiting)).map_err(text)?;
        }
        message.headers = headers;
        message.group = self.group.map(Group::new).transpose().map_err(text)?;
        message.priority = self.priority.unwrap_or_default();
        message.max_failures = self.max_failures.unwrap_or(message.max_failures);
        message.max_crashes = self.max_crashes.unwrap_or(message.max_crashes);
        let update = update(self.update.as_deref(), self.at_most, self.update_token)?;
        message.known = update.map_or(Known::Refuse, Known::Update);
        if let Some(window) = self.throttle {
            let window = duration(&window).map_err(|why| format!("throttle: {why}"))?;
            let window = Millis::try_from(window).map_err(|why| format!("throttle: {why}"))?;
            message.throttle = Some(window);
        }
        if self.reuse_finished_id || update.is_some() || message.throttle.is_some() {
            message.finished_ids = delayline::message::FinishedIds::Reuse;
        }
        let after = self.after.map(|all| all.into_iter().map(|it| seen_from(own, it)).collect());
        if let Some(waiting) = waiting(after, self.on_failure, self.wait_at_most)? {
            waiting.put(&mut message).map_err(text)?;
        }
        message.validate().map_err(text)?;
        Ok(message)
    }
}

fn update(
    kind: Option<&str>,
    at_most: Option<String>,
    token: Option<String>,
) -> Result<Option<Update>, String> {
    let Some(kind) = kind else {
        return match (at_most, token) {
            (None, None) => Ok(None),
            (Some(_), _) => Err("at_most is for \"update\": \"debounce\"".to_owned()),
            (None, Some(_)) => Err("update_token is for updates".to_owned()),
        };
    };
    let (content, due) = match (kind, at_most) {
        ("debounce", Some(at_most)) => {
            let at_most = within(&at_most).map_err(|why| format!("at_most: {why}"))?;
            let Schedule::In(at_most) = at_most else { return Err("at_most".to_owned()) };
            (UpdateContent::Replace, UpdateDue::Later { at_most })
        }
        ("debounce", None) => return Err("a debounce needs at_most".to_owned()),
        (_, Some(_)) => return Err("at_most is for \"update\": \"debounce\"".to_owned()),
        ("replace", None) => (UpdateContent::Replace, UpdateDue::Set),
        ("reschedule", None) => (UpdateContent::Keep, UpdateDue::Set),
        ("coalesce", None) => (UpdateContent::Replace, UpdateDue::Keep),
        (_, None) => {
            return Err("update must be replace, reschedule, coalesce or debounce".to_owned());
        }
    };
    let token = match token {
        None => UpdateToken::from_uuid(uuid::Uuid::new_v4().into_bytes()),
        Some(digits) => {
            let is_hex =
                digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            let number = u64::from_str_radix(&digits, 16).ok().filter(|_| is_hex);
            let number = number.ok_or("update_token must be 16 hexadecimal digits")?;
            UpdateToken::from_bytes(number.to_be_bytes())
        }
    };
    Ok(Some(Update::new(content, due, token)))
}

/// Names the field that was probably meant, and all that there are.
fn unknown_field(name: &str) -> String {
    let likeness = |known: &&str| strsim::jaro_winkler(name, known);
    // A comparison takes as long as the name, which may fill the body of a request.
    let comparable = NAMES.into_iter().filter(|_| name.len() <= LONGEST_COMPARED);
    let nearest = comparable.max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    let nearest = nearest.filter(|known| likeness(known) >= ALIKE);
    let nearest = nearest.map(|known| format!("; did you mean \"{known}\"?"));
    format!("unknown field {}{}", quoted(name), nearest.unwrap_or_default())
        + &format!(" (the fields are {})", NAMES.join(", "))
}

/// Reads a field. `serde_json`'s own words would repeat the value.
fn read<'a, T: Deserialize<'a>>(
    name: &str,
    expected: &str,
    value: &'a RawValue,
) -> Result<T, String> {
    serde_json::from_str(value.get()).map_err(|_| format!("{name} must be {expected}"))
}

/// Reads a number of attempts, whose limit is checked with the message.
fn attempts(name: &str, value: &RawValue) -> Result<u32, String> {
    let text = value.get();
    serde_json::from_str(text).map_err(|_| {
        let is_number = text.starts_with(|first: char| first == '-' || first.is_ascii_digit());
        let is = if is_number { format!(" is {}; it", short(text, 40)) } else { String::new() };
        format!("{name}{is} must be a whole number from 1 to {MAX_ATTEMPT_LIMIT}")
    })
}

/// Returns the text of a string, or any other JSON value as it is written, without white space.
///
/// # Errors
///
/// If a string has lone surrogates, in words that begin with `name` and do not repeat the value.
pub fn text_or_compact(name: &str, value: &RawValue) -> Result<Bytes, String> {
    if value.get().starts_with('"') {
        let text: String = read(name, "a string without lone surrogates", value)?;
        return Ok(Bytes::from(text));
    }
    Ok(Bytes::from(compact(value.get())))
}

/// JSON without white space between its tokens. Numbers and names stay as they were written, which
/// a detour over numbers of a certain size would not do.
fn compact(json: &str) -> String {
    let (mut in_string, mut escaped) = (false, false);
    json.chars()
        .filter(|&character| {
            if in_string {
                in_string = escaped || character != '"';
                escaped = !escaped && character == '\\';
                return true;
            }
            in_string = character == '"';
            !character.is_ascii_whitespace()
        })
        .collect()
}

fn priority(level: &str) -> Result<Priority, String> {
    let known = Priority::ALL.into_iter().find(|priority| priority.name() == level);
    known.ok_or_else(|| "priority must be \"urgent\", \"high\", \"normal\" or \"low\"".to_owned())
}

fn within(text_: &str) -> Result<Schedule, String> {
    Ok(Schedule::In(Millis::try_from(duration(text_)?).map_err(text)?))
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The names of the fields.
const NAMES: [&str; 22] = [
    "id",
    "payload",
    "payload_base64",
    "delay",
    "at",
    "group",
    "priority",
    "kind",
    "headers",
    "max_failures",
    "max_crashes",
    "expires_in",
    "keep_result",
    "after",
    "on_failure",
    "wait_at_most",
    "wakes",
    "reuse_finished_id",
    "throttle",
    "update",
    "at_most",
    "update_token",
];

const AN_INSTANT: &str = "a string like \"2026-12-01T09:00:00Z\", or \"1796112000\" for unix time";

/// From 0 for words without a common letter to 1 for equal ones.
const ALIKE: f64 = 0.8;
/// Bytes of a name. Longer ones are no mistyped names of fields.
const LONGEST_COMPARED: usize = 32;

/// Where the JSON is wrong, without its text.
fn place(error: &serde_json::Error) -> String {
    use serde_json::error::Category;
    let what = match error.classify() {
        Category::Eof => "the JSON is truncated",
        Category::Data => "it is not a JSON object",
        Category::Syntax | Category::Io => "it is not JSON",
    };
    format!("{what} (column {})", error.column())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message(line: &str) -> Result<NewMessage, String> {
        Fields::from_json(line.as_bytes())?.message("orders", || Err("it has no id".to_owned()))
    }

    fn payload_of(value: &str) -> String {
        let message = message(&format!(r#"{{"id": "a", "payload": {value}}}"#)).unwrap();
        String::from_utf8(message.payload.to_vec()).unwrap()
    }

    #[test]
    fn payloads_are_texts_or_compact_json() {
        for (value, sent) in [
            (r#""a\nb""#, "a\nb"),
            (r#"{ "b" : 1.50, "a": [1, 2e400] }"#, r#"{"b":1.50,"a":[1,2e400]}"#),
            ("123456789012345678901234567890", "123456789012345678901234567890"),
            (r#"[" \" a b\\" , "c d"]"#, r#"[" \" a b\\","c d"]"#),
            ("null", "null"),
            ("\"\"", ""),
        ] {
            assert_eq!(payload_of(value), sent, "{value}");
        }
        let bytes = message(r#"{"id": "a", "payload_base64": "/wA="}"#).unwrap().payload;
        assert_eq!(bytes, &b"\xff\0"[..]);
    }

    #[test]
    fn every_field_is_taken() {
        let line = r#"{"id": "a", "payload": 1, "delay": "90s", "priority": "high",
            "kind": "order", "headers": {"shop": "9"}, "max_failures": 3, "max_crashes": 2,
            "expires_in": "1h",
            "keep_result": "2m", "throttle": "3m",
            "reuse_finished_id": true}"#;
        let message = message(line).unwrap();
        assert_eq!(message.schedule, Schedule::In(Millis::new(90_000).unwrap()));
        assert_eq!(message.expires, Some(Schedule::In(Millis::new(3_600_000).unwrap())));
        assert_eq!((message.max_failures, message.max_crashes), (3, 2));
        assert_eq!(message.throttle.map(Millis::as_ms), Some(180_000));
        assert_eq!(message.headers.result_retention(), Some(std::time::Duration::from_secs(120)));
        assert_eq!((message.priority, message.headers.len()), (Priority::High, 3));
        assert_eq!((message.headers.kind(), message.group), (Some("order"), None));
    }

    #[test]
    fn a_group_is_short_text_and_has_normal_priority() {
        for name in ["t\u{e9}nant 7", "\u{0}", &"g".repeat(128)] {
            for priority in ["", r#", "priority": "normal""#] {
                let line = json!({"id": "a", "payload": 1, "group": name}).to_string();
                let sent = message(&line.replace('}', &format!("{priority}}}"))).unwrap();
                assert_eq!(sent.group.as_ref().map(Group::as_str), Some(name));
            }
        }
    }

    #[test]
    fn every_name_is_that_of_a_field_and_mistyped_ones_are_corrected() {
        for name in NAMES {
            let error = message(&format!(r#"{{"{name}": {{"a": 1}}}}"#)).unwrap_err();
            assert!(!error.contains("unknown field"), "{name}: {error}");
        }
        for (name, meant) in [
            ("dealy", "delay"),
            ("header", "headers"),
            ("Payload", "payload"),
            ("priorty", "priority"),
            ("groups", "group"),
            ("maxFailures", "max_failures"),
            ("expires", "expires_in"),
        ] {
            let error = message(&format!(r#"{{"{name}": 1}}"#)).unwrap_err();
            let wanted =
                format!("unknown field \"{name}\"; did you mean \"{meant}\"? (the fields are id,");
            assert!(error.starts_with(&wanted), "{error}");
        }
        let error = message(r#"{"colour": 1}"#).unwrap_err();
        assert!(error.starts_with("unknown field \"colour\" (the fields are id,"), "{error}");
        let long = format!(r#"{{"payload{}": 1}}"#, "_".repeat(40));
        let error = message(&long).unwrap_err();
        assert!(error.starts_with("unknown field \"payload_") && !error.contains("did you mean"));
    }

    #[test]
    fn an_instant_is_a_text_or_unix_time() {
        for at in ["1796112000", "1796112000000", "2026-12-01T08:00Z"] {
            let line = format!(r#"{{"id": "a", "payload": 1, "at": "{at}"}}"#);
            let message = message(&line).unwrap();
            let due = Timestamp::from_ms(1_796_112_000_000).unwrap();
            assert_eq!(message.schedule, Schedule::At(due), "{at}");
        }
    }

    #[test]
    fn updates_are_named_by_their_use() {
        let at_most = Millis::new(60_000).unwrap();
        for (fields, content, due) in [
            (r#""update": "replace""#, UpdateContent::Replace, UpdateDue::Set),
            (r#""update": "reschedule""#, UpdateContent::Keep, UpdateDue::Set),
            (r#""update": "coalesce""#, UpdateContent::Replace, UpdateDue::Keep),
            (
                r#""update": "debounce", "at_most": "1m""#,
                UpdateContent::Replace,
                UpdateDue::Later { at_most },
            ),
        ] {
            let token = r#""update_token": "00000000000000fF""#;
            let sent = message(&format!(r#"{{"id": "a", "payload": 1, {fields}, {token}}}"#));
            let sent = sent.unwrap();
            let token = UpdateToken::from_bytes([0, 0, 0, 0, 0, 0, 0, 255]);
            assert_eq!(sent.known, Known::Update(Update::new(content, due, token)), "{fields}");
            assert_eq!(sent.finished_ids, delayline::message::FinishedIds::Reuse);
        }
        let line = r#"{"id": "a", "payload": 1, "update": "coalesce"}"#;
        assert_ne!(message(line).unwrap().known, message(line).unwrap().known, "random tokens");
    }

    #[test]
    fn what_is_wrong_is_said_without_the_payload() {
        let long = "\u{e9}".repeat(64) + "g";
        let long_group = format!(r#"{{"id": "a", "payload": "hunter2", "group": "{long}"}}"#);
        for (line, why) in [
            (r#"{"payload": "hunter2"}"#, "it has no id"),
            (r#"{"id": "a"}"#, "it has no payload"),
            (r#"{"id": "a", "payload": "hunter2""#, "truncated"),
            (r#""hunter2""#, "not a JSON object"),
            (r#"["hunter2"]"#, "not a JSON object"),
            (r#"{"id": "a", hunter2}"#, "not JSON"),
            (r#"{"id": 7, "payload": "hunter2"}"#, "id must be a string"),
            (r#"{"id": "", "payload": "hunter2"}"#, "the message id is empty"),
            (r#"{"id": "delayline:shards", "payload": "hunter2"}"#, "it is reserved"),
            (r#"{"id": "a", "payload": "hunter2", "dealy": "9s"}"#, "unknown field \"dealy\""),
            (
                r#"{"id": "a", "payload": 1, "payload": "hunter2"}"#,
                "\"payload\" appears more than once",
            ),
            (r#"{"id": "a", "payload": "hunter2", "payload_base64": ""}"#, "both payload and"),
            (r#"{"id": "a", "payload_base64": "hunter2"}"#, "not base64"),
            (r#"{"id": "a", "payload": "hunter2", "delay": 90}"#, "delay must be a string"),
            (r#"{"id": "a", "payload": "hunter2", "delay": null}"#, "delay must be a string"),
            (r#"{"id": "a", "payload": "hunter2", "delay": "NaN"}"#, "not a duration"),
            (r#"{"id": "a", "payload": "hunter2", "at": "17961120"}"#, "10 digits in seconds"),
            (
                r#"{"id": "a", "payload": "hunter2", "at": 1796112000}"#,
                "or \"1796112000\" for unix",
            ),
            (r#"{"id": "a", "payload": "hunter2", "delay": "-1s"}"#, "it is negative"),
            (
                r#"{"id": "a", "payload": "hunter2", "delay": "1s", "at": "2026-01-01T00:00Z"}"#,
                "both",
            ),
            (r#"{"id": "a", "payload": "hunter2", "delay": "36526d"}"#, "it must be from 0 to"),
            (r#"{"id": "a", "payload": "hunter2", "priority": "hot"}"#, "priority must be"),
            (r#"{"id": "a", "payload": "hunter2", "group": 7}"#, "group must be a string"),
            (r#"{"id": "a", "payload": "hunter2", "group": ""}"#, "the group is empty"),
            (&long_group, "the group is 129 bytes long; at most 128"),
            (
                r#"{"id": "a", "payload": "hunter2", "group": "t", "priority": "high"}"#,
                "a message with a group has normal priority",
            ),
            (r#"{"id": "a", "payload": "hunter2", "max_failures": 0}"#, "from 1 to 65535"),
            (r#"{"id": "a", "payload": "hunter2", "max_failures": -1}"#, "max_failures is -1; it"),
            (
                r#"{"id": "a", "payload": "hunter2", "max_failures": 5000000000}"#,
                "max_failures is 5000000000; it must be a whole number from 1 to 65535",
            ),
            (r#"{"id": "a", "payload": "hunter2", "max_crashes": 1.5}"#, "a whole number"),
            (r#"{"id": "a", "payload": "hunter2", "keep_result": "8d"}"#, "604800000"),
            (r#"{"id": "a", "payload": "hunter2", "keep_result": 5}"#, "a string like"),
            (r#"{"id": "a", "payload": "hunter2", "after": "b"}"#, "a list of ids"),
            (r#"{"id": "a", "payload": "hunter2", "after": [{"id": "b"}]}"#, "queue and id"),
            (r#"{"id": "a", "payload": "hunter2", "after": [""]}"#, "is empty"),
            (r#"{"id": "a", "payload": "hunter2", "after": [], "on_failure": "x"}"#, "deliver or"),
            (r#"{"id": "a", "payload": "hunter2", "after": [], "delay": "1s"}"#, "due time out"),
            (r#"{"id": "a", "payload": "hunter2", "on_failure": "wait"}"#, "with after"),
            (r#"{"id": "a", "payload": "hunter2", "headers": {"delayline-wakes": " w"}}"#, "wakes"),
            (r#"{"id": "a", "payload": "hunter2", "throttle": "32d"}"#, "2678400000"),
            (r#"{"id": "a", "payload": "hunter2", "throttle": "0s"}"#, "throttle"),
            (r#"{"payload": "hunter2", "throttle": "1s"}"#, "throttle needs an id"),
            (r#"{"id": "a", "payload": "hunter2", "update": "debounce"}"#, "needs at_most"),
            (r#"{"id": "a", "payload": "hunter2", "update": "never"}"#, "update must be"),
            (r#"{"id": "a", "payload": "hunter2", "at_most": "1s"}"#, "at_most is for"),
            (
                r#"{"id": "a", "payload": "hunter2", "update": "replace", "at_most": "1s"}"#,
                "at_most is for",
            ),
            (
                r#"{"id": "a", "payload": "hunter2", "update": "replace", "update_token": "7"}"#,
                "16 hexadecimal digits",
            ),
            (
                r#"{"id": "a", "payload": "hunter2", "update": "replace",
                    "update_token": "0000000000000000"}"#,
                "not 0",
            ),
            (r#"{"id": "a", "payload": "hunter2", "headers": {"a": 1}}"#, "an object of strings"),
            (
                r#"{"id": "a", "payload": "hunter2", "headers": {"b": "1", "a": "", "b": "2"}}"#,
                "the header \"b\" appears more than once",
            ),
            (r#"{"id": "a", "payload": "hunter2", "kind": ""}"#, "the kind is empty"),
            (
                r#"{"id": "a", "payload": "hunter2", "kind": "a", "headers": {"delayline-kind": ""}}"#,
                "the header \"delayline-kind\" appears more than once",
            ),
            ("", "truncated"),
        ] {
            let error = message(line).unwrap_err();
            assert!(error.contains(why), "{line}: {error}");
            assert!(!error.contains("hunter2"), "{line}: {error}");
        }
        assert!(Fields::from_json(b"{\"id\": \"\xff\"}").is_err());
    }
}
