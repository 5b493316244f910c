//! Splits what a caller passes into operations within the limits of the contract.

use std::collections::{HashSet, VecDeque};

use delayline_core::MessageId;
use delayline_core::limits::{MAX_BATCH, MAX_BATCH_BYTES};

/// Takes as many items from the front of a list as are [`fitting`].
pub(crate) fn next_batch<T>(
    items: &mut VecDeque<T>,
    id: impl Fn(&T) -> &MessageId,
    bytes: impl Fn(&T) -> usize,
) -> Vec<T> {
    let count = fitting(items.iter().map(|item| (id(item), bytes(item))));
    items.drain(..count).collect()
}

/// How many items, given as ids and bytes, fit in one operation: up to `MAX_BATCH` items and
/// `MAX_BATCH_BYTES` in total, ending before the first repeated id. At least one, unless there are
/// none.
pub(crate) fn fitting<'a>(items: impl Iterator<Item = (&'a MessageId, usize)>) -> usize {
    let mut ids = HashSet::new();
    let mut total = 0_usize;
    let mut count = 0;
    for (id, bytes) in items.take(MAX_BATCH) {
        total = total.saturating_add(bytes);
        if count > 0 && total > MAX_BATCH_BYTES || !ids.insert(id) {
            break;
        }
        count += 1;
    }
    count
}

#[cfg(test)]
mod tests {
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
