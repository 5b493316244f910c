//! A run of a queue as data: the operations, and what the clock showed.

mod shrink;

use std::fmt;
use std::str::FromStr;

use delayline_core::{Op, Timestamp};
use serde::{Deserialize, Serialize};

/// Operations on an initially empty queue, each at an instant.
///
/// Its `Display` output is text with one operation per line, which [`str::parse`] reads back: a
/// failing run prints it, and saved to a file it is a regression test.
///
/// ```
/// use delayline_testkit::Trace;
///
/// let text = r#"
/// {"at":1000,"op":{"enqueue":[{"id":"order-1","payload":"%00","schedule":{"in":500}}]}}
/// {"at":1500,"op":{"claim":{"consumer":"w","claim_id":"aaaaaaaaaaaaaaaa","max":10,"lease":30000}}}
/// {"at":1502,"op":{"list":{"status":"scheduled","limit":100}}}
/// {"at":1503,"op":"pause"}
/// "#;
/// let trace: Trace = text.parse()?;
/// assert_eq!(trace.steps.len(), 4);
/// assert_eq!(trace.to_string(), text.trim_start());
/// # Ok::<(), delayline_testkit::TraceError>(())
/// ```
///
/// A line is a [`Step`] as JSON, in the form that the feature `serde` of
/// [`delayline_core`] describes. Empty lines and lines that start with `#` are skipped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The operations in order.
    pub steps: Vec<Step>,
}

/// One operation of a [`Trace`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// What the clock shows. It may be earlier than in the previous step.
    pub at: Timestamp,
    /// The operation.
    pub op: Op,
}

/// A line that is not a valid operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct TraceError {
    /// The number of the line, from 1.
    pub line: usize,
    /// The fault.
    pub reason: String,
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

impl FromStr for Trace {
    type Err = TraceError;

    fn from_str(text: &str) -> Result<Self, TraceError> {
        let lines = text.lines().zip(1..);
        let steps = lines
            .filter(|(line, _)| !line.trim().is_empty() && !line.starts_with('#'))
            .map(|(text, line)| text.parse().map_err(|reason| TraceError { line, reason }))
            .collect::<Result<_, _>>()?;
        Ok(Self { steps })
    }
}

impl FromStr for Step {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        serde_json::from_str(line).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_line_and_what_is_wrong_with_it() {
        for (line, reason) in [
            (r#"{"at":5,"op":"explode"}"#, "unknown variant `explode`"),
            (r#"{"at":5,"op":"pause","to":6}"#, "unknown field `to`"),
            (r#"{"at":5,"op":"pause"} {}"#, "trailing characters"),
            (r#"{"at":5,"op":{"get":[""]}}"#, "the message id is empty"),
        ] {
            let error = format!("# A comment.\n\n{line}").parse::<Trace>().unwrap_err();
            assert_eq!(error.line, 3);
            assert!(error.reason.contains(reason), "{error}");
        }
    }
}
