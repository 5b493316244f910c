//! The Query protocol: forms that are read as the JSON of the other protocol.

use std::collections::BTreeMap;

use percent_encoding::percent_decode;
use serde_json::{Map, Value};

use crate::error::{Code, Error};

/// Reads the forms of a request as one: the action, if it names one, and its parameters as the JSON
/// protocol has them.
///
/// # Errors
///
/// If a name is no path, or there are too many of them.
pub(crate) fn read(forms: &[&[u8]]) -> Result<(Option<String>, Value), Error> {
    let mut root = Node::default();
    let mut count = 0_usize;
    let pairs = forms.iter().flat_map(|form| form.split(|byte| *byte == b'&'));
    for pair in pairs.filter(|pair| !pair.is_empty()) {
        count += 1;
        if count > MOST_PARAMETERS {
            return Err(malformed("it has too many parameters"));
        }
        let mut halves = pair.splitn(2, |byte| *byte == b'=');
        let name = decoded(halves.next().unwrap_or_default())?;
        let value = decoded(halves.next().unwrap_or_default())?;
        root.insert(&name, value)?;
    }
    let action = root.children.remove("Action").and_then(|node| node.value);
    Ok((action, root.members()))
}

fn decoded(bytes: &[u8]) -> Result<String, Error> {
    let bytes: Vec<u8> =
        bytes.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    let text = percent_decode(&bytes).decode_utf8();
    Ok(text.map_err(|_| malformed("it is not UTF-8"))?.into_owned())
}

fn malformed(why: &str) -> Error {
    Error::new(Code::Serialization, format!("The form cannot be read: {why}."))
}

/// A parameter, or the parameters whose names begin with its path.
#[derive(Default)]
struct Node {
    value: Option<String>,
    children: BTreeMap<String, Self>,
}

impl Node {
    fn insert(&mut self, path: &str, value: String) -> Result<(), Error> {
        let mut node = self;
        for (level, step) in path.split('.').enumerate() {
            if level >= MOST_LEVELS {
                return Err(malformed("a name has too many levels"));
            }
            node = node.children.entry(step.to_owned()).or_default();
        }
        node.value = Some(value);
        Ok(())
    }

    /// The node as a structure: the names of lists and maps are those of the JSON protocol.
    fn structure(self) -> Value {
        if self.children.is_empty() {
            return Value::String(self.value.unwrap_or_default());
        }
        self.members()
    }

    fn members(self) -> Value {
        let mut members = Map::new();
        for (name, node) in self.children {
            let (name, value) = match &*name {
                // Clients send empty maps and lists with the names of the JSON protocol.
                "Attributes" | "MessageAttributes" | "MessageSystemAttributes" => {
                    (name, node.map("Name"))
                }
                "Entries"
                | "AttributeNames"
                | "MessageAttributeNames"
                | "MessageSystemAttributeNames"
                | "TagKeys" => (name, node.list()),
                "Attribute" => ("Attributes".to_owned(), node.map("Name")),
                "MessageAttribute" => ("MessageAttributes".to_owned(), node.map("Name")),
                "MessageSystemAttribute" => {
                    ("MessageSystemAttributes".to_owned(), node.map("Name"))
                }
                "Tag" | "Tags" => ("Tags".to_owned(), node.map("Key")),
                "AttributeName"
                | "MessageAttributeName"
                | "MessageSystemAttributeName"
                | "TagKey" => (format!("{name}s"), node.list()),
                _ if name.ends_with("BatchRequestEntry") => ("Entries".to_owned(), node.list()),
                _ => (name, node.structure()),
            };
            members.insert(name, value);
        }
        Value::Object(members)
    }

    /// The node as a list. Older clients send a list of one without its number.
    fn list(self) -> Value {
        if self.children.is_empty() {
            // A name without a value is an empty list.
            let value = self.value.filter(|value| !value.is_empty());
            return value.map(Value::String).into_iter().collect();
        }
        self.items().into_iter().map(Self::structure).collect()
    }

    /// The node as a map, whose entries have a member for the key, and one named `Value`.
    fn map(self, key: &str) -> Value {
        let mut members = Map::new();
        for mut entry in self.items() {
            let Some(name) = entry.children.remove(key).and_then(|node| node.value) else {
                continue;
            };
            let value = entry.children.remove("Value").unwrap_or_default();
            members.insert(name, value.structure());
        }
        Value::Object(members)
    }

    /// The children, in the order of their numbers. A map of one may have no number.
    fn items(self) -> Vec<Self> {
        let is_number = |name: &String| name.parse::<u32>().is_ok();
        if !self.children.is_empty() && !self.children.keys().all(is_number) {
            return vec![self];
        }
        let number = |(name, node): (String, Self)| (name.parse::<u32>().unwrap_or(u32::MAX), node);
        let mut items: Vec<_> = self.children.into_iter().map(number).collect();
        items.sort_by_key(|(number, _)| *number);
        items.into_iter().map(|(_, node)| node).collect()
    }
}

/// Ten entries with ten attributes each have 440.
const MOST_PARAMETERS: usize = 4_096;
const MOST_LEVELS: usize = 8;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_form_is_read_as_json() {
        let form = "Action=SendMessageBatch&Version=2012-11-05\
                    &SendMessageBatchRequestEntry.2.Id=b&SendMessageBatchRequestEntry.2.MessageBody=2\
                    &SendMessageBatchRequestEntry.1.Id=a+b%20c\
                    &SendMessageBatchRequestEntry.1.MessageAttribute.1.Name=n\
                    &SendMessageBatchRequestEntry.1.MessageAttribute.1.Value.DataType=String\
                    &SendMessageBatchRequestEntry.1.MessageAttribute.1.Value.StringValue=x%3D\
                    &Attribute.1.Name=DelaySeconds&Attribute.1.Value=5&AttributeName=All\
                    &Tag.1.Key=k&Tag.1.Value=v&MessageAttributes=&MessageAttributeNames=";
        let (url, body) = form.split_once("&Tag").unwrap();
        let body = format!("Tag{body}");
        let (action, value) = read(&[url.as_bytes(), body.as_bytes()]).unwrap();
        assert_eq!(action.as_deref(), Some("SendMessageBatch"));
        assert_eq!(
            value,
            json!({
                "Version": "2012-11-05",
                "Attributes": {"DelaySeconds": "5"},
                "AttributeNames": ["All"],
                "MessageAttributeNames": [],
                "MessageAttributes": {},
                "Tags": {"k": "v"},
                "Entries": [
                    {
                        "Id": "a b c",
                        "MessageAttributes": {"n": {"DataType": "String", "StringValue": "x="}},
                    },
                    {"Id": "b", "MessageBody": "2"},
                ],
            })
        );
    }

    #[test]
    fn forms_without_end_are_refused() {
        for form in ["a=1&".repeat(5_000), "a.".repeat(100), "a=%ff".to_owned()] {
            assert_eq!(read(&[form.as_bytes()]).unwrap_err().code(), Code::Serialization);
        }
        for form in ["", "&&", "=", "=x", "Tag=1", "Tag.x=1", "Attribute.1.1.1=2", "a.1=1&a=2"] {
            read(&[form.as_bytes()]).unwrap();
        }
    }
}
