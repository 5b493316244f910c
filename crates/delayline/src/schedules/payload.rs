//! The payload of a schedule.

use std::collections::BTreeMap;

use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::{self, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// JSON without spaces, whose members are in the order of their names: so that two programs, or two
/// runs, agree on whether a payload has changed. Numbers stay as they were written.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Payload(String);

impl Payload {
    /// # Errors
    ///
    /// It is not JSON, or too deep.
    pub(super) fn new(json: &[u8]) -> Result<Self, serde_json::Error> {
        let mut out = String::with_capacity(json.len());
        write(serde_json::from_slice(json)?, MOST_LEVELS, &mut out)?;
        Ok(Self(out))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Payload {
    fn default() -> Self {
        Self("null".to_owned())
    }
}

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Self::new(raw.get().as_bytes()).map_err(Error::custom)
    }
}

/// Appends a value that has at most this number of levels.
fn write(json: &RawValue, levels: usize, out: &mut String) -> Result<(), serde_json::Error> {
    let text = json.get();
    let first = text.bytes().next();
    if levels == 0 && matches!(first, Some(b'{' | b'[')) {
        return Err(Error::custom("it has too many levels"));
    }
    match first {
        Some(b'{') => {
            let members: BTreeMap<String, &RawValue> = serde_json::from_str(text)?;
            let mut separator = '{';
            for (name, value) in &members {
                out.push(separator);
                out.push_str(&serde_json::to_string(name)?);
                out.push(':');
                write(value, levels - 1, out)?;
                separator = ',';
            }
            out.push_str(if members.is_empty() { "{}" } else { "}" });
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(text)?;
            let mut separator = '[';
            for item in &items {
                out.push(separator);
                write(item, levels - 1, out)?;
                separator = ',';
            }
            out.push_str(if items.is_empty() { "[]" } else { "]" });
        }
        Some(b'-' | b'0'..=b'9') => out.push_str(text),
        // Texts have several forms, too.
        _ => out.push_str(&serde_json::from_str::<Value>(text)?.to_string()),
    }
    Ok(())
}

/// As many as `serde_json` reads.
const MOST_LEVELS: usize = 127;
