//! Decodes a script's reply.
//!
//! Decoding is total: whatever a server sends, the result is a reply or an error.

mod head;
mod reader;
mod removal;
mod upgrade;

use std::time::Duration;

use bytes::{Buf, Bytes};
use delayline_core::{
    Applied, Cancelled, Checked, Claim, Claimed, Completion, Death, DeathReason, Delivery,
    Enqueued, Error, Extended, Finding, Follower, Forecast, Found, HandOff, HandedOff, History,
    Limits, Message, MessageId, MessageInfo, MessageState, Op, Page, Position, Priority, Purged,
    Rate, Redriven, Relayed, Reply, Rescheduled, Settled, Stats, Status, Timestamp, Totals,
};

use self::head::results;
use self::reader::{Reader, instant, message_id, unreadable};
pub use self::removal::Removal;
pub(crate) use self::removal::decode_removal;
pub(crate) use self::upgrade::{Converted, Layout, decode_conversion, decode_layout};
use crate::layout::codes::{
    cancelled, enqueued, extended, finding, item, place, progress, purged, redriven, rescheduled,
    settled, status,
};
use crate::layout::{bytes_before_id, delivery, member, place_of_score, updates};
use crate::record::{Details, RecordHead, death_reason, decode_record};
use crate::totals::{decode_point, read_totals};
use crate::transport::Value;

/// Decodes the reply of the script that executed `op`.
///
/// # Errors
///
/// Its kind is `NewerVersion`, `OlderVersion`, `NewerFeature`, `Damaged`, or
/// [`Protocol`](delayline_core::ErrorKind::Protocol) if the reply is invalid.
pub fn decode(op: &Op, value: Value) -> Result<Applied, Error> {
    let (mut reply, at, revision) = results(value)?;
    let micros = if matches!(op, Op::Claim(_)) { reply.micros()? } else { 0 };
    let answer = reply.answer(op, at)?;
    if reply.0.next().is_some() {
        return Err(unreadable("the reply is too long"));
    }
    Ok(Applied::new(at, revision, answer).with_micros(micros))
}

impl Reader {
    fn answer(&mut self, op: &Op, at: Timestamp) -> Result<Reply, Error> {
        Ok(match op {
            Op::Enqueue(items) => Reply::Enqueue(self.each(items.len(), Self::enqueued)?),
            Op::Claim(claim) => Reply::Claim(self.claimed(claim, at)?),
            Op::Relay(_) => Reply::Relay(self.relayed()?),
            Op::HandOff(items) => Reply::HandOff(self.handed_off(items)?),
            Op::Settle(items) => Reply::Settle(self.each(items.len(), Self::settled)?),
            Op::Extend(extend) => {
                let deadline = at.after(extend.lease);
                Reply::Extend(self.each(extend.leases.len(), |reply| reply.extended(deadline))?)
            }
            Op::Cancel(ids) => Reply::Cancel(self.each(ids.len(), Self::cancelled)?),
            Op::Reschedule(items) => Reply::Reschedule(self.each(items.len(), Self::rescheduled)?),
            Op::Redrive(redrive) => Reply::Redrive(self.each(redrive.ids.len(), Self::redriven)?),
            Op::Purge(ids) => Reply::Purge(self.each(ids.len(), Self::purged)?),
            Op::Pause => Reply::Pause { changed: self.flag()? },
            Op::Resume => Reply::Resume { changed: self.flag()? },
            Op::SetLimits(_) => Reply::SetLimits { changed: self.flag()? },
            Op::Get(ids) => {
                let found = ids.iter().map(|id| self.found(id, at));
                Reply::Get(found.collect::<Result<_, _>>()?)
            }
            Op::Progress(ids) => Reply::Progress(self.progress(ids.len())?),
            Op::List(_) => Reply::List(self.page(at)?),
            Op::Stats => Reply::Stats(Box::new(self.stats(at)?)),
            Op::Forecast(delays) => Reply::Forecast(self.forecast(delays.len())?),
            Op::History(_) => Reply::History(self.history()?),
            Op::Check(_) => Reply::Check(self.checked()?),
            Op::Repair(_) => Reply::Repair(self.checked()?),
            _ => return Err(unreadable("the operation is unknown")),
        })
    }

    fn each<T>(
        &mut self,
        count: usize,
        mut read: impl FnMut(&mut Self) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        (0..count).map(|_| read(self)).collect()
    }

    fn enqueued(&mut self) -> Result<Enqueued, Error> {
        let code = self.int()?;
        let beyond = |base| instant(code - base);
        Ok(match code {
            enqueued::THROTTLED.. => Enqueued::Throttled { until: beyond(enqueued::THROTTLED)? },
            enqueued::UPDATED.. => Enqueued::Updated { due: beyond(enqueued::UPDATED)? },
            enqueued::FOLLOWING => Enqueued::Following { replaced: false },
            enqueued::FOLLOWING_AGAIN => Enqueued::Following { replaced: true },
            enqueued::TOO_MANY_THROTTLED => Enqueued::TooManyThrottled,
            code if code < enqueued::CONFLICT => {
                Enqueued::Conflict { status: status_of(enqueued::CONFLICT - code)? }
            }
            code if code < 0 => Enqueued::Duplicate { status: status_of(-code)? },
            due => Enqueued::Created { due: instant(due)? },
        })
    }

    fn handed_off(&mut self, items: &[HandOff]) -> Result<Vec<HandedOff>, Error> {
        let settled = self.each(items.len(), Self::settled)?;
        let pairs = settled.into_iter().zip(items);
        let handed_off = pairs.map(|(settled, item)| {
            let messages = self.each(item.messages.len(), Self::enqueued)?;
            let is_done = matches!(settled, Settled::Done { .. });
            Ok(HandedOff::new(settled, if is_done { messages } else { Vec::new() }))
        });
        let mut handed_off = handed_off.collect::<Result<Vec<_>, Error>>()?;
        for (told, _) in handed_off.iter_mut().zip(items).filter(|(_, item)| item.result.is_some())
        {
            told.result_kept = self.flag()?;
        }
        Ok(handed_off)
    }

    fn progress(&mut self, most: usize) -> Result<Vec<Completion>, Error> {
        let mut all = Vec::new();
        while all.len() < most && self.0.len() > 0 {
            all.push(match self.int()? {
                progress::PENDING => Completion::Pending,
                progress::UNKNOWN => Completion::Unknown,
                code if code < 0 => {
                    let reason = code.checked_neg().and_then(|code| u8::try_from(code).ok());
                    let reason = reason.and_then(death_reason);
                    Completion::Dead(reason.ok_or_else(|| unreadable("the reason of a death"))?)
                }
                code => match (status_of(code)?, code == i64::from(status::ACKED)) {
                    (status, false) => Completion::finished(status),
                    (status, true) => match self.value()? {
                        Value::Bytes(result) => Completion::acked_with(result),
                        _ => Completion::finished(status),
                    },
                },
            });
        }
        if all.is_empty() { Err(unreadable("the answer is empty")) } else { Ok(all) }
    }

    /// The microseconds of the server's clock past its milliseconds.
    fn micros(&mut self) -> Result<u16, Error> {
        let micros = u16::try_from(self.count()?).ok().filter(|micros| *micros < 1_000);
        micros.ok_or_else(|| unreadable("a millisecond has 1,000 microseconds"))
    }

    /// Whether there are more messages, and other flags.
    fn flags(&mut self) -> Result<[bool; 3], Error> {
        match self.count()? {
            flags @ 0..=7 => Ok([1, 2, 4].map(|flag| flags & flag != 0)),
            _ => Err(unreadable("whether there are more")),
        }
    }

    fn claimed(&mut self, claim: &Claim, at: Timestamp) -> Result<Claimed, Error> {
        let mut claimed = Claimed::default();
        let [more, capped, unsorted] = self.flags()?;
        (claimed.more, claimed.capped, claimed.unsorted) = (more, capped, unsorted);
        claimed.next = self.optional_instant()?;
        claimed.deliveries.reserve(self.0.len() / 3);
        while self.0.len() > 0 {
            let id = match self.value()? {
                Value::Int(reason) => {
                    claimed.deaths.push(self.death(reason)?);
                    continue;
                }
                Value::Bytes(id) => message_id(id)?,
                _ => return Err(unreadable("a message's id is of the wrong type")),
            };
            let record = self.bytes()?;
            let (deadline, details) = match self.value()? {
                Value::Int(due) => (
                    at.after(claim.lease),
                    Some(Details::of_first_lease(claim.claim_id, instant(due)?)),
                ),
                Value::Bytes(bytes) => deadline_and_details(bytes)?,
                _ => return Err(unreadable("the lease of a message is of the wrong type")),
            };
            // The script delivers nothing that cannot be read. If it does, that message alone is
            // passed over: its lease runs out, and in the end it is a dead letter.
            let Some(details) = details else { continue };
            let lease = details.lease;
            let place = Place { band: place::LEASED, instant: deadline };
            if let Some(message) = read_message(id, record, Some(details), place, at) {
                claimed.deliveries.push(Delivery::new(message, lease));
            }
        }
        Ok(claimed)
    }

    fn relayed(&mut self) -> Result<Relayed, Error> {
        let mut relayed = Relayed::default();
        [relayed.more, relayed.leases_limited, _] = self.flags()?;
        relayed.held_back = self.flag()?;
        relayed.next = self.optional_instant()?;
        relayed.ids.reserve(self.0.len());
        while self.0.len() > 0 {
            match self.value()? {
                Value::Int(reason) => relayed.deaths.push(self.death(reason)?),
                Value::Bytes(id) => relayed.ids.push(message_id(id)?),
                _ => return Err(unreadable("a message's id is of the wrong type")),
            }
        }
        Ok(relayed)
    }

    /// A message that was buried; the reason was read before.
    fn death(&mut self, reason: i64) -> Result<Death, Error> {
        let reason = u8::try_from(reason).ok().and_then(death_reason);
        let reason = reason.ok_or_else(|| unreadable("the reason of a death"))?;
        Ok(Death::new(self.id()?, reason))
    }

    fn settled(&mut self) -> Result<Settled, Error> {
        Ok(match self.int()? {
            settled::ALREADY_DONE => Settled::AlreadyDone { ended: None },
            code if code < settled::ALREADY_ENDED => {
                Settled::AlreadyDone { ended: Some(status_of(settled::ALREADY_ENDED - code)?) }
            }
            settled::STALE => Settled::Stale,
            settled::MISSING => Settled::Missing,
            code => Settled::Done { status: status_of(code)? },
        })
    }

    fn extended(&mut self, deadline: Timestamp) -> Result<Extended, Error> {
        match self.int()? {
            extended::DONE => Ok(Extended::Done { deadline, cancel_requested: false }),
            extended::CANCELLING => Ok(Extended::Done { deadline, cancel_requested: true }),
            extended::STALE => Ok(Extended::Stale),
            extended::MISSING => Ok(Extended::Missing),
            _ => Err(unreadable("the result of an extension")),
        }
    }

    fn cancelled(&mut self) -> Result<Cancelled, Error> {
        match self.int()? {
            cancelled::DONE => Ok(Cancelled::Cancelled),
            cancelled::IN_FLIGHT => Ok(Cancelled::InFlight),
            cancelled::NOT_FOUND => Ok(Cancelled::NotFound),
            _ => Err(unreadable("the result of a cancellation")),
        }
    }

    fn rescheduled(&mut self) -> Result<Rescheduled, Error> {
        Ok(match self.int()? {
            rescheduled::IN_FLIGHT => Rescheduled::InFlight,
            rescheduled::DEAD => Rescheduled::Dead,
            rescheduled::NOT_FOUND => Rescheduled::NotFound,
            due => Rescheduled::Done { due: instant(due)? },
        })
    }

    fn redriven(&mut self) -> Result<Redriven, Error> {
        Ok(match self.int()? {
            redriven::NOT_DEAD => Redriven::NotDead,
            redriven::UNREADABLE => Redriven::Unreadable,
            redriven::NOT_FOUND => Redriven::NotFound,
            due => Redriven::Done { due: instant(due)? },
        })
    }

    fn purged(&mut self) -> Result<Purged, Error> {
        match self.int()? {
            purged::DONE => Ok(Purged::Purged),
            purged::NOT_DEAD => Ok(Purged::NotDead),
            purged::NOT_FOUND => Ok(Purged::NotFound),
            _ => Err(unreadable("the result of a purge")),
        }
    }

    fn found(&mut self, id: &MessageId, at: Timestamp) -> Result<Found, Error> {
        let first = self.value()?;
        let details = self.bytes()?;
        let place = self.place()?;
        let (beside, number) = (self.bytes()?, self.count()?);
        match first {
            Value::Int(item::UNREADABLE) => Ok(Found::Unreadable),
            Value::Int(item::UNKNOWN) => Ok(Found::Unknown),
            Value::Int(code) => Ok(Found::Finished(status_of(code)?)),
            Value::Bytes(record) => {
                let message = read_details(details).and_then(|details| {
                    let attempts = details.as_ref().map(Details::attempts);
                    let mut message = read_message(id.clone(), record, details, place, at)?;
                    message.attempts = attempts.unwrap_or_default();
                    if message.info.state == MessageState::Ready {
                        message.behind = MessageId::new(beside).ok();
                        let until = Timestamp::from_ms(number).ok();
                        message.group_held_until = until.filter(|until| *until > at);
                    } else {
                        let payload_bytes = usize::try_from(number).unwrap_or(usize::MAX);
                        message.follower = read_follower(beside, payload_bytes);
                    }
                    Some(Found::Live(Box::new(message)))
                });
                Ok(message.unwrap_or(Found::Unreadable))
            }
            _ => Err(unreadable("a message is of the wrong type")),
        }
    }

    /// Entries that no library of this kind has written are passed over; `Check` reports them.
    fn page(&mut self, at: Timestamp) -> Result<Page, Error> {
        let more = self.flag()?;
        let mut page = Page::default();
        while self.0.len() > 0 {
            let index = self.small()?;
            let mut entry = self.bytes()?;
            let mut head = self.bytes()?;
            let payload_bytes = usize::try_from(self.count()?).unwrap_or(usize::MAX);
            let details = self.bytes()?;
            let instant = self.instant()?;
            let sequence = sequence_of(&entry);
            entry.advance(entry.len().min(bytes_before_id(&entry)));
            page.next = more.then_some(Position { index, instant, sequence });
            let (Ok(id), Some(head)) = (MessageId::new(entry), RecordHead::decode(&mut head))
            else {
                continue;
            };
            let place = Place { band: index, instant };
            let info = read_details(details)
                .and_then(|details| read_info(id, &head, payload_bytes, details, place, at));
            page.messages.extend(info);
        }
        Ok(page)
    }

    fn forecast(&mut self, delays: usize) -> Result<Forecast, Error> {
        let mut forecast = Forecast::default();
        forecast.ready = self.count()?;
        forecast.due = self.each(delays, Self::count)?;
        forecast.later = self.count()?;
        Ok(forecast)
    }

    fn stats(&mut self, at: Timestamp) -> Result<Stats, Error> {
        let mut stats = Stats::default();
        stats.scheduled = self.count()?;
        stats.ready = self.count()?;
        stats.leased = self.count()?;
        stats.dead = self.count()?;
        stats.paused = self.flag()?;
        stats.earliest_due = self.optional_instant()?;
        stats.totals = self.totals()?;
        stats.limits = self.limits(at)?;
        stats.waiting_groups = self.count()?;
        Ok(stats)
    }

    fn limits(&mut self, at: Timestamp) -> Result<Limits, Error> {
        let mut limits = Limits::default();
        limits.leased = Some(self.number()?).filter(|most| *most > 0);
        limits.each_group = Some(self.number()?).filter(|most| *most > 0);
        limits.in_order = self.flag()?;
        let [count, per, burst] = [self.number()?, self.number()?, self.number()?];
        let rate = Rate::new(count, Duration::from_millis(per.into()), burst);
        limits.rate = Some(rate).filter(|rate| rate.count > 0);
        let to_come = |instant| Some(instant).filter(|instant| *instant > at);
        limits.rate_open_at = to_come(self.instant()?);
        limits.held_until = to_come(self.instant()?);
        Ok(limits)
    }

    fn number(&mut self) -> Result<u32, Error> {
        u32::try_from(self.int()?).map_err(|_| unreadable("a limit"))
    }

    fn totals(&mut self) -> Result<Totals, Error> {
        let mut totals = Totals::default();
        totals.enqueued = self.count()?;
        totals.acked = self.count()?;
        totals.cancelled = self.count()?;
        totals.purged = self.count()?;
        totals.relayed = self.count()?;
        totals.died_expired = self.count()?;
        totals.replaced = self.count()?;
        read_totals(&self.bytes()?, &mut totals);
        Ok(totals)
    }

    fn history(&mut self) -> Result<History, Error> {
        let mut history = History::default();
        history.points.reserve(self.0.len());
        while self.0.len() > 0 {
            let point = decode_point(self.bytes()?);
            history.points.push(point.ok_or_else(|| unreadable("a point of the history"))?);
        }
        Ok(history)
    }

    fn checked(&mut self) -> Result<Checked, Error> {
        let mut checked = Checked::default();
        checked.examined = self.count()?;
        let more = self.flag()?;
        let (index, instant) = (self.small()?, self.instant()?);
        let sequence = (self.count()? << 32) | self.count()?;
        while self.0.len() > 0 {
            checked.findings.push(self.finding()?);
        }
        checked.next = more.then_some(Position { index, instant, sequence });
        Ok(checked)
    }

    fn finding(&mut self) -> Result<Finding, Error> {
        let kind = self.int()?;
        let of_a_message: Option<fn(MessageId) -> Finding> = match kind {
            finding::MISSING_RECORD => Some(|id| Finding::MissingRecord { id }),
            finding::WRONG_RECORD => Some(|id| Finding::WrongRecord { id }),
            finding::MISSING_DETAILS => Some(|id| Finding::MissingDetails { id }),
            finding::ORPHAN => Some(|id| Finding::Orphan { id }),
            finding::MISSING_TURN => Some(|id| Finding::MissingTurn { id }),
            _ => None,
        };
        if let Some(finding) = of_a_message {
            let id = self.id()?;
            self.bytes()?;
            return Ok(finding(id));
        }
        let first = self.count()?;
        match kind {
            finding::MALFORMED_ENTRY => {
                self.bytes()?;
                Ok(Finding::MalformedEntry { index: u8::try_from(first).unwrap_or(u8::MAX) })
            }
            finding::RECORD_COUNT => {
                Ok(Finding::RecordCount { records: first, indexed: self.count()? })
            }
            finding::CONSERVATION => {
                Ok(Finding::Conservation { enqueued: first, accounted: self.count()? })
            }
            _ => Err(unreadable("a finding of an unknown kind")),
        }
    }

    /// The place that a score tells.
    fn place(&mut self) -> Result<Place, Error> {
        let (band, ms) = place_of_score(self.count()?);
        let band = u8::try_from(band).map_err(|_| unreadable("a band is out of range"))?;
        let instant = Timestamp::from_ms(ms);
        let instant = instant.map_err(|_| unreadable("an instant is out of range"))?;
        Ok(Place { band, instant })
    }
}

/// The follower that `get.lua` shows: its due instant, and the beginning of its record.
fn read_follower(mut bytes: Bytes, payload_bytes: usize) -> Option<Follower> {
    let due = Timestamp::from_ms(updates::DUE.take(&mut bytes)?).ok()?;
    let head = RecordHead::decode(&mut bytes)?;
    let mut follower = Follower::new(head.enqueued_at, due);
    follower.expires_at = head.expires_at;
    follower.group = head.group;
    follower.priority = head.priority;
    follower.payload_bytes = payload_bytes;
    Some(follower)
}

/// The sequence number in front of an index member; a shorter member is padded, as in walk.lua.
fn sequence_of(bytes: &[u8]) -> u64 {
    let mut padded = [0; member::BYTES];
    padded.iter_mut().zip(bytes).for_each(|(byte, known)| *byte = *known);
    u64::from_be_bytes(padded)
}

fn status_of(code: i64) -> Result<Status, Error> {
    match u8::try_from(code) {
        Ok(status::SCHEDULED) => Ok(Status::Scheduled),
        Ok(status::READY) => Ok(Status::Ready),
        Ok(status::LEASED) => Ok(Status::Leased),
        Ok(status::DEAD) => Ok(Status::Dead),
        Ok(status::ACKED) => Ok(Status::Acked),
        Ok(status::CANCELLED) => Ok(Status::Cancelled),
        Ok(status::PURGED) => Ok(Status::Purged),
        Ok(status::RELAYED) => Ok(Status::Relayed),
        Ok(status::REPLACED) => Ok(Status::Replaced),
        _ => Err(unreadable("a status is unknown")),
    }
}

/// The deadline that stands before the details of a delivery.
fn deadline_and_details(mut bytes: Bytes) -> Result<(Timestamp, Option<Details>), Error> {
    let deadline = delivery::DEADLINE.take(&mut bytes).and_then(|ms| Timestamp::from_ms(ms).ok());
    let deadline = deadline.ok_or_else(|| unreadable("the deadline of a lease"))?;
    Ok((deadline, Details::decode(bytes)))
}

/// Details, if there are any; `None` if they cannot be read.
fn read_details(bytes: Bytes) -> Option<Option<Details>> {
    if bytes.is_empty() { Some(None) } else { Details::decode(bytes).map(Some) }
}

/// Where a message is in `index`.
#[derive(Clone, Copy)]
struct Place {
    band: u8,
    instant: Timestamp,
}

/// A message from its record, its details, and its place; `None` if they do not go together.
fn read_message(
    id: MessageId,
    record: Bytes,
    details: Option<Details>,
    place: Place,
    at: Timestamp,
) -> Option<Message> {
    let (head, headers, payload) = decode_record(record)?;
    let checkpoint = details.as_ref().and_then(|details| details.checkpoint.clone());
    let info = read_info(id, &head, payload.len(), details, place, at)?;
    let mut message = Message::new(info, payload);
    message.headers = headers;
    message.checkpoint = checkpoint;
    Some(message)
}

fn read_info(
    id: MessageId,
    head: &RecordHead,
    payload_bytes: usize,
    details: Option<Details>,
    Place { band, instant }: Place,
    at: Timestamp,
) -> Option<MessageInfo> {
    let mut holder = None;
    let (state, due) = match (band, &details) {
        (place::LEASED, Some(details)) => {
            let cancel_requested = details.cancel_requested;
            holder = Some(details.lease.claim_id.process());
            (MessageState::Leased { deadline: instant, cancel_requested }, details.due)
        }
        (place::DEAD, Some(details)) => {
            // A torn redrive has already cleared the reason.
            let reason = details.reason.unwrap_or(DeathReason::Unreadable);
            (MessageState::Dead { reason, since: instant }, details.due)
        }
        (place::LANES, details) => {
            let due = details.as_ref().map(|details| details.due).or(head.due)?;
            (MessageState::Ready, due)
        }
        (level, _) if level == place::GROUPED || Priority::from_level(level).is_some() => {
            (if instant > at { MessageState::Scheduled } else { MessageState::Ready }, instant)
        }
        _ => return None,
    };
    let mut info = MessageInfo::new(id, state, head.sequence, head.enqueued_at, due);
    info.group = head.group.clone();
    info.priority = head.priority;
    info.expires_at = head.expires_at;
    info.max_failures = head.max_failures;
    info.max_crashes = head.max_crashes;
    info.payload_bytes = payload_bytes;
    info.holder = holder;
    if let Some(details) = details {
        info.epoch = details.lease.epoch;
        info.failures = details.failures;
        info.crashes = details.crashes;
        info.first_error = details.first_error;
        info.last_error = details.last_error;
        info.progress = details.progress;
    }
    Some(info)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_of_deaths_that_do_not_exist_are_refused() {
        for code in [-9, -257, i64::MIN] {
            assert!(Reader(vec![Value::Int(code)].into_iter()).progress(1).is_err(), "{code}");
        }
    }
}
