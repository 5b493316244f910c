//! The byte layouts of a message in Redis, as lua/records.lua and lua/details.lua describe them.

use bytes::{Buf, BufMut, Bytes};
use delayline_core::{
    ClaimId, DeathReason, FinishedIds, Headers, Lease, NewMessage, Priority, Schedule, Timestamp,
};

/// Length of a record without what it has only if that is not as usual, and without its content.
pub(crate) const LEAST_RECORD_BYTES: usize = 23;
/// Contents that are longer stand apart from their records.
pub(crate) const MOST_BYTES_IN_RECORD: usize = 4096;

/// The bits of a record's form beside the level: what it has that is not as usual.
mod form {
    pub(super) const LEVEL: u8 = 3;
    pub(super) const LIMITED: u8 = 4;
    pub(super) const EXPIRES: u8 = 8;
    pub(super) const HEADED: u8 = 16;
    pub(super) const LARGE: u8 = 32;
}

const RELATIVE: u8 = 1;
const ABSOLUTE: u8 = 0;
const REUSES_FINISHED_ID: u8 = 1;
const EXPIRING: u8 = 2;

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
        if bytes.len() < LEAST_RECORD_BYTES {
            return None;
        }
        let sequence = bytes.get_u64();
        let enqueued_at = Timestamp::from_ms(bytes.get_uint(6)).ok()?;
        let _digest = bytes.get_u64();
        let form = bytes.get_u8();
        let mut limits = (NewMessage::DEFAULT_MAX_FAILURES, NewMessage::DEFAULT_MAX_CRASHES);
        if form & form::LIMITED != 0 {
            limits = (bytes.try_get_u16().ok()?.into(), bytes.try_get_u16().ok()?.into());
        }
        let expires_at = if form & form::EXPIRES == 0 {
            None
        } else {
            Some(Timestamp::from_ms(bytes.try_get_uint(6).ok()?).ok()?)
        };
        let headers_bytes = if form & form::HEADED == 0 { 0 } else { bytes.try_get_u16().ok()? };
        Some(Self {
            sequence,
            enqueued_at,
            expires_at,
            priority: Priority::from_level(form & form::LEVEL)?,
            max_failures: limits.0,
            max_crashes: limits.1,
            headers_bytes: headers_bytes.into(),
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

/// How messages are scheduled, as `enqueue.lua` takes it: one entry for all that follow each other and
/// are scheduled alike.
pub(crate) fn put_runs(bytes: &mut Vec<u8>, messages: &[NewMessage]) {
    let plan = |message: &NewMessage| {
        let reuses = message.finished_ids == FinishedIds::Reuse;
        let flags = bit(reuses, REUSES_FINISHED_ID) | bit(message.expires.is_some(), EXPIRING);
        (flags, message.priority.level(), message.schedule)
    };
    for run in messages.chunk_by(|one, next| plan(one) == plan(next)) {
        // `Op::validate` has held their number within its bits.
        bytes.put_u16(u16::try_from(run.len()).unwrap_or(u16::MAX));
        let (flags, level, schedule) = plan(&run[0]);
        bytes.put_u8(flags);
        bytes.put_u8(level);
        put_schedule(bytes, schedule);
    }
}

fn bit(is_set: bool, bit: u8) -> u8 {
    if is_set { bit } else { 0 }
}

/// The rest of a message, as `enqueue.lua` takes it.
pub(crate) fn encode_new_message(message: &NewMessage) -> Bytes {
    let headers = message.headers.encode();
    let limits = (message.max_failures, message.max_crashes);
    let limited = limits != (NewMessage::DEFAULT_MAX_FAILURES, NewMessage::DEFAULT_MAX_CRASHES);
    let large = headers.len() + message.payload.len() > MOST_BYTES_IN_RECORD;
    let headed = large || !headers.is_empty();

    let mut bytes = Vec::with_capacity(32 + headers.len() + message.payload.len());
    if let Some(expires) = message.expires {
        put_schedule(&mut bytes, expires);
    }
    bytes.put_u64(message.digest());
    bytes.put_u8(
        message.priority.level()
            | bit(limited, form::LIMITED)
            | bit(message.expires.is_some(), form::EXPIRES)
            | bit(headed, form::HEADED)
            | bit(large, form::LARGE),
    );
    // `Op::validate` has held all these within their bits.
    if limited {
        bytes.put_u16(u16::try_from(limits.0).unwrap_or(u16::MAX));
        bytes.put_u16(u16::try_from(limits.1).unwrap_or(u16::MAX));
    }
    let headers_bytes = u16::try_from(headers.len()).unwrap_or(u16::MAX);
    if large {
        bytes.put_u16(headers_bytes);
        bytes.put_u32(u32::try_from(message.payload.len()).unwrap_or(u32::MAX));
    }
    if headed {
        bytes.put_u16(headers_bytes);
    }
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

    /// The details of a message that was never claimed before.
    pub(crate) const fn of_first_lease(claim_id: ClaimId, due: Timestamp) -> Self {
        Self {
            phase: Phase::Leased { cancel_requested: false },
            lease: Lease { claim_id, epoch: 1 },
            due,
            failures: 0,
            crashes: 0,
            first_error: None,
            last_error: None,
        }
    }

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

pub(crate) fn death_reason(code: u8) -> Option<DeathReason> {
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

    /// What `enqueue.lua` makes of the bytes of a message that does not expire.
    fn record(message: &NewMessage) -> Bytes {
        let mut record = Vec::new();
        record.put_u64(7);
        record.put_uint(1_000, 6);
        record.put_slice(&encode_new_message(message));
        record.into()
    }

    #[test]
    fn a_record_is_the_enqueued_bytes_behind_what_the_server_adds() {
        let mut message = NewMessage::new(MessageId::try_from("a").unwrap(), &b"\0payload\xff"[..]);
        assert_eq!(record(&message).len(), LEAST_RECORD_BYTES + message.payload.len());
        let (head, headers, payload) = decode_record(record(&message)).unwrap();
        assert_eq!((head.sequence, head.enqueued_at.as_ms(), head.expires_at), (7, 1_000, None));
        assert_eq!((head.priority, head.max_failures, head.max_crashes), (Priority::Normal, 20, 5));
        assert_eq!((&headers, &payload), (&message.headers, &message.payload));

        message.headers.set("k", "v").unwrap();
        message.priority = Priority::Urgent;
        message.max_crashes = 6;
        let (head, headers, payload) = decode_record(record(&message)).unwrap();
        assert_eq!((head.priority, head.max_failures, head.max_crashes), (Priority::Urgent, 20, 6));
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
