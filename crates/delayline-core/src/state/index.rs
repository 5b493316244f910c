//! Messages by an instant: when they are due, or when their leases end.

use std::collections::BTreeMap;

use crate::{MessageId, Timestamp};

/// An index: the messages of one kind, by instant and then by sequence number.
pub(super) type Index = BTreeMap<(Timestamp, u64), MessageId>;

/// Iterates over the messages of an index that have reached their instant, in order.
pub(super) fn up_to(index: &Index, now: Timestamp) -> impl Iterator<Item = &MessageId> {
    index.range(..=(now, u64::MAX)).map(|(_, id)| id)
}
