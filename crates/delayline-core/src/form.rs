//! The serialized form of operations: what no derive can do. The crate's documentation describes
//! it.

use std::fmt;

use ::bytes::Bytes;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{
    ClaimId, ConsumerName, DestinationKey, Group, GroupName, Headers, MessageId, Millis,
    NewMessage, ProcessId, Schedule, Timestamp, UpdateToken, Violation,
};

/// Serializes types as others, from which they are created with a check.
macro_rules! checked {
    ($($name:ty as $form:ty: $to:expr, $from:expr;)*) => {$(
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let to: fn(&Self) -> $form = $to;
                to(self).serialize(serializer)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $from(<$form>::deserialize(deserializer)?).map_err(Error::custom)
            }
        }
    )*};
}

checked! {
    Timestamp as u64: |it| it.as_ms(), Self::from_ms;
    Millis as u64: |it| it.as_ms(), Self::new;
    MessageId as Text: |it| Text(Bytes::copy_from_slice(it.as_bytes())), |text: Text| Self::new(text.0);
    ConsumerName as Text: |it| Text(it.as_bytes().clone()), |text: Text| Self::new(text.0);
    DestinationKey as Text: |it| Text(it.as_bytes().clone()), |text: Text| Self::new(text.0);
    Group as String: |it| it.as_str().to_owned(), Self::new;
    GroupName as Text: |it| Text(it.as_bytes().clone()), |text: Text| Self::new(text.0);
    ClaimId as Text: |it| Text(it.as_bytes().to_vec().into()), |text| token(text, Self::from_bytes);
    ProcessId as Text:
        |it| Text(it.as_bytes().to_vec().into()), |text| token(text, Self::from_bytes);
    UpdateToken as Text:
        |it| Text(it.as_bytes().to_vec().into()), |text| token(text, Self::from_bytes);
    Headers as Vec<(String, Text)>:
        |it| it.iter().map(|(name, value)| (name.to_owned(), Text(value.clone()))).collect(), headers;
}

fn token<T, const N: usize>(Text(bytes): Text, from: fn([u8; N]) -> T) -> Result<T, String> {
    let wrong = |_| format!("the token has {} bytes instead of {N}", bytes.len());
    <[u8; N]>::try_from(&*bytes).map(from).map_err(wrong)
}

fn headers(all: Vec<(String, Text)>) -> Result<Headers, Violation> {
    let mut headers = Headers::new();
    all.into_iter().try_for_each(|(name, Text(value))| headers.set(name, value))?;
    Ok(headers)
}

/// Bytes as text.
struct Text(Bytes);

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|&byte| match byte {
            b' '..=b'~' if byte != b'%' => write!(f, "{}", char::from(byte)),
            _ => write!(f, "%{byte:02x}"),
        })
    }
}

/// In a binary format, bytes are bytes.
impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            serializer.serialize_bytes(&self.0)
        }
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return deserializer.deserialize_byte_buf(BytesVisitor);
        }
        let text = String::deserialize(deserializer)?;
        let mut parts = text.split('%');
        let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
        for part in parts {
            let digits = part.get(..2).filter(|it| it.bytes().all(|it| it.is_ascii_hexdigit()));
            let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
            let byte = byte.ok_or_else(|| Error::custom("two digits follow each % in bytes"))?;
            bytes.push(byte);
            bytes.extend(part.bytes().skip(2));
        }
        Ok(Self(bytes.into()))
    }
}

struct BytesVisitor;

impl Visitor<'_> for BytesVisitor {
    type Value = Text;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Text, E> {
        Ok(Text(Bytes::copy_from_slice(bytes)))
    }

    fn visit_byte_buf<E: Error>(self, bytes: Vec<u8>) -> Result<Text, E> {
        Ok(Text(bytes.into()))
    }
}

/// Fields of bytes.
pub(crate) mod bytes {
    use super::{Bytes, Deserialize, Deserializer, Serialize, Serializer, Text};

    pub(crate) fn serialize<S: Serializer>(
        bytes: &Bytes,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        Text(bytes.clone()).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Bytes, D::Error> {
        Ok(Text::deserialize(deserializer)?.0)
    }
}

/// Fields of bytes that may be missing.
pub(crate) mod optional_bytes {
    use super::{Bytes, Deserialize, Deserializer, Serialize, Serializer, Text};

    #[expect(clippy::ref_option, reason = "serde passes the field")]
    pub(crate) fn serialize<S: Serializer>(
        bytes: &Option<Bytes>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        bytes.clone().map(Text).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Bytes>, D::Error> {
        Ok(Option::<Text>::deserialize(deserializer)?.map(|text| text.0))
    }
}

pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

pub(crate) const fn now() -> Schedule {
    Schedule::NOW
}

pub(crate) fn is_now(schedule: &Schedule) -> bool {
    *schedule == Schedule::NOW
}

pub(crate) const fn max_failures() -> u32 {
    NewMessage::DEFAULT_MAX_FAILURES
}

pub(crate) const fn is_max_failures(most: &u32) -> bool {
    *most == NewMessage::DEFAULT_MAX_FAILURES
}

pub(crate) const fn max_crashes() -> u32 {
    NewMessage::DEFAULT_MAX_CRASHES
}

pub(crate) const fn is_max_crashes(most: &u32) -> bool {
    *most == NewMessage::DEFAULT_MAX_CRASHES
}

#[cfg(test)]
mod tests {
    use crate::{Op, Timestamp};

    fn read(text: &str) -> Result<Op, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_written_is_read_and_defaults_are_left_out() {
        for text in [
            r#""pause""#,
            r#"{"enqueue":[{"id":"%00%25%ff\"","headers":[["x","%0a"]]}]}"#,
            r#"{"enqueue":[{"id":"a","payload":"{}","priority":"high","schedule":{"in":5}}]}"#,
            r#"{"enqueue":[{"id":"a","max_failures":21,"max_crashes":6,"finished_ids":"reuse"}]}"#,
            r#"{"relay":{"to":{"list":{"key":"k"}},"max":3}}"#,
            r#"{"list":{"status":"ready","limit":100}}"#,
            r#"{"reschedule":[{"id":"a","schedule":{"at":253402300799999}}]}"#,
        ] {
            assert_eq!(serde_json::to_string(&read(text).unwrap()).unwrap(), text);
        }
    }

    #[test]
    fn what_a_constructor_refuses_is_refused() {
        for (text, reason) in [
            (r#"{"cancel":[""]}"#, "the message id is empty"),
            (r#"{"cancel":["%4"]}"#, "two digits follow each %"),
            (r#"{"cancel":["%+4"]}"#, "two digits follow each %"),
            (r#"{"enqueue":[{"id":"a","payloads":""}]}"#, "unknown field `payloads`"),
            (r#"{"enqueue":[{"id":"a","headers":[["","x"]]}]}"#, "the header name is empty"),
            (r#"{"forecast":[3155760000001]}"#, "the duration in ms"),
            (r#"{"relay":{"to":{"list":{"key":"delayline:x"}},"max":3}}"#, "belong to queues"),
            (r#"{"relay":{"to":{"list":{"key":"k","len":1}},"max":3}}"#, "unknown field `len`"),
            (
                r#"{"claim":{"consumer":"c","claim_id":"short","max":1,"lease":5}}"#,
                "the token has 5 bytes instead of 16",
            ),
            (r#"{"explode":[]}"#, "unknown variant `explode`"),
        ] {
            let refused = read(text).unwrap_err();
            assert!(refused.contains(reason), "{text}: {refused}");
        }
        assert!(serde_json::from_str::<Timestamp>("253402300800000").is_err());
    }
}
