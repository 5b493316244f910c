//! Messages by an instant: when they are due, or when their leases end.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::{MessageId, Timestamp};

/// An index: the messages of one kind, by instant and then by sequence number.
pub(super) type Index = BTreeMap<(Timestamp, u64), MessageId>;

/// Iterates over the messages of an index that have reached their instant, in order.
pub(super) fn up_to(index: &Index, now: Timestamp) -> impl Iterator<Item = &MessageId> {
    index.range(..=(now, u64::MAX)).map(|(_, id)| id)
}

/// Where the messages of a lane stand.
pub(super) fn keys_of(lane: u64) -> RangeInclusive<(Timestamp, u64)> {
    let lane = Timestamp::from_ms(lane).unwrap_or_default();
    (lane, 0)..=(lane, u64::MAX)
}
