//! Attributes of messages, and the headers that hold them.
//!
//! A header is an attribute of the same name. Its type is `String`, or `Binary` if its value is no
//! text. Other types, and what SQS knows of a message besides, are in one more header, [`HEADER`].

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use delayline::Bytes;
use delayline::after;
use delayline::message::Headers;
use delayline_web::waiting::SQS_HEADER;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::error::{Code, Error};

/// Attributes by name, in the order of their digest.
pub(crate) type Attributes = BTreeMap<String, Attribute>;

/// The value of an attribute, with its whole type.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Attribute {
    pub(crate) data_type: String,
    pub(crate) content: Content,
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Content {
    Text(String),
    Binary(Vec<u8>),
}

impl Attribute {
    /// Reads an attribute as a request has it.
    fn read(name: &str, value: &Value) -> Result<Self, Error> {
        let wrong =
            |why: &str| Error::value(format!("The message attribute '{}' {why}.", harmless(name)));
        let text = |member: &str| value.get(member).and_then(Value::as_str);
        let data_type = text("DataType").unwrap_or_default();
        if data_type.is_empty() {
            return Err(wrong("must contain a non-empty message attribute type"));
        }
        let is_printable = |c: char| c.is_ascii_graphic();
        let has_no_label = data_type.ends_with('.');
        if data_type.len() > MOST_TYPE_BYTES || has_no_label || !data_type.chars().all(is_printable)
        {
            return Err(wrong("has an invalid message attribute type"));
        }
        if ["StringValue", "BinaryValue"].iter().all(|it| text(it).is_some()) {
            return Err(wrong("must have one value"));
        }
        let content = match data_type.split('.').next() {
            Some("String" | "Number") => {
                let text = text("StringValue").filter(|text| !text.is_empty());
                let text = text.ok_or_else(|| {
                    Error::value(format!(
                        "Message (user) attribute '{}' must contain a non-empty value of type \
                         '{data_type}'.",
                        harmless(name)
                    ))
                })?;
                if !text.chars().all(is_allowed) {
                    return Err(wrong("has characters that are not allowed"));
                }
                if data_type.starts_with('N') && !is_number(text) {
                    return Err(wrong(
                        "with type 'Number' must contain a number of at most 38 \
                         digits, from 10^-128 to 10^126",
                    ));
                }
                Content::Text(text.to_owned())
            }
            Some("Binary") => {
                let bytes = text("BinaryValue").and_then(|text| STANDARD.decode(text).ok());
                let bytes = bytes.filter(|bytes| !bytes.is_empty());
                Content::Binary(bytes.ok_or_else(|| {
                    wrong(
                        "must contain a non-empty message \
                    attribute value in Base64 for its type",
                    )
                })?)
            }
            _ => {
                return Err(wrong(
                    "has an invalid message attribute type, the set of supported type \
                                  prefixes is Binary, Number, and String",
                ));
            }
        };
        Ok(Self { data_type: data_type.to_owned(), content })
    }

    /// The attribute as an answer has it.
    fn write(&self) -> Value {
        match &self.content {
            Content::Text(text) => json!({"StringValue": text, "DataType": self.data_type}),
            Content::Binary(bytes) => {
                json!({"BinaryValue": STANDARD.encode(bytes), "DataType": self.data_type})
            }
        }
    }

    /// Number of bytes that count towards the size of a message.
    pub(crate) fn bytes(&self) -> usize {
        let content = match &self.content {
            Content::Text(text) => text.len(),
            Content::Binary(bytes) => bytes.len(),
        };
        self.data_type.len() + content
    }
}

/// What SQS knows of a message besides its attributes, as JSON in a header. Short names: headers
/// have a limit.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Extras {
    /// Types of attributes, where the values do not show them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", rename = "t")]
    pub(crate) types: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "h")]
    pub(crate) trace_header: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "d")]
    pub(crate) deduplication_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "s")]
    pub(crate) sender: Option<String>,
    /// The queue that a dead letter comes from.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "q")]
    pub(crate) source: Option<String>,
    /// A hash of the place of a moved message in the queue that it was moved from. It distinguishes
    /// messages that have one id one after the other.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "n")]
    pub(crate) place: Option<u64>,
    /// How many times a dead letter was received before.
    #[serde(default, skip_serializing_if = "is_zero", rename = "r")]
    pub(crate) receives: u64,
    /// When a dead letter was sent first, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "e")]
    pub(crate) sent_ms: Option<u64>,
}

impl Extras {
    pub(crate) fn of(headers: &Headers) -> Self {
        // It would be read from an array, too.
        let object = headers.get(HEADER).filter(|json| json.trim_ascii_start().starts_with(b"{"));
        object.and_then(|json| serde_json::from_slice(json).ok()).unwrap_or_default()
    }
}

/// Reads the attributes of a message to send.
pub(crate) fn read(map: &Map<String, Value>) -> Result<Attributes, Error> {
    let mut attributes = Attributes::new();
    for (name, value) in map {
        let starts = |prefix: &str| {
            name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
        };
        let has_dots = name.starts_with('.') || name.ends_with('.') || name.contains("..");
        let is_long = name.len() > MOST_NAME_BYTES;
        if name.is_empty() || is_long || has_dots || !name.chars().all(is_name) {
            return Err(Error::value(format!(
                "The message attribute name '{}' is invalid. Attribute name can contain A-Z, a-z, \
                 0-9, underscore (_), hyphen (-), and period (.) characters.",
                harmless(name)
            )));
        }
        // A message waits for messages of any queue, and its sender may have no right to others.
        let is_reserved = &**name == HEADER || after::HEADERS.contains(&&**name);
        if starts("AWS.") || starts("Amazon.") || is_reserved {
            return Err(Error::value("Message attribute name has a reserved prefix."));
        }
        attributes.insert(name.clone(), Attribute::read(name, value)?);
    }
    Ok(attributes)
}

/// The headers of attributes.
pub(crate) fn headers(attributes: &Attributes, mut extras: Extras) -> Result<Headers, Error> {
    let mut headers = Headers::new();
    let limits = || {
        let why = "All attributes of a message may have at most 8 KiB and 31 names here.";
        Error::value(why)
    };
    for (name, Attribute { data_type, content }) in attributes {
        let bytes = match content {
            Content::Text(text) => Bytes::from(text.clone()),
            Content::Binary(bytes) => Bytes::from(bytes.clone()),
        };
        if usual_type(&bytes) != data_type {
            extras.types.insert(name.clone(), data_type.clone());
        }
        headers.set(name, bytes).map_err(|_| limits())?;
    }
    set(&mut headers, &extras).map_err(|()| limits())?;
    Ok(headers)
}

/// Sets the header of the extras, if there are any.
pub(crate) fn set(headers: &mut Headers, extras: &Extras) -> Result<(), ()> {
    if *extras == Extras::default() {
        return Ok(());
    }
    let json = serde_json::to_vec(extras).map_err(drop)?;
    headers.set(HEADER, json).map_err(drop)
}

/// Sets the header of the extras. If headers do not have that much room, leaves out what a message
/// that is moved needs least. Returns the headers, and `false` if they have no extras at all.
pub(crate) fn set_what_fits(headers: &Headers, mut extras: Extras) -> (Headers, bool) {
    let mut changed = headers.clone();
    let drops: [fn(&mut Extras); 5] = [
        |_| {},
        |extras| extras.trace_header = None,
        |extras| extras.sender = None,
        |extras| extras.sent_ms = None,
        |extras| extras.types.clear(),
    ];
    for leave_out in drops {
        leave_out(&mut extras);
        if set(&mut changed, &extras).is_ok() {
            return (changed, true);
        }
    }
    let mut bare = Headers::new();
    for (name, value) in headers.iter().filter(|(name, _)| *name != HEADER) {
        // They fit with the other header.
        drop(bare.set(name, value.clone()));
    }
    (bare, false)
}

/// The attributes that headers hold. A header whose name or value is no attribute is left out.
pub(crate) fn of_headers(headers: &Headers, extras: &Extras) -> Attributes {
    let mut attributes = Attributes::new();
    for (name, value) in headers.iter().filter(|(name, _)| *name != HEADER) {
        if value.is_empty() || !name.chars().all(is_name) {
            continue;
        }
        let usual = usual_type(value);
        let data_type = extras.types.get(name).map_or(usual, String::as_str).to_owned();
        let content = match std::str::from_utf8(value) {
            Ok(text) if !data_type.starts_with("Binary") => Content::Text(text.to_owned()),
            _ => Content::Binary(value.to_vec()),
        };
        attributes.insert(name.to_owned(), Attribute { data_type, content });
    }
    attributes
}

/// The attributes that a receiver wants: by names, prefixes or all.
pub(crate) fn only(attributes: Attributes, wanted: &[String]) -> Attributes {
    let is_wanted = |name: &String| {
        wanted.iter().any(|wanted| {
            let prefix = wanted.strip_suffix(".*").or_else(|| wanted.strip_suffix('*'));
            wanted == "All"
                || wanted == name
                || prefix.is_some_and(|prefix| name.starts_with(prefix))
        })
    };
    attributes.into_iter().filter(|(name, _)| is_wanted(name)).collect()
}

/// The attributes as an answer has them.
pub(crate) fn write(attributes: &Attributes) -> Value {
    let pairs = attributes.iter().map(|(name, attribute)| (name.clone(), attribute.write()));
    Value::Object(pairs.collect())
}

/// Checks a body.
pub(crate) fn valid_body(body: &str) -> Result<(), Error> {
    if body.is_empty() {
        return Err(Error::missing("MessageBody"));
    }
    if body.chars().all(is_allowed) {
        return Ok(());
    }
    let why = "The message contains characters outside the allowed set.";
    Err(Error::new(Code::InvalidMessageContents, why))
}

/// A payload as a body. One that is no text, or has characters that SQS does not allow, is in
/// Base64.
pub(crate) fn body(payload: &Bytes) -> String {
    match std::str::from_utf8(payload) {
        Ok(text) if text.chars().all(is_allowed) => text.to_owned(),
        _ => STANDARD.encode(payload),
    }
}

/// Whether SQS takes this for a number. Zeros before and after the digits do not count.
fn is_number(text: &str) -> bool {
    let Some(number) = text.parse().ok().filter(|it: &f64| it.is_finite()) else { return false };
    let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let count = digits.trim_matches('0').len();
    count <= MOST_DIGITS && (count == 0 || (1e-128..=1e126).contains(&number.abs()))
}

/// Whether the name of an attribute may have this character.
fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-.".contains(c)
}

/// The type of a header's value without another one in the [`Extras`].
fn usual_type(value: &[u8]) -> &'static str {
    match std::str::from_utf8(value) {
        Ok(text) if text.chars().all(is_allowed) => "String",
        _ => "Binary",
    }
}

/// Whether XML 1.0, and so SQS, permits this character.
pub(crate) const fn is_allowed(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn harmless(name: &str) -> &str {
    name.get(..80).unwrap_or(name)
}

/// The header with the [`Extras`].
pub(crate) const HEADER: &str = SQS_HEADER;
const MOST_NAME_BYTES: usize = 255;
const MOST_TYPE_BYTES: usize = 256;
const MOST_DIGITS: usize = 38;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_return_from_headers_with_their_types() {
        let map = json!({
            "text": {"DataType": "String", "StringValue": "x"},
            "number": {"DataType": "Number.int", "StringValue": "7"},
            "binary": {"DataType": "Binary", "BinaryValue": "/w=="},
            "gif": {"DataType": "Binary.gif", "BinaryValue": "R0lG"},
        });
        let attributes = read(map.as_object().unwrap()).unwrap();
        let headers = headers(&attributes, Extras::default()).unwrap();
        assert_eq!(headers.get("number").map(|it| &it[..]), Some(&b"7"[..]));
        let extras = Extras::of(&headers);
        let kept: Vec<_> = extras.types.keys().map(String::as_str).collect();
        assert_eq!(kept, ["gif", "number"]);
        assert!(of_headers(&headers, &extras) == attributes);
        assert_eq!(write(&only(attributes, &["te*".to_owned()])), json!({"text": map["text"]}));
    }

    #[test]
    fn a_moved_message_keeps_the_extras_that_fit() {
        let extras = || Extras {
            types: [("n".to_owned(), "Number".to_owned())].into(),
            trace_header: Some("t".repeat(500)),
            source: Some("orders".to_owned()),
            ..Extras::default()
        };
        let filled = |bytes| {
            let mut headers = Headers::new();
            headers.set("n", vec![b'7'; bytes]).unwrap();
            headers
        };
        let (headers, has_extras) = set_what_fits(&filled(8_000), extras());
        let kept = Extras::of(&headers);
        assert!(has_extras && kept.trace_header.is_none() && !kept.types.is_empty());
        assert_eq!(kept.source.as_deref(), Some("orders"));
        let full = filled(8_180);
        assert!(set_what_fits(&full, extras()) == (full, false));
    }

    #[test]
    fn what_is_no_attribute_is_refused_without_its_value() {
        for (name, value) in [
            ("a", json!({"DataType": "", "StringValue": "secret"})),
            ("a", json!({"DataType": "Text", "StringValue": "secret"})),
            ("a", json!({"DataType": "String", "StringValue": ""})),
            ("a", json!({"DataType": "Number", "StringValue": "secret"})),
            ("a", json!({"DataType": "Number", "StringValue": "inf"})),
            ("a", json!({"DataType": "Number", "StringValue": "1e127"})),
            ("a", json!({"DataType": "Number", "StringValue": "-1e-129"})),
            ("a", json!({"DataType": "Number", "StringValue": "1".repeat(39)})),
            ("a", json!({"DataType": "String.", "StringValue": "secret"})),
            (
                "a",
                json!({"DataType": "String", "StringValue": "secret", "BinaryValue": "c2VjcmV0"}),
            ),
            ("\u{e4}", json!({"DataType": "String", "StringValue": "secret"})),
            ("a", json!({"DataType": "Binary", "BinaryValue": "secret!"})),
            ("a", json!("secret")),
            ("AWS.a", json!({"DataType": "String", "StringValue": "secret"})),
            ("a..b", json!({"DataType": "String", "StringValue": "secret"})),
            ("a b", json!({"DataType": "String", "StringValue": "secret"})),
            (HEADER, json!({"DataType": "String", "StringValue": "secret"})),
            (after::WAITS_FOR, json!({"DataType": "String", "StringValue": "0 0 1 wait"})),
            (after::WAKES, json!({"DataType": "String", "StringValue": "others a"})),
        ] {
            let map = Map::from_iter([(name.to_owned(), value)]);
            let Err(error) = read(&map) else { panic!("{name} was accepted") };
            assert_eq!(error.code(), Code::InvalidParameterValue);
            assert!(!error.message().contains("secret"), "{error}");
        }
    }

    #[test]
    fn numbers_have_the_digits_and_the_range_of_sqs() {
        let digits = format!("-{}.50", "1".repeat(37));
        for text in ["0", "-0.00", "+7", "1e126", "1E-128", "1e3", &digits, &"10".repeat(19)] {
            assert!(is_number(text), "{text}");
        }
    }

    #[test]
    fn a_payload_is_a_body_that_xml_can_have() {
        assert_eq!(body(&Bytes::from_static(b"a\n")), "a\n");
        assert_eq!(body(&Bytes::from_static(b"\xff")), "/w==");
        assert_eq!(body(&Bytes::from_static(b"\0")), "AA==");
        assert!(valid_body("a\u{ffff}").is_err() && valid_body("").is_err());
    }
}
