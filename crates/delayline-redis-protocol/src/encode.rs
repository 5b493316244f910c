//! Encodes an operation as the arguments of its script. The head of each script lists them.

use bytes::{BufMut, Bytes};
use delayline_core::{
    At, Change, Claim, Destination, Error, HandOff, Hold, Op, Outcome, Position, Resolution, Save,
    Schedule, SetLimits, Settlement, Status, Timestamp,
};

use crate::layout::codes::{destination, part, resolution, settlement_kind as kind, status};
use crate::layout::{hand_off, hold, save, settlement};
use crate::record::{encode_new_message, put_lease, put_runs, put_schedule, unsupported};

/// Returns the arguments of the script that applies `op`.
///
/// # Errors
///
/// [`ErrorKind::Unsupported`](delayline_core::ErrorKind::Unsupported) if `op` has a part that only
/// a newer version of the core knows.
pub(crate) fn encode(at: At, op: &Op) -> Result<Vec<Bytes>, Error> {
    let mut args = Arguments(vec![match at {
        At::Server => Bytes::new(),
        At::Fixed(now) => number(now.as_ms()),
    }]);
    match op {
        Op::Enqueue(messages) => {
            args.packed(|bytes| put_runs(bytes, messages));
            messages.iter().for_each(|message| args.copied(message.id.as_bytes()));
            args.each(messages, encode_new_message)?;
        }
        Op::Claim(claim) => args.claim(claim),
        Op::Relay(relay) => {
            let (kind, group) = match &relay.to {
                Destination::List { .. } => (destination::LIST, Bytes::new()),
                Destination::Stream { backlog, .. } => {
                    let group = backlog.as_ref().map(|backlog| backlog.group.as_bytes().clone());
                    (destination::STREAM, group.unwrap_or_default())
                }
                _ => return Err(unsupported("this kind of destination")),
            };
            args.count(relay.max);
            args.number(kind.into());
            args.number(relay.to.limit().unwrap_or(0));
            args.0.push(group);
        }
        Op::Settle(settlements) => {
            settlements.iter().for_each(|item| args.copied(item.id.as_bytes()));
            args.each(settlements, encode_settlement)?;
            if op.claims_next() || settlements.iter().any(|item| item.hold.is_some()) {
                args.holds(op.claims_next(), settlements)?;
            }
        }
        Op::HandOff(items) => {
            let settlements = || items.iter().map(|item| &item.settlement);
            let messages = || items.iter().flat_map(|item| &item.messages);
            let results = || items.iter().filter_map(|item| item.result.as_ref());
            settlements().for_each(|item| args.copied(item.id.as_bytes()));
            args.each(settlements(), encode_settlement)?;
            messages().for_each(|message| args.copied(message.id.as_bytes()));
            args.each(messages(), encode_new_message)?;
            results().for_each(|result| args.bytes(&result.bytes));
            args.holds(op.claims_next(), settlements())?;
            args.packed(|bytes| items.iter().for_each(|item| put_carried(bytes, item)));
            args.packed(|bytes| put_runs(bytes, &messages().collect::<Vec<_>>()));
            args.count(items.len());
        }
        Op::Extend(extend) => {
            args.number(extend.lease.as_ms());
            for ((id, lease), save) in extend.leases.iter().zip(extend.saves_in_order()) {
                args.copied(id.as_bytes());
                args.packed(|bytes| {
                    put_lease(bytes, *lease);
                    save.into_iter().for_each(|save| put_save(bytes, save));
                });
            }
        }
        Op::Reschedule(items) => {
            for item in items {
                args.copied(item.id.as_bytes());
                args.packed(|bytes| put_schedule(bytes, item.schedule));
            }
        }
        Op::Redrive(redrive) => {
            args.packed(|bytes| put_schedule(bytes, redrive.schedule));
            redrive.ids.iter().for_each(|id| args.copied(id.as_bytes()));
        }
        Op::Cancel(ids) | Op::Purge(ids) | Op::Get(ids) | Op::Progress(ids) => {
            ids.iter().for_each(|id| args.copied(id.as_bytes()));
        }
        Op::Pause => args.number(1),
        Op::Resume => args.number(0),
        Op::SetLimits(set) => args.limits(set),
        Op::List(list) => {
            args.number(u64::from(status_code(list.status)?));
            args.count(list.limit);
            args.position(list.after);
        }
        Op::Stats => {}
        Op::Forecast(delays) => delays.iter().for_each(|delay| args.number(delay.as_ms())),
        Op::History(resolution) => args.number(u64::from(match resolution {
            Resolution::Minutes => resolution::MINUTES,
            Resolution::Hours => resolution::HOURS,
            _ => return Err(unsupported("this resolution")),
        })),
        Op::Check(check) | Op::Repair(check) => {
            args.count(check.limit);
            args.position(check.after);
        }
        _ => return Err(unsupported(op.name())),
    }
    Ok(args.0)
}

struct Arguments(Vec<Bytes>);

impl Arguments {
    fn bytes(&mut self, bytes: &Bytes) {
        self.0.push(bytes.clone());
    }

    fn copied(&mut self, bytes: &[u8]) {
        self.0.push(Bytes::copy_from_slice(bytes));
    }

    fn number(&mut self, value: u64) {
        self.0.push(number(value));
    }

    fn count(&mut self, value: usize) {
        self.0.push(value.to_string().into());
    }

    fn packed(&mut self, put: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = Vec::with_capacity(24);
        put(&mut bytes);
        self.0.push(bytes.into());
    }

    fn holds<'a>(
        &mut self,
        claims_next: bool,
        settlements: impl IntoIterator<Item = &'a Settlement>,
    ) -> Result<(), Error> {
        let mut bytes = Vec::with_capacity(24);
        // Number 0 is no hold: it says that the caller claims next.
        if claims_next {
            put_hold(&mut bytes, 0, 0, Schedule::NOW);
        }
        for (number, item) in (1..).zip(settlements) {
            match item.hold {
                None => {}
                Some(Hold::Queue(until)) => put_hold(&mut bytes, number, 0, until),
                Some(Hold::Group(until)) => put_hold(&mut bytes, number, 1, until),
                Some(_) => return Err(unsupported("this hold")),
            }
        }
        self.0.push(bytes.into());
        Ok(())
    }

    fn claim(&mut self, claim: &Claim) {
        self.bytes(claim.consumer.as_bytes());
        self.copied(claim.claim_id.as_bytes());
        self.count(claim.max);
        self.number(claim.lease.as_ms());
        if claim.several_in_order {
            self.number(1);
        }
    }

    fn limits(&mut self, set: &SetLimits) {
        for most in [set.leased, set.each_group] {
            match most {
                Change::Keep => self.0.push(Bytes::new()),
                Change::Remove => self.number(0),
                Change::Set(most) => self.number(most.into()),
            }
        }
        match set.in_order {
            None => self.0.push(Bytes::new()),
            Some(in_order) => self.number(in_order.into()),
        }
        match set.rate {
            Change::Keep => self.0.extend([Bytes::new(), Bytes::new(), Bytes::new()]),
            Change::Remove => [0; 3].into_iter().for_each(|none| self.number(none)),
            Change::Set(rate) => {
                let per = u64::try_from(rate.per().as_millis()).unwrap_or(u64::MAX);
                let numbers = [rate.count.into(), per, rate.burst.into()];
                numbers.into_iter().for_each(|value| self.number(value));
            }
        }
        match set.hold {
            Change::Keep => self.0.push(Bytes::new()),
            Change::Remove => {
                self.packed(|bytes| put_schedule(bytes, Schedule::At(Timestamp::MIN)));
            }
            Change::Set(until) => self.packed(|bytes| put_schedule(bytes, until)),
        }
    }

    fn each<'a, T: 'a>(
        &mut self,
        items: impl IntoIterator<Item = &'a T>,
        encode: impl Fn(&T) -> Result<Bytes, Error>,
    ) -> Result<(), Error> {
        items.into_iter().try_for_each(|item| {
            self.0.push(encode(item)?);
            Ok(())
        })
    }

    fn position(&mut self, position: Option<Position>) {
        if let Some(position) = position {
            self.number(u64::from(position.index));
            self.number(position.instant.as_ms());
            // In two halves, because Lua's numbers cannot hold 64 bits exactly.
            self.number(position.sequence >> 32);
            self.number(position.sequence & u64::from(u32::MAX));
        }
    }
}

fn number(value: u64) -> Bytes {
    value.to_string().into()
}

fn encode_settlement(item: &Settlement) -> Result<Bytes, Error> {
    let other_than_ack = match &item.outcome {
        Outcome::Ack => None,
        Outcome::Retry { schedule, error } => Some((kind::RETRY, *schedule, error.as_str())),
        Outcome::Undecodable { schedule, error } => {
            Some((kind::UNDECODED, *schedule, error.as_str()))
        }
        Outcome::Snooze { schedule } => Some((kind::SNOOZE, *schedule, "")),
        Outcome::Release => Some((kind::RELEASE, Schedule::NOW, "")),
        Outcome::Reject { error } => Some((kind::REJECT, Schedule::NOW, error.as_str())),
        _ => return Err(unsupported("this outcome")),
    };
    let mut bytes = Vec::with_capacity(settlement::BYTES);
    put_lease(&mut bytes, item.lease);
    if let Some((kind, schedule, error)) = other_than_ack {
        settlement::KIND.put(&mut bytes, kind.into());
        put_schedule(&mut bytes, schedule);
        let mut saved = Vec::new();
        item.save.iter().for_each(|save| put_save(&mut saved, save));
        settlement::SAVE_LENGTH.put(&mut bytes, saved.len() as u64);
        bytes.put_slice(&saved);
        bytes.put_slice(error.as_bytes());
    }
    Ok(bytes.into())
}

fn put_save(bytes: &mut Vec<u8>, item: &Save) {
    let Save { number, progress, checkpoint, .. } = item;
    let bit = |is_set, bit| if is_set { bit } else { 0 };
    let parts =
        bit(progress.is_some(), part::PROGRESS) | bit(checkpoint.is_some(), part::CHECKPOINT);
    let (permille, text) =
        progress.as_ref().map_or((0, ""), |progress| (progress.permille, progress.text.as_str()));
    save::NUMBER.put(bytes, *number);
    save::PARTS.put(bytes, parts.into());
    save::PROGRESS.put(bytes, permille.into());
    save::TEXT_LENGTH.put(bytes, text.len() as u64);
    bytes.put_slice(text.as_bytes());
    bytes.put_slice(checkpoint.as_deref().unwrap_or_default());
}

fn put_hold(bytes: &mut Vec<u8>, number: u64, of_group: u64, until: Schedule) {
    hold::SETTLEMENT.put(bytes, number);
    hold::OF_GROUP.put(bytes, of_group);
    put_schedule(bytes, until);
}

fn put_carried(bytes: &mut Vec<u8>, item: &HandOff) {
    hand_off::COUNT.put(bytes, item.messages.len() as u64);
    let retention_ms = item.result.as_ref().map_or(0, |result| result.retention.as_ms());
    hand_off::RETENTION.put(bytes, retention_ms);
}

/// Returns the code of a status in the scripts.
fn status_code(status: Status) -> Result<u8, Error> {
    Ok(match status {
        Status::Scheduled => status::SCHEDULED,
        Status::Ready => status::READY,
        Status::Leased => status::LEASED,
        Status::Dead => status::DEAD,
        Status::Acked => status::ACKED,
        Status::Cancelled => status::CANCELLED,
        Status::Purged => status::PURGED,
        Status::Relayed => status::RELAYED,
        Status::Replaced => status::REPLACED,
        _ => return Err(unsupported("this status")),
    })
}
