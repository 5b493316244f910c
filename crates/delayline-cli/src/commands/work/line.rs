//! A delivery as a line of JSON.

use std::io::{self, Write as _};

use delayline::message::Group;
use delayline_json as json;
use serde::Serialize;
use serde_json::Value;

use super::delivery::Delivery;

/// The members of the JSON object.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    content: json::Content<'a>,
    group: Option<&'a str>,
    due: String,
    lateness_ms: u64,
    epoch: u64,
    failures: u32,
    crashes: u32,
    headers: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    members: Option<Value>,
}

/// Returns the line, with its line break.
pub(super) fn json(job: &Delivery) -> Result<String, serde_json::Error> {
    let line = Line {
        content: json::Content::new(job.id(), job.payload()),
        group: job.group().map(Group::as_str),
        due: job.due().to_string(),
        lateness_ms: u64::try_from(job.lateness().as_millis()).unwrap_or(u64::MAX),
        epoch: job.epoch(),
        failures: job.failures(),
        crashes: job.crashes(),
        headers: json::headers(job.headers()),
        members: job.members().map(json::ended),
    };
    json::line(&line)
}

/// Writes a line to stdout, whole and at once.
pub(super) fn write(line: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(line.as_bytes())?;
    stdout.flush()
}
