//! A delivery as a line of JSON.

use std::io::{self, Write as _};

use delayline_json::{self as json, text_or_base64};
use serde::Serialize;
use serde_json::Value;

use super::delivery::Delivery;

/// A delivery. Bytes that are not UTF-8 stand under another name, in base64.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    due: String,
    lateness_ms: u64,
    epoch: u64,
    failures: u32,
    crashes: u32,
    headers: Value,
}

/// The line, with its line break.
pub(super) fn json(job: &Delivery) -> Result<String, serde_json::Error> {
    let (id, id_base64) = text_or_base64(job.id().as_bytes());
    let (payload, payload_base64) = text_or_base64(job.payload());
    let line = Line {
        id,
        id_base64,
        payload,
        payload_base64,
        due: job.due().to_string(),
        lateness_ms: u64::try_from(job.lateness().as_millis()).unwrap_or(u64::MAX),
        epoch: job.epoch(),
        failures: job.failures(),
        crashes: job.crashes(),
        headers: json::headers(job.headers()),
    };
    json::line(&line)
}

/// Writes a line to stdout, whole and at once.
pub(super) fn write(line: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(line.as_bytes())?;
    stdout.flush()
}
