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
