//! Ids for messages that have none.

use bytes::Bytes;
use delayline::MessageId;
use ring::digest::{SHA256, digest};

/// The same for the same member of the same key with the same score, so that an import can be
/// repeated. All scores up to 0 are due at once, and still give different ids.
pub(super) fn derived_id(key: &str, member: &Bytes, score: f64) -> Result<MessageId, &'static str> {
    hashed_id(&[key.as_bytes(), b"\0", &score.to_be_bytes(), member])
}

/// An id for what these bytes name.
pub(super) fn hashed_id(parts: &[&[u8]]) -> Result<MessageId, &'static str> {
    let hash = digest(&SHA256, &parts.concat());
    let hex: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    MessageId::try_from(hex).map_err(|_| "it has no id")
}
