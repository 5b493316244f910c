//! Cuts what a caller gives into operations within the limits of the contract.

use std::collections::HashSet;

use delayline_core::MessageId;
use delayline_core::limits::{MAX_BATCH, MAX_BATCH_BYTES};

/// Takes items from the front of a list, up to `MAX_BATCH` of them and `MAX_BATCH_BYTES` in all;
/// it stops before an id that it has taken already. It takes at least one if there is one.
pub(crate) fn next_batch<T>(
    items: &mut std::collections::VecDeque<T>,
    id: impl Fn(&T) -> &MessageId,
    bytes: impl Fn(&T) -> usize,
) -> Vec<T> {
    let mut ids = HashSet::new();
    let mut total = 0_usize;
    let mut count = 0;
    for item in items.iter().take(MAX_BATCH) {
        total = total.saturating_add(bytes(item));
        if count > 0 && total > MAX_BATCH_BYTES || !ids.insert(id(item)) {
            break;
        }
        count += 1;
    }
    items.drain(..count).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// Items are (id, bytes).
    fn cut(items: Vec<(usize, usize)>) -> Vec<usize> {
        let named = |(id, bytes): (usize, usize)| {
            (MessageId::try_from(id.to_string().as_str()).unwrap(), bytes)
        };
        let mut items: VecDeque<_> = items.into_iter().map(named).collect();
        let mut lengths = Vec::new();
        while !items.is_empty() {
            lengths.push(next_batch(&mut items, |item| &item.0, |item| item.1).len());
        }
        lengths
    }

    #[test]
    fn batches_end_at_the_count_the_bytes_and_a_repeated_id() {
        assert_eq!(cut((0..2_500).map(|id| (id, 0)).collect()), [1_000, 1_000, 500]);
        let half = MAX_BATCH_BYTES / 2;
        assert_eq!(cut(vec![(1, half), (2, half), (3, 1), (4, half)]), [2, 2]);
        assert_eq!(cut(vec![(1, 0), (2, 0), (1, 0), (1, 0), (2, 0)]), [2, 1, 2]);
        assert_eq!(cut(vec![(1, usize::MAX), (2, usize::MAX)]), [1, 1]);
    }
}
