//! The answers of the Query protocol, written from those of the other protocol.

use quick_xml::escape::escape;
use serde_json::Value;

use crate::attributes::is_allowed;
use crate::error::Error;

/// Writes the answer to an action.
pub(crate) fn answer(action: &str, value: &Value, request_id: &str) -> String {
    let mut text = format!(r#"<?xml version="1.0"?><{action}Response xmlns="{NAMESPACE}">"#);
    if !WITHOUT_RESULT.contains(&action) {
        let start = format!("<{action}Result>");
        text.push_str(&start);
        let length = text.len();
        structure(&mut text, action, value);
        if text.len() > length {
            text.push_str(&format!("</{action}Result>"));
        } else {
            text.truncate(length - 1);
            text.push_str("/>");
        }
    }
    text.push_str("<ResponseMetadata>");
    element(&mut text, "RequestId", request_id);
    text.push_str(&format!("</ResponseMetadata></{action}Response>"));
    text
}

/// Writes an error.
pub(crate) fn error(error: &Error, request_id: &str) -> String {
    let mut text = format!(r#"<?xml version="1.0"?><ErrorResponse xmlns="{NAMESPACE}"><Error>"#);
    element(&mut text, "Type", if error.is_of_sender() { "Sender" } else { "Receiver" });
    element(&mut text, "Code", error.query_code());
    element(&mut text, "Message", error.query_message());
    text.push_str("</Error>");
    element(&mut text, "RequestId", request_id);
    text.push_str("</ErrorResponse>");
    text
}

fn structure(text: &mut String, action: &str, value: &Value) {
    let Some(members) = value.as_object() else { return };
    for (name, value) in members {
        match (&**name, value) {
            ("Attributes", Value::Object(map)) => entries(text, "Attribute", "Name", map),
            ("MessageAttributes", Value::Object(map)) => {
                entries(text, "MessageAttribute", "Name", map);
            }
            ("Tags", Value::Object(map)) => entries(text, "Tag", "Key", map),
            (_, Value::Array(items)) => {
                let batch = format!("{action}ResultEntry");
                let name = match &**name {
                    "QueueUrls" | "queueUrls" => "QueueUrl",
                    "Messages" => "Message",
                    "Failed" => "BatchResultErrorEntry",
                    _ => &batch,
                };
                for item in items {
                    node(text, action, name, item);
                }
            }
            (name, value) => node(text, action, name, value),
        }
    }
}

/// A map, as elements with a key and a value each.
fn entries(text: &mut String, name: &str, key: &str, map: &serde_json::Map<String, Value>) {
    for (entry, value) in map {
        text.push_str(&format!("<{name}>"));
        element(text, key, entry);
        node(text, "", "Value", value);
        text.push_str(&format!("</{name}>"));
    }
}

fn node(text: &mut String, action: &str, name: &str, value: &Value) {
    match value {
        Value::Null => {}
        Value::Object(_) => {
            text.push_str(&format!("<{name}>"));
            structure(text, action, value);
            text.push_str(&format!("</{name}>"));
        }
        Value::String(value) => element(text, name, value),
        other => element(text, name, &other.to_string()),
    }
}

fn element(text: &mut String, name: &str, value: &str) {
    // A parser refuses the whole answer for one character that XML 1.0 forbids. Programs with the
    // library may have them in groups.
    let value = value.replace(|c| !is_allowed(c), "\u{fffd}");
    // A parser would read a carriage return as a line feed.
    let value = escape(value).replace('\r', "&#13;");
    text.push_str(&format!("<{name}>{value}</{name}>"));
}

/// Actions whose answers have no element for a result. SDKs expect that of the others, even if it
/// is empty.
const WITHOUT_RESULT: [&str; 7] = [
    "ChangeMessageVisibility",
    "DeleteMessage",
    "DeleteQueue",
    "PurgeQueue",
    "SetQueueAttributes",
    "TagQueue",
    "UntagQueue",
];
const NAMESPACE: &str = "http://queue.amazonaws.com/doc/2012-11-05/";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_and_maps_are_flat() {
        let value = json!({"Messages": [{
            "Body": "<a>&\r\n",
            "Attributes": {"MessageGroupId": "a\u{1}"},
            "MessageAttributes": {"n": {"StringValue": "x", "DataType": "String"}},
        }]});
        let text = answer("ReceiveMessage", &value, "id");
        let expected = "<ReceiveMessageResult><Message><Attribute><Name>MessageGroupId</Name>\
            <Value>a\u{fffd}</Value></Attribute><Body>&lt;a&gt;&amp;&#13;\n</Body>\
            <MessageAttribute><Name>n</Name><Value><DataType>String</DataType>\
            <StringValue>x</StringValue></Value></MessageAttribute></Message></ReceiveMessageResult>";
        assert!(text.contains(expected), "{text}");
        let text = answer("DeleteMessage", &json!({}), "id");
        assert!(text.contains("<RequestId>id</RequestId>") && !text.contains("Result>"), "{text}");
        let text = answer("ReceiveMessage", &json!({}), "id");
        assert!(text.contains("<ReceiveMessageResult/>"), "{text}");
        let value =
            json!({"Successful": [{"Id": "a"}], "Failed": [{"Id": "b", "SenderFault": true}]});
        let text = answer("SendMessageBatch", &value, "id");
        for part in [
            "<SendMessageBatchResultEntry><Id>a</Id></SendMessageBatchResultEntry>",
            "<BatchResultErrorEntry><Id>b</Id><SenderFault>true</SenderFault>",
        ] {
            assert!(text.contains(part), "{text}");
        }
        let text = answer("ListMessageMoveTasks", &json!({"Results": [{"Status": "RUNNING"}]}), "");
        let expected = "<ListMessageMoveTasksResultEntry><Status>RUNNING</Status>";
        assert!(text.contains(expected), "{text}");
    }
}
