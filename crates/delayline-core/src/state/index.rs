//! Messages by an instant: when they are due, or when their leases end.

use std::collections::BTreeMap;
use std::ops::{Bound, RangeInclusive};

use crate::{MessageId, Timestamp};

/// An index: the messages of one kind, by instant and then by sequence number.
pub(super) type Index = BTreeMap<(Timestamp, u64), MessageId>;

/// Iterates over the messages of an index that have reached their instant, in order.
pub(super) fn up_to(index: &Index, now: Timestamp) -> impl Iterator<Item = &MessageId> {
    index.range(..=(now, u64::MAX)).map(|(_, id)| id)
}

/// Counts the messages of an index that have reached their instant. It takes as many steps as there
/// are of them, or of the others if these are fewer.
pub(super) fn count_up_to(index: &Index, now: Timestamp) -> usize {
    let mut reached = up_to(index, now);
    let mut others = index.range((Bound::Excluded((now, u64::MAX)), Bound::Unbounded));
    let mut count = 0;
    loop {
        match (reached.next(), others.next()) {
            (None, _) => return count,
            (_, None) => return index.len() - count,
            _ => count += 1,
        }
    }
}

/// Where the messages of a lane stand.
pub(super) fn keys_of(lane: u64) -> RangeInclusive<(Timestamp, u64)> {
    let lane = Timestamp::from_ms(lane).unwrap_or_default();
    (lane, 0)..=(lane, u64::MAX)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    #[test]
    fn messages_are_counted_from_the_side_with_fewer() {
        let at = |ms: u64| Timestamp::from_ms(ms).unwrap();
        let entry = |n: u64| ((at(n / 2), n), MessageId::try_from(n.to_string()).unwrap());
        let index: Index = (0..20).map(entry).collect();
        for ms in 0..12 {
            assert_eq!(count_up_to(&index, at(ms)), up_to(&index, at(ms)).count(), "{ms}");
        }
        assert_eq!(count_up_to(&Index::new(), at(1)), 0);
    }
}
