//! What an audit has found.

use delayline::admin::Finding;
use serde_json::{Value, json};

/// The kind of a finding, and its subject.
#[must_use]
pub fn finding(finding: &Finding) -> (&'static str, Value) {
    match finding {
        Finding::MalformedEntry { index } => ("malformed_entry", json!(format!("index {index}"))),
        Finding::MissingRecord { id } => ("missing_record", json!(id.to_string())),
        Finding::WrongRecord { id } => ("wrong_record", json!(id.to_string())),
        Finding::MissingDetails { id } => ("missing_details", json!(id.to_string())),
        Finding::MissingTurn { id } => ("missing_turn", json!(id.to_string())),
        Finding::Orphan { id } => ("orphan", json!(id.to_string())),
        Finding::RecordCount { records, indexed } => {
            ("record_count", json!({ "records": records, "indexed": indexed }))
        }
        Finding::Conservation { enqueued, accounted } => {
            ("conservation", json!({ "enqueued": enqueued, "accounted": accounted }))
        }
        _ => ("other", Value::Null),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use delayline::MessageId;

    use super::*;

    #[test]
    fn each_finding_has_its_kind_and_subject() {
        let id = MessageId::new("order-1").unwrap();
        for (found, kind, subject) in [
            (Finding::MalformedEntry { index: 4 }, "malformed_entry", json!("index 4")),
            (Finding::MissingRecord { id: id.clone() }, "missing_record", json!("order-1")),
            (Finding::WrongRecord { id: id.clone() }, "wrong_record", json!("order-1")),
            (Finding::MissingDetails { id: id.clone() }, "missing_details", json!("order-1")),
            (Finding::MissingTurn { id: id.clone() }, "missing_turn", json!("order-1")),
            (Finding::Orphan { id }, "orphan", json!("order-1")),
            (
                Finding::RecordCount { records: 3, indexed: 2 },
                "record_count",
                json!({"records": 3, "indexed": 2}),
            ),
            (
                Finding::Conservation { enqueued: 9, accounted: 8 },
                "conservation",
                json!({"enqueued": 9, "accounted": 8}),
            ),
        ] {
            assert_eq!(finding(&found), (kind, subject));
        }
    }
}
