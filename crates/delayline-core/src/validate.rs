//! Checks that several operations share.

use std::collections::HashSet;

use crate::limits::{MAX_BATCH, MAX_LEASE_MS, MIN_LEASE_MS};
use crate::{MessageId, Millis, NewMessage, Violation};

impl NewMessage {
    /// Checks that payload, headers and limits are in bounds, as
    /// [`Op::validate`](crate::Op::validate) does for whole operations, and that the id is not
    /// [reserved](MessageId::SHARDS).
    ///
    /// # Errors
    ///
    /// [`Violation`], which names the value and the limit.
    pub fn validate(&self) -> Result<(), Violation> {
        if self.id.as_bytes() == MessageId::SHARDS.as_bytes() {
            return Err(Violation::Malformed {
                what: "the message id",
                value: MessageId::SHARDS.to_owned(),
                reason: "it is reserved for the number of shards".to_owned(),
            });
        }
        self.validate_limits()
    }
}

/// A batch has 1 to [`MAX_BATCH`] items, all with different ids (G18).
pub(crate) fn batch<'a>(
    what: &'static str,
    ids: impl IntoIterator<Item = &'a MessageId>,
) -> Result<(), Violation> {
    let mut seen = HashSet::new();
    for id in ids {
        if !seen.insert(id) {
            return Err(Violation::RepeatedId { id: id.to_string() });
        }
    }
    if seen.is_empty() {
        return Err(Violation::Empty { what });
    }
    Violation::at_most(what, "items", seen.len(), MAX_BATCH)
}

/// A count is 1 to `most`.
pub(crate) fn count(what: &'static str, actual: usize, most: usize) -> Result<(), Violation> {
    let as_u64 = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
    Violation::within(what, as_u64(actual), 1, as_u64(most))
}

/// A lease lasts for [`MIN_LEASE_MS`] to [`MAX_LEASE_MS`].
pub(crate) fn lease_duration(lease: Millis) -> Result<(), Violation> {
    Violation::within("the lease in ms", lease.as_ms(), MIN_LEASE_MS, MAX_LEASE_MS)
}
