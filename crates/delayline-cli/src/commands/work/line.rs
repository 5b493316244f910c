//! A delivery as a line of JSON.

use std::io::{self, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::{Map, Value};

use super::Delivery;
use crate::print::harmless_json;
use crate::time::rfc3339;

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
        due: rfc3339(job.due()),
        lateness_ms: u64::try_from(job.lateness().as_millis()).unwrap_or(u64::MAX),
        epoch: job.epoch(),
        failures: job.failures(),
        crashes: job.crashes(),
        headers: headers(job),
    };
    Ok(harmless_json(&serde_json::to_string(&line)?) + "\n")
}

/// The headers as an object; a value that is not UTF-8 stands under `NAME_base64`.
pub(super) fn headers(job: &Delivery) -> Value {
    let headers = job.headers().iter().map(|(name, value)| match text_or_base64(value) {
        (Some(text), _) => (name.to_owned(), text.into()),
        (None, base64) => (format!("{name}_base64"), base64.into()),
    });
    Value::Object(headers.collect::<Map<_, _>>())
}

/// Writes a line to stdout, whole and at once.
pub(super) fn write(line: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(line.as_bytes())?;
    stdout.flush()
}

fn text_or_base64(bytes: &[u8]) -> (Option<&str>, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text), None),
        Err(_) => (None, Some(STANDARD.encode(bytes))),
    }
}
