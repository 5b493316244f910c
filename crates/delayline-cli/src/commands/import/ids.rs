//! Ids for messages that have none.

use bytes::Bytes;
use delayline::{MessageId, Timestamp};
use ring::digest::{SHA256, digest};

/// The same for the same member of the same key that is due at the same time, so that an import can
/// be repeated.
pub(super) fn derived_id(
    key: &str,
    member: &Bytes,
    due: Timestamp,
) -> Result<MessageId, &'static str> {
    hashed_id(&[key.as_bytes(), b"\0", &due.as_ms().to_be_bytes(), member])
}

/// An id for what these bytes name.
pub(super) fn hashed_id(parts: &[&[u8]]) -> Result<MessageId, &'static str> {
    let hash = digest(&SHA256, &parts.concat());
    let hex: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    MessageId::try_from(hex).map_err(|_| "it has no id")
}
