//! The byte layouts of a message in Redis, as lua/prelude.lua describes them.

use bytes::{Buf, BufMut, Bytes};
use delayline_core::{
    ClaimId, DeathReason, FinishedIds, Headers, Lease, NewMessage, Priority, Schedule, Timestamp,
};

/// No instant: later than any.
const NEVER: u64 = (1 << 48) - 1;

/// Length of a record without headers and payload.
pub(crate) const RECORD_BYTES: usize = 35;

const RELATIVE: u8 = 1;
const ABSOLUTE: u8 = 0;
const REUSES_FINISHED_ID: u8 = 1;
const EXPIRES: u8 = 2;

/// What stands in `records`, without the headers and payload that follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordHead {
    pub(crate) sequence: u64,
    pub(crate) enqueued_at: Timestamp,
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) priority: Priority,
    pub(crate) max_failures: u32,
    pub(crate) max_crashes: u32,
    pub(crate) headers_bytes: usize,
}

impl RecordHead {
    /// Reads the head and leaves the headers and payload in `bytes`; `None` if it is no record.
    pub(crate) fn decode(bytes: &mut Bytes) -> Option<Self> {
        if bytes.len() < RECORD_BYTES {
            return None;
        }
        let sequence = bytes.get_u64();
        let enqueued_at = Timestamp::from_ms(bytes.get_uint(6)).ok()?;
        let expires_at = match bytes.get_uint(6) {
            NEVER => None,
            ms => Some(Timestamp::from_ms(ms).ok()?),
        };
        let _digest = bytes.get_u64();
        Some(Self {
            sequence,
            enqueued_at,
            expires_at,
            priority: Priority::from_level(bytes.get_u8())?,
            max_failures: u32::from(bytes.get_u16()),
            max_crashes: u32::from(bytes.get_u16()),
            headers_bytes: usize::from(bytes.get_u16()),
        })
    }
}

/// Reads a whole record; `None` if it is none.
pub(crate) fn decode_record(mut bytes: Bytes) -> Option<(RecordHead, Headers, Bytes)> {
    let head = RecordHead::decode(&mut bytes)?;
    if bytes.len() < head.headers_bytes {
        return None;
    }
    let headers = Headers::decode(bytes.split_to(head.headers_bytes))?;
    Some((head, headers, bytes))
}

/// A message as `enqueue.lua` takes it.
pub(crate) fn encode_new_message(message: &NewMessage) -> Bytes {
    let headers = message.headers.encode();
    let mut bytes = Vec::with_capacity(30 + headers.len() + message.payload.len());
    let reuses = u8::from(message.finished_ids == FinishedIds::Reuse) * REUSES_FINISHED_ID;
    let expires = u8::from(message.expires.is_some()) * EXPIRES;
    bytes.put_u8(reuses | expires);
    put_schedule(&mut bytes, message.schedule);
    put_schedule(&mut bytes, message.expires.unwrap_or(Schedule::NOW));
    bytes.put_u64(message.digest());
    bytes.put_u8(message.priority.level());
    // `Op::validate` has held these three within 16 bits.
    bytes.put_u16(u16::try_from(message.max_failures).unwrap_or(u16::MAX));
    bytes.put_u16(u16::try_from(message.max_crashes).unwrap_or(u16::MAX));
    bytes.put_u16(u16::try_from(headers.len()).unwrap_or(u16::MAX));
    bytes.put_slice(&headers);
    bytes.put_slice(&message.payload);
    bytes.into()
}

/// An instant in an argument.
pub(crate) fn put_schedule(bytes: &mut Vec<u8>, schedule: Schedule) {
    let (kind, ms) = match schedule {
        Schedule::In(delay) => (RELATIVE, delay.as_ms()),
        Schedule::At(instant) => (ABSOLUTE, instant.as_ms()),
    };
    bytes.put_u8(kind);
    bytes.put_uint(ms, 6);
}

/// A lease in an argument: the same bytes as in `details`.
pub(crate) fn put_lease(bytes: &mut Vec<u8>, lease: Lease) {
    bytes.put_u64(lease.epoch);
    bytes.put_slice(lease.claim_id.as_bytes());
}

/// Where a message with details stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Waiting,
    Leased { cancel_requested: bool },
    Dead(DeathReason),
}

/// What stands in `details`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Details {
    pub(crate) phase: Phase,
    pub(crate) lease: Lease,
    pub(crate) due: Timestamp,
    pub(crate) failures: u32,
    pub(crate) crashes: u32,
    pub(crate) first_error: Option<String>,
    pub(crate) last_error: Option<String>,
}

impl Details {
    /// Length of details without the error texts.
    const BYTES: usize = 60;

    /// Reads details; `None` if they are none.
    pub(crate) fn decode(mut bytes: Bytes) -> Option<Self> {
        if bytes.len() < Self::BYTES {
            return None;
        }
        let phase = bytes.get_u8();
        let _settled = bytes.get_u8();
        let epoch = bytes.get_u64();
        let mut claim_id = [0; ClaimId::BYTES];
        bytes.copy_to_slice(&mut claim_id);
        // Sequence, digest, level and limits are copies of the record's.
        bytes.advance(8 + 8 + 1 + 2 + 2);
        let due = Timestamp::from_ms(bytes.get_uint(6)).ok()?;
        let failures = u32::from(bytes.get_u16());
        let crashes = u32::from(bytes.get_u16());
        let reason = bytes.get_u8();
        let first_error_bytes = usize::from(bytes.get_u16());
        if bytes.len() < first_error_bytes {
            return None;
        }
        let first_error = error_text(&bytes.split_to(first_error_bytes));
        let last_error = error_text(&bytes);
        let phase = match phase {
            0 => Phase::Waiting,
            1 => Phase::Leased { cancel_requested: false },
            2 => Phase::Leased { cancel_requested: true },
            3 => Phase::Dead(death_reason(reason)?),
            _ => return None,
        };
        let lease = Lease { claim_id: ClaimId::from_bytes(claim_id), epoch };
        Some(Self { phase, lease, due, failures, crashes, first_error, last_error })
    }
}

fn error_text(bytes: &[u8]) -> Option<String> {
    (!bytes.is_empty()).then(|| String::from_utf8_lossy(bytes).into_owned())
}

fn death_reason(code: u8) -> Option<DeathReason> {
    match code {
        1 => Some(DeathReason::MaxFailures),
        2 => Some(DeathReason::MaxCrashes),
        3 => Some(DeathReason::Rejected),
        4 => Some(DeathReason::Expired),
        5 => Some(DeathReason::Unreadable),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use delayline_core::MessageId;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_record_is_the_enqueued_bytes_behind_what_the_server_adds() {
        let mut message = NewMessage::new(MessageId::try_from("a").unwrap(), &b"\0payload\xff"[..]);
        message.headers.set("k", "v").unwrap();
        message.priority = Priority::Urgent;
        let mut record = Vec::new();
        record.put_u64(7);
        record.put_uint(1_000, 6);
        record.put_uint(NEVER, 6);
        record.put_slice(&encode_new_message(&message)[15..]);
        let (head, headers, payload) = decode_record(record.into()).unwrap();
        assert_eq!((head.sequence, head.enqueued_at.as_ms(), head.expires_at), (7, 1_000, None));
        assert_eq!((head.priority, head.max_failures, head.max_crashes), (Priority::Urgent, 20, 5));
        assert_eq!((headers, payload), (message.headers, message.payload));
    }

    proptest! {
        #[test]
        fn decoding_is_total(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = decode_record(bytes.clone().into());
            let _ = Details::decode(bytes.into());
        }
    }
}
