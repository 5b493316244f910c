//! Messages as bytes, as they are stored in Redis and sent to it. The `layout` module defines the
//! position of each field.

use std::borrow::Borrow;
use std::iter;

use bytes::{BufMut, Bytes};
use delayline_core::limits::MAX_ATTEMPTS;
use delayline_core::{
    Attempt, AttemptOutcome, ClaimId, DeathReason, Error, ErrorKind, FinishedIds, Group, Headers,
    Known, Lease, NewMessage, Position, Priority, Progress, Schedule, Timestamp, Update,
    UpdateContent, UpdateDue,
};

use crate::layout::codes::{
    argument, form, lease_state, part, place, reason, settlement_kind, update as update_code,
};
use crate::layout::{
    Field, LEVEL_OF_FORM, SAME_ERROR, SMALL, attempt, details, lease, new_message, record, run,
    save, saved, schedule, update, window,
};

/// What stands in `records`, without the headers and payload that follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordHead {
    pub(crate) sequence: u64,
    pub(crate) enqueued_at: Timestamp,
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) group: Option<Group>,
    /// Of a message with a group, while it has no details.
    pub(crate) due: Option<Timestamp>,
    pub(crate) priority: Priority,
    pub(crate) max_failures: u32,
    pub(crate) max_crashes: u32,
    pub(crate) headers_bytes: usize,
}

impl RecordHead {
    /// Reads the head and leaves the headers and payload in `bytes`; `None` if it is no record.
    pub(crate) fn decode(bytes: &mut Bytes) -> Option<Self> {
        let sequence = record::SEQUENCE.read(bytes)?;
        let enqueued_at = instant(record::ENQUEUED_AT.read(bytes)?)?;
        let form = small(record::FORM.read(bytes)?)?;
        let is_grouped = form & form::GROUPED != 0;
        if is_grouped != (sequence / Position::OF_GROUPS == 1) {
            return None;
        }
        *bytes = record::STRUCTURE.rest(bytes)?;
        let (mut due, mut group) = (None, None);
        if is_grouped {
            due = Some(instant(record::DUE.take(bytes)?)?);
            record::LANE.take(bytes)?;
            let length = usize::from(small(record::GROUP_LENGTH.take(bytes)?)?);
            let name = (length <= bytes.len()).then(|| bytes.split_to(length))?;
            group = String::from_utf8_lossy(&name).parse().ok();
        }
        let mut limits = (NewMessage::DEFAULT_MAX_FAILURES, NewMessage::DEFAULT_MAX_CRASHES);
        if form & form::LIMITED != 0 {
            limits = (number(&record::MAX_FAILURES, bytes)?, number(&record::MAX_CRASHES, bytes)?);
        }
        let expires_at = match form & form::EXPIRES {
            0 => None,
            _ => Some(instant(record::EXPIRES_AT.take(bytes)?)?),
        };
        let headers_bytes = match form & form::HEADED {
            0 => 0,
            _ => number(&record::HEADERS_LENGTH, bytes)?,
        };
        Some(Self {
            sequence: sequence % Position::OF_GROUPS,
            enqueued_at,
            expires_at,
            group,
            due,
            priority: Priority::from_level(form & LEVEL_OF_FORM)?,
            max_failures: limits.0,
            max_crashes: limits.1,
            headers_bytes: usize::try_from(headers_bytes).ok()?,
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

/// How messages are scheduled, as `enqueue.lua` takes it: one entry for all that follow each other
/// and are scheduled alike.
pub(crate) fn put_runs<T: Borrow<NewMessage>>(bytes: &mut Vec<u8>, messages: &[T]) {
    let plan = |message: &T| {
        let message = message.borrow();
        let reuses = message.finished_ids == FinishedIds::Reuse;
        let flags = bit(reuses, argument::REUSES)
            | bit(message.expires.is_some(), argument::EXPIRING)
            | bit(message.known != Known::Refuse, argument::UPDATING)
            | bit(message.throttle.is_some(), argument::THROTTLED);
        let level = match message.group {
            Some(_) => place::GROUPED,
            None => message.priority.level(),
        };
        (flags, level, message.schedule)
    };
    for run in messages.chunk_by(|one, next| plan(one) == plan(next)) {
        let (flags, level, schedule) = plan(&run[0]);
        run::COUNT.put(bytes, run.len() as u64);
        run::FLAGS.put(bytes, flags.into());
        run::LEVEL.put(bytes, level.into());
        put_schedule(bytes, schedule);
    }
}

fn bit(is_set: bool, bit: u8) -> u8 {
    if is_set { bit } else { 0 }
}

/// The rest of a message, as `enqueue.lua` takes it.
pub(crate) fn encode_new_message(message: &NewMessage) -> Result<Bytes, Error> {
    let headers = message.headers.encode();
    let limits = (message.max_failures, message.max_crashes);
    let limited = limits != (NewMessage::DEFAULT_MAX_FAILURES, NewMessage::DEFAULT_MAX_CRASHES);
    // The content of an update stands in the record: it is written by itself, and no content that
    // belongs to an earlier record can be taken for it.
    let is_update = message.known != Known::Refuse;
    let large = !is_update && headers.len() + message.payload.len() > SMALL;
    let headed = large || !headers.is_empty();

    let mut bytes = Vec::with_capacity(32 + headers.len() + message.payload.len());
    if let Some(window) = message.throttle {
        window::LENGTH.put(&mut bytes, window.as_ms());
    }
    match message.known {
        Known::Refuse => {}
        Known::Update(update) => put_update(&mut bytes, update)?,
        _ => return Err(unsupported("this treatment of a known id")),
    }
    if let Some(expires) = message.expires {
        put_schedule(&mut bytes, expires);
    }
    new_message::DIGEST.put(&mut bytes, message.digest());
    let form = message.priority.level()
        | bit(limited, form::LIMITED)
        | bit(message.expires.is_some(), form::EXPIRES)
        | bit(headed, form::HEADED)
        | bit(large, form::LARGE)
        | bit(message.group.is_some(), form::GROUPED);
    new_message::FORM.put(&mut bytes, form.into());
    if let Some(group) = &message.group {
        // The server knows when it is due.
        record::DUE.put(&mut bytes, 0);
        record::LANE.put(&mut bytes, group.lane());
        record::GROUP_LENGTH.put(&mut bytes, group.as_str().len() as u64);
        bytes.put_slice(group.as_str().as_bytes());
    }
    if limited {
        record::MAX_FAILURES.put(&mut bytes, limits.0.into());
        record::MAX_CRASHES.put(&mut bytes, limits.1.into());
    }
    if large {
        record::HEADERS_LENGTH.put(&mut bytes, headers.len() as u64);
        record::PAYLOAD_LENGTH.put(&mut bytes, message.payload.len() as u64);
    }
    if headed {
        record::HEADERS_LENGTH.put(&mut bytes, headers.len() as u64);
    }
    bytes.put_slice(&headers);
    bytes.put_slice(&message.payload);
    Ok(bytes.into())
}

fn put_update(bytes: &mut Vec<u8>, update: Update) -> Result<(), Error> {
    let content = match update.content {
        UpdateContent::Keep => update_code::KEEP,
        UpdateContent::Replace => update_code::REPLACE,
        _ => return Err(unsupported("this treatment of the content")),
    };
    let (due, at_most) = match update.due {
        UpdateDue::Keep => (update_code::KEEP, 0),
        UpdateDue::Set => (update_code::SET, 0),
        UpdateDue::Later { at_most } => (update_code::LATER, at_most.as_ms()),
        _ => return Err(unsupported("this treatment of the due time")),
    };
    bytes.put_slice(update.token.as_bytes());
    update::CONTENT.put(bytes, content.into());
    update::DUE.put(bytes, due.into());
    update::AT_MOST.put(bytes, at_most);
    Ok(())
}

/// An instant in an argument.
pub(crate) fn put_schedule(bytes: &mut Vec<u8>, schedule: Schedule) {
    let (kind, ms) = match schedule {
        Schedule::In(delay) => (argument::RELATIVE, delay.as_ms()),
        Schedule::At(instant) => (argument::ABSOLUTE, instant.as_ms()),
    };
    schedule::KIND.put(bytes, kind.into());
    schedule::MS.put(bytes, ms);
}

/// A lease in an argument: the same bytes as in `details`.
pub(crate) fn put_lease(bytes: &mut Vec<u8>, lease: Lease) {
    lease::EPOCH.put(bytes, lease.epoch);
    bytes.put_slice(lease.claim_id.as_bytes());
}

/// What stands in `details`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Details {
    /// Whether a cancellation was requested during the latest lease, which is still open.
    pub(crate) cancel_requested: bool,
    /// Why the message is dead, if it is.
    pub(crate) reason: Option<DeathReason>,
    pub(crate) lease: Lease,
    pub(crate) due: Timestamp,
    pub(crate) failures: u32,
    pub(crate) crashes: u32,
    pub(crate) first_error: Option<String>,
    pub(crate) last_error: Option<String>,
    /// What handlers have saved.
    pub(crate) progress: Option<Progress>,
    pub(crate) checkpoint: Option<Bytes>,
    /// The attempts as they are stored: only look-ups read them.
    attempts: Bytes,
}

impl Details {
    /// The details of a message that was never claimed before.
    pub(crate) const fn of_first_lease(claim_id: ClaimId, due: Timestamp) -> Self {
        Self {
            cancel_requested: false,
            reason: None,
            lease: Lease { claim_id, epoch: 1 },
            due,
            failures: 0,
            crashes: 0,
            first_error: None,
            last_error: None,
            progress: None,
            checkpoint: None,
            attempts: Bytes::new(),
        }
    }

    /// Reads details; `None` if they are none.
    pub(crate) fn decode(bytes: Bytes) -> Option<Self> {
        let epoch = details::EPOCH.read(&bytes)?;
        let claim_id = details::CLAIM_ID.slice(&bytes)?.as_ref().try_into().ok()?;
        let due = instant(details::DUE.read(&bytes)?)?;
        let failures = u32::try_from(details::FAILURES.read(&bytes)?).ok()?;
        let crashes = u32::try_from(details::CRASHES.read(&bytes)?).ok()?;
        let first_error_length = details::FIRST_ERROR_LENGTH.read(&bytes)?;
        let last_error_length = details::LAST_ERROR_LENGTH.read(&bytes)?;
        let saved_length = usize::try_from(details::SAVED_LENGTH.read(&bytes)?).ok()?;
        let cancel_requested = match small(details::STATE.read(&bytes)?)? {
            lease_state::CLOSED | lease_state::OPEN => false,
            lease_state::CANCELLING => true,
            _ => return None,
        };
        let reason = match small(details::REASON.read(&bytes)?)? {
            0 => None,
            code => Some(death_reason(code)?),
        };
        let level = small(details::LEVEL.read(&bytes)?)?;
        let mut bytes = details::STRUCTURE.rest(&bytes)?;
        if level == place::GROUPED {
            details::LANE.take(&mut bytes)?;
        }
        let first_error_length = usize::try_from(first_error_length).ok()?;
        if bytes.len() < first_error_length {
            return None;
        }
        let first_error = error_text(&bytes.split_to(first_error_length));
        // Scripts do not look at what follows either: if it is cut off, the message is not lost.
        let last_error_length = usize::try_from(last_error_length).ok()?.min(bytes.len());
        let last_error = error_text(&bytes.split_to(last_error_length));
        let is_whole = saved_length <= bytes.len();
        let kept = bytes.split_to(saved_length.min(bytes.len()));
        let (progress, checkpoint) = decode_saved(kept, is_whole).unwrap_or_default();
        let lease = Lease { claim_id: ClaimId::from_bytes(claim_id), epoch };
        let known = Self {
            cancel_requested,
            reason,
            lease,
            due,
            failures,
            crashes,
            first_error,
            last_error,
            progress,
            checkpoint,
            attempts: bytes,
        };
        Some(known)
    }
}

impl Details {
    /// Reads the attempts, up to the first that cannot be read.
    pub(crate) fn attempts(&self) -> Vec<Attempt> {
        let mut bytes = self.attempts.clone();
        let next = || {
            let at = instant(attempt::AT.take(&mut bytes)?)?;
            let outcome = attempt_outcome(small(attempt::OUTCOME.take(&mut bytes)?)?)?;
            let length = small(attempt::ERROR_LENGTH.take(&mut bytes)?)?;
            let own = if length == SAME_ERROR { 0 } else { usize::from(length) };
            let text = (own <= bytes.len()).then(|| bytes.split_to(own))?;
            Some((at, outcome, length, text))
        };
        let stored: Vec<_> = iter::from_fn(next).take(MAX_ATTEMPTS).collect();
        let mut latest_error = self.last_error.clone().unwrap_or_default();
        let mut attempts = Vec::with_capacity(stored.len());
        for (at, outcome, length, text) in stored.into_iter().rev() {
            if !text.is_empty() {
                latest_error = String::from_utf8_lossy(&text).into_owned();
            }
            let error = if length == 0 { "" } else { &latest_error };
            attempts.push(Attempt::new(at, outcome, error));
        }
        attempts.reverse();
        attempts
    }
}

/// Reads what handlers have saved. Lists show only its beginning, without the checkpoint.
fn decode_saved(mut bytes: Bytes, is_whole: bool) -> Option<(Option<Progress>, Option<Bytes>)> {
    bytes = saved::STRUCTURE.rest(&bytes)?;
    let parts = small(save::PARTS.read(&bytes)?)?;
    let permille = u16::try_from(save::PROGRESS.read(&bytes)?).ok()?;
    let length = usize::try_from(save::TEXT_LENGTH.read(&bytes)?).ok()?;
    bytes = save::STRUCTURE.rest(&bytes)?;
    let text = (length <= bytes.len()).then(|| bytes.split_to(length))?;
    let progress = || Progress::from_permille(permille, String::from_utf8_lossy(&text));
    let has_checkpoint = is_whole && parts & part::CHECKPOINT != 0;
    Some(((parts & part::PROGRESS != 0).then(progress), has_checkpoint.then_some(bytes)))
}

fn attempt_outcome(code: u8) -> Option<AttemptOutcome> {
    match code {
        0 => Some(AttemptOutcome::Crashed),
        settlement_kind::RETRY => Some(AttemptOutcome::Failed),
        settlement_kind::UNDECODED => Some(AttemptOutcome::Undecodable),
        settlement_kind::REJECT => Some(AttemptOutcome::Rejected),
        _ => None,
    }
}

fn error_text(bytes: &[u8]) -> Option<String> {
    (!bytes.is_empty()).then(|| String::from_utf8_lossy(bytes).into_owned())
}

pub(crate) fn death_reason(code: u8) -> Option<DeathReason> {
    match code {
        reason::MAX_FAILURES => Some(DeathReason::MaxFailures),
        reason::MAX_CRASHES => Some(DeathReason::MaxCrashes),
        reason::REJECTED => Some(DeathReason::Rejected),
        reason::EXPIRED => Some(DeathReason::Expired),
        reason::UNDECODABLE => Some(DeathReason::Undecodable),
        reason::UNREADABLE => Some(DeathReason::Unreadable),
        _ => None,
    }
}

fn instant(ms: u64) -> Option<Timestamp> {
    Timestamp::from_ms(ms).ok()
}

fn small(number: u64) -> Option<u8> {
    u8::try_from(number).ok()
}

/// The number that `bytes` begin with, if this field comes next.
fn number(field: &Field, bytes: &mut Bytes) -> Option<u32> {
    u32::try_from(field.take(bytes)?).ok()
}

/// What a newer version of the core has added.
/// The capability is that of a newer version of the core; nothing is sent.
pub(crate) fn unsupported(what: &'static str) -> Error {
    Error::new(ErrorKind::Unsupported(what))
}

#[cfg(test)]
mod tests {
    use delayline_core::MessageId;
    use proptest::prelude::*;

    use super::*;

    /// What `enqueue.lua` makes of the bytes of a message that does not expire.
    fn record(message: &NewMessage) -> Bytes {
        let mut bytes = Vec::new();
        record::SEQUENCE.put(&mut bytes, 7);
        record::ENQUEUED_AT.put(&mut bytes, 1_000);
        bytes.put_slice(&encode_new_message(message).unwrap());
        bytes.into()
    }

    #[test]
    fn a_record_is_the_enqueued_bytes_behind_what_the_server_adds() {
        let mut message = NewMessage::new(MessageId::try_from("a").unwrap(), &b"\0payload\xff"[..]);
        assert_eq!(record(&message).len(), record::BYTES + message.payload.len());
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
            let attempts = Details::decode(bytes.into()).map(|details| details.attempts());
            assert!(attempts.is_none_or(|attempts| attempts.len() <= MAX_ATTEMPTS));
        }
    }
}
