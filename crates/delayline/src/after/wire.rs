//! How the members of a waiting message are stored: in a header, and behind its payload.
//!
//! The header [`WAITS_FOR`] has the length of the payload, the number of members, the time limit
//! in milliseconds, and the effect of a failure. If the message was moved from another queue,
//! [`Headers::WAITS_SINCE`] has when it was sent there, and whether it has failed there (0 or 1).
//! Each member is the name of its queue, if it is another one, a space, and its id. Only the part
//! of that text that differs from the member before is stored: the length of the common beginning
//! (1 byte), the length of the rest (2 bytes, big-endian), and the rest. When a worker has checked
//! the members, their ends follow, in memory only.

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use delayline_core::{
    Completion, DeathReason, Headers, MessageId, NewMessage, QueueName, Status, Timestamp,
    Violation,
};

use super::member::{Ended, Member, Members, Moved, OnFailure, Waiting, Why};
use crate::error::whole_ms;

/// The header of a message that waits for others. Only this library writes it.
pub const WAITS_FOR: &str = "delayline-waits-for";

/// The header of a message that wakes another one when it has ended: the name of the queue of the
/// waiting message, a space, and its id.
pub const WAKES: &str = "delayline-wakes";

/// The headers that only this library writes: a sender that could set them would be trusted.
pub const HEADERS: [&str; 3] = [WAITS_FOR, WAKES, Headers::WAITS_SINCE];

/// Sets the header [`WAKES`], as [`Draft::wakes`](crate::Draft::wakes) does.
///
/// # Errors
///
/// [`Violation`] if the headers would be too many or too large; nothing is changed then.
pub fn set_wakes(headers: &mut Headers, waiting: &Member) -> Result<(), Violation> {
    headers.set(WAKES, name(waiting))
}

/// Returns the message that a message with these headers wakes when it has ended, if any.
#[must_use]
pub fn wakes(headers: &Headers) -> Option<Member> {
    member(headers.get(WAKES)?)
}

/// Separates the payload of a delivered message from the ends of the messages that it has waited
/// for; `None` if it waited for none. For programs that claim without a
/// [`Worker`](crate::Worker), through [`Queue::apply`](crate::Queue::apply).
///
/// # Errors
///
/// A text if the list of members cannot be read. Then the payload cannot be decoded either.
pub fn delivered(headers: &Headers, payload: &Bytes) -> Result<(Bytes, Option<Members>), String> {
    Ok(match read(headers, payload)? {
        Some(read) => (read.payload, read.ended),
        None => (payload.clone(), None),
    })
}

/// A message that waits for others.
#[derive(Debug)]
pub(crate) struct Read {
    /// The payload, as the sender has set it.
    pub(crate) payload: Bytes,
    pub(crate) waiting: Waiting,
    /// The ends of the members, if a worker has checked them.
    pub(crate) ended: Option<Members>,
}

/// Writes what the message waits for behind its payload and into its headers.
pub(crate) fn write(waiting: &Waiting, message: &mut NewMessage) -> Result<(), Violation> {
    let Waiting { members, on_failure, at_most, moved } = waiting;
    let (bytes, count, ms) = (message.payload.len(), members.len(), whole_ms(*at_most));
    message.headers.set(WAITS_FOR, format!("{bytes} {count} {ms} {}", on_failure.name()))?;
    match moved {
        Some(Moved { since, has_failed }) => {
            let header = format!("{} {}", since.as_ms(), u8::from(*has_failed));
            message.headers.set(Headers::WAITS_SINCE, header)?;
        }
        // A handler may have copied the headers of a moved message.
        None if message.headers.get(Headers::WAITS_SINCE).is_some() => {
            message.headers.set(Headers::WAITS_SINCE, "")?;
        }
        None => {}
    }
    let mut stored = BytesMut::from(&message.payload[..]);
    let mut last = Vec::new();
    for member in members {
        let name = name(member);
        let common = last.iter().zip(&name).take(255).take_while(|(a, b)| a == b).count();
        let rest = name.get(common..).unwrap_or_default();
        // Names have at most 257 bytes.
        stored.put_u8(u8::try_from(common).unwrap_or(u8::MAX));
        stored.put_u16(u16::try_from(rest.len()).unwrap_or(u16::MAX));
        stored.put_slice(rest);
        last = name;
    }
    message.payload = stored.freeze();
    Ok(())
}

/// Reads a message, or returns `None` if it waits for nothing.
pub(crate) fn read(headers: &Headers, payload: &Bytes) -> Result<Option<Read>, String> {
    let Some(header) = headers.get(WAITS_FOR) else { return Ok(None) };
    let read = read_from(header, payload.clone())
        .ok_or("the list of the messages that it waits for cannot be read")?;
    let moved = headers.get(Headers::WAITS_SINCE).and_then(moved);
    Ok(Some(Read { waiting: Waiting { moved, ..read.waiting }, ..read }))
}

fn moved(header: &Bytes) -> Option<Moved> {
    let (since, has_failed) = std::str::from_utf8(header).ok()?.split_once(' ')?;
    let since = Timestamp::from_ms(since.parse().ok()?).ok()?;
    Some(Moved { since, has_failed: has_failed.parse::<u8>().ok()? > 0 })
}

fn read_from(header: &Bytes, mut rest: Bytes) -> Option<Read> {
    let header = std::str::from_utf8(header).ok()?;
    let [bytes, count, ms, on_failure] = header.split(' ').collect::<Vec<_>>()[..] else {
        return None;
    };
    let (bytes, count) = (bytes.parse().ok()?, count.parse::<usize>().ok()?);
    if bytes > rest.len() || count > Waiting::MAX_MEMBERS {
        return None;
    }
    let payload = rest.split_to(bytes);
    let mut members = Vec::with_capacity(count);
    let mut last = Vec::new();
    for _ in 0..count {
        let common = usize::from(rest.try_get_u8().ok()?);
        let length = usize::from(rest.try_get_u16().ok()?);
        if common > last.len() || length > rest.len() {
            return None;
        }
        last.truncate(common);
        last.extend_from_slice(&rest.split_to(length));
        members.push(member(&last)?);
    }
    let ended = if rest.is_empty() { None } else { Some(ends(&members, rest)?) };
    let at_most = Duration::from_millis(ms.parse().ok()?);
    let on_failure = OnFailure::named(on_failure)?;
    let waiting = Waiting { members, on_failure, at_most, moved: None };
    Some(Read { payload, waiting, ended })
}

/// Adds the ends of the members, in order, to a payload that [`write`] has written.
pub(crate) fn with_ends(
    stored: &Bytes,
    why: Why,
    ends: impl Iterator<Item = (u8, Option<Bytes>)>,
) -> Bytes {
    let mut bytes = BytesMut::from(&stored[..]);
    let place = Why::ALL.iter().position(|it| *it == why).unwrap_or_default();
    bytes.put_u8(u8::try_from(place).unwrap_or_default());
    for (code, result) in ends {
        // A result has at most 64 KiB, and its length is stored plus one.
        let result_bytes = result.as_ref().and_then(|it| u32::try_from(it.len() + 1).ok());
        bytes.put_u8(code);
        bytes.put_u32(result_bytes.unwrap_or_default());
        bytes.put_slice(&result.unwrap_or_default());
    }
    bytes.freeze()
}

fn ends(members: &[Member], mut rest: Bytes) -> Option<Members> {
    let why = *Why::ALL.get(usize::from(rest.try_get_u8().ok()?))?;
    let mut ended = Vec::with_capacity(members.len());
    for member in members {
        let code = rest.try_get_u8().ok()?;
        let length = usize::try_from(rest.try_get_u32().ok()?).ok()?;
        let result = match length.checked_sub(1) {
            Some(length) if length > rest.len() => return None,
            length => length.map(|length| rest.split_to(length)),
        };
        let completion = completion(code, result)?;
        ended.push(Ended { member: member.clone(), completion });
    }
    rest.is_empty().then_some(Members { why, ended })
}

/// How a completion is stored, without its result.
pub(crate) fn code(completion: &Completion) -> u8 {
    match completion {
        Completion::Pending => PENDING,
        Completion::Finished { status, .. } => match status {
            Status::Cancelled => 3,
            Status::Purged => 4,
            Status::Relayed => 5,
            _ => ACKED,
        },
        Completion::Dead(reason) => {
            let place = DeathReason::ALL.iter().position(|it| it == reason);
            place.and_then(|place| u8::try_from(place).ok()).unwrap_or_default() + DEAD
        }
        _ => UNKNOWN,
    }
}

/// Reads a stored completion.
pub(crate) fn completion(code: u8, result: Option<Bytes>) -> Option<Completion> {
    Some(match code {
        UNKNOWN => Completion::Unknown,
        PENDING => Completion::Pending,
        ACKED => Completion::Finished { status: Status::Acked, result },
        3 => Completion::finished(Status::Cancelled),
        4 => Completion::finished(Status::Purged),
        5 => Completion::finished(Status::Relayed),
        code => Completion::Dead(*DeathReason::ALL.get(usize::from(code.checked_sub(DEAD)?))?),
    })
}

/// Returns `true` for an end that is never undone. A dead letter may be redriven.
pub(crate) const fn is_final(code: u8) -> bool {
    code >= ACKED && code < DEAD
}

/// Returns `true` for a dead letter, and for a message that was cancelled or purged.
pub(crate) const fn is_failure(code: u8) -> bool {
    code == 3 || code == 4 || code >= DEAD
}

pub(crate) const UNKNOWN: u8 = 0;
pub(crate) const PENDING: u8 = 1;
pub(crate) const ACKED: u8 = 2;
/// The first of the reasons for a death.
const DEAD: u8 = 8;

/// The name of a member: of its queue, if it is another one, a space, and its id.
pub(crate) fn name(member: &Member) -> Vec<u8> {
    let queue = member.queue.as_ref().map_or("", QueueName::as_str);
    [queue.as_bytes(), b" ", member.id.as_bytes()].concat()
}

/// Reads such a name. No name of a queue has a space.
pub(crate) fn member(name: &[u8]) -> Option<Member> {
    let space = name.iter().position(|byte| *byte == b' ')?;
    let (queue, id) = (name.get(..space)?, name.get(space + 1..)?);
    let queue = match std::str::from_utf8(queue).ok()? {
        "" => None,
        queue => Some(QueueName::new(queue).ok()?),
    };
    Some(Member::new(queue, MessageId::new(id.to_vec()).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> MessageId {
        MessageId::try_from(text).unwrap()
    }

    fn waiting(members: Vec<Member>) -> (Waiting, NewMessage) {
        let waiting = Waiting { members, on_failure: OnFailure::Deliver, ..Waiting::new() };
        let mut message = NewMessage::new(id("w"), "payload");
        write(&waiting, &mut message).unwrap();
        (waiting, message)
    }

    fn all() -> Vec<Member> {
        let other = QueueName::new("other").unwrap();
        vec![
            id("thumb-1").into(),
            id("thumb-2").into(),
            Member::new(other.clone(), id("thumb-2")),
            Member::new(other, MessageId::new(vec![b' ', 0, 255]).unwrap()),
            id(&"x".repeat(128)).into(),
        ]
    }

    #[test]
    fn members_and_their_ends_are_read_as_they_were_written() {
        let (waiting, message) = waiting(all());
        let stored = read(&message.headers, &message.payload).unwrap().unwrap();
        assert_eq!((&stored.payload[..], &stored.waiting), (&b"payload"[..], &waiting));
        assert_eq!(stored.ended, None);
        let completions = [
            Completion::acked_with(""),
            Completion::acked_with("42"),
            Completion::Dead(DeathReason::Expired),
            Completion::Unknown,
            Completion::finished(Status::Cancelled),
        ];
        let ends = completions.iter().map(|it| (code(it), it.result().cloned()));
        let with_ends = with_ends(&message.payload, Why::TimeLimit, ends);
        let read = read(&message.headers, &with_ends).unwrap().unwrap();
        let members = read.ended.unwrap();
        assert_eq!((&read.payload[..], members.why), (&b"payload"[..], Why::TimeLimit));
        let read: Vec<_> = members.ended.into_iter().map(|it| it.completion).collect();
        assert_eq!(read, completions);
    }

    #[test]
    fn a_stored_list_that_is_cut_anywhere_is_refused() {
        let (_, message) = waiting(all());
        for length in 0..message.payload.len() {
            let cut = message.payload.slice(..length);
            assert!(read(&message.headers, &cut).is_err(), "{length} bytes");
        }
        for header in ["", "7", "7 5 x wait", "7 5 1 never", "99999 5 1 wait", "7 10001 1 wait"] {
            let mut headers = Headers::new();
            headers.set(WAITS_FOR, header).unwrap();
            assert!(read(&headers, &message.payload).is_err(), "{header:?}");
        }
    }

    #[test]
    fn what_a_moved_message_has_done_before_is_read_as_it_was_written() {
        let since = Timestamp::from_ms(1_700_000_000_000).unwrap();
        for has_failed in [false, true] {
            let waiting = Waiting { moved: Some(Moved { since, has_failed }), ..Waiting::new() };
            let mut message = NewMessage::new(id("w"), "payload");
            write(&waiting, &mut message).unwrap();
            let stored = read(&message.headers, &message.payload).unwrap().unwrap();
            assert_eq!(stored.waiting, waiting);
            // A producer repeats its send.
            let mut sent = NewMessage::new(id("w"), "payload");
            write(&Waiting::new(), &mut sent).unwrap();
            assert_eq!(message.digest(), sent.digest());
            // Its headers in another message say nothing of that one.
            let mut other = NewMessage::new(id("w"), "payload").headers(message.headers);
            write(&Waiting::new(), &mut other).unwrap();
            let other = read(&other.headers, &other.payload).unwrap().unwrap();
            assert_eq!(other.waiting.moved, None);
        }
    }

    #[test]
    fn ten_thousand_generated_ids_fit() {
        let ids = (0..10_000).map(|_| id(&uuid::Uuid::now_v7().to_string()).into());
        let (_, message) = waiting(ids.collect());
        assert!(message.payload.len() < 400_000, "{} bytes", message.payload.len());
    }
}
