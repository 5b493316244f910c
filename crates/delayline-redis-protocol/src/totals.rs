//! The stored totals, and the points of the history.

use bytes::Bytes;
use delayline_core::{HistoryPoint, Timestamp, Totals};

use crate::layout::{Field, point, totals};

/// Reads the value of `totals` into `known`. Missing bytes at the end count as 0, as for
/// `BITFIELD`.
pub(crate) fn read_totals(bytes: &[u8], known: &mut Totals) {
    let mut padded = [0; totals::BYTES];
    padded.iter_mut().zip(bytes).for_each(|(byte, stored)| *byte = *stored);
    let read = |field: Field| field.read(&padded).unwrap_or_default();
    let (buckets, _) = padded[..totals::LATENESS.kind.bytes()].as_chunks();
    known.lateness.iter_mut().zip(buckets).for_each(|(count, bytes)| {
        *count = u64::from_be_bytes(*bytes);
    });
    known.failed = read(totals::FAILED);
    known.snoozed = read(totals::SNOOZED);
    known.released = read(totals::RELEASED);
    known.crashed = read(totals::CRASHED);
    known.redriven = read(totals::REDRIVEN);
    known.died_max_failures = read(totals::DIED_MAX_FAILURES);
    known.died_max_crashes = read(totals::DIED_MAX_CRASHES);
    known.died_rejected = read(totals::DIED_REJECTED);
    known.died_unreadable = read(totals::DIED_UNREADABLE);
    known.died_undecodable = read(totals::DIED_UNDECODABLE);
}

/// Reads a value of `history`, or returns `None` if it is malformed.
pub(crate) fn decode_point(bytes: Bytes) -> Option<HistoryPoint> {
    let mut totals = Totals::default();
    totals.enqueued = point::SEQUENCE.read(&bytes)?;
    totals.acked = point::ACKED.read(&bytes)?;
    totals.cancelled = point::CANCELLED.read(&bytes)?;
    totals.purged = point::PURGED.read(&bytes)?;
    totals.relayed = point::RELAYED.read(&bytes)?;
    totals.died_expired = point::EXPIRED.read(&bytes)?;
    totals.replaced = point::REPLACED.read(&bytes)?;
    let mut at = HistoryPoint::default();
    at.at = Timestamp::from_ms(point::AT.read(&bytes)?).ok()?;
    at.scheduled = point::SCHEDULED.read(&bytes)?;
    at.ready = point::READY.read(&bytes)?;
    at.leased = point::LEASED.read(&bytes)?;
    at.dead = point::DEAD.read(&bytes)?;
    let bytes = point::STRUCTURE.rest(&bytes)?;
    read_totals(&bytes, &mut totals);
    at.totals = totals;
    Some(at)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn missing_bytes_at_the_end_are_zero() {
        let mut known = Totals::default();
        read_totals(&[0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 3], &mut known);
        assert_eq!((known.lateness[0], known.lateness[1]), (0x102, 0x300));
        let mut expected = Totals::default();
        (expected.lateness[0], expected.lateness[1]) = (0x102, 0x300);
        assert_eq!(known, expected);
    }

    #[test]
    fn every_counter_is_read_and_no_more() {
        let bytes: Vec<_> = (1..=totals::BYTES as u64 / 8 + 9).flat_map(u64::to_be_bytes).collect();
        let mut known = Totals::default();
        read_totals(&bytes, &mut known);
        let mut counters = known.lateness.to_vec();
        counters.extend([known.failed, known.snoozed, known.released, known.crashed]);
        counters.extend([known.redriven, known.died_max_failures, known.died_max_crashes]);
        counters.extend([known.died_rejected, known.died_unreadable, known.died_undecodable]);
        assert_eq!(counters, (1..=26).collect::<Vec<u64>>());
    }

    proptest! {
        #[test]
        fn decoding_is_total(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = decode_point(bytes.into());
        }
    }
}
