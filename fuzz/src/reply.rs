//! Replies of scripts.

mod pieces;

use arbitrary::Unstructured;
use delayline_core::{
    Check, Claim, ClaimId, ConsumerName, Destination, DestinationKey, ErrorKind, Extend, HandOff,
    HandedOff, Lease, List, MessageId, Millis, NewMessage, NewResult, Op, Outcome, Redrive, Relay,
    Reply, Reschedule, Resolution, Schedule, SetLimits, Settled, Settlement, Status,
};
use delayline_redis_protocol::{Value, decode};

/// Reads the bytes as an operation and a reply to it, and decodes the reply.
///
/// # Panics
///
/// Decoding panics, answers another operation, or fails in another way than it says.
pub fn reply(data: &[u8]) {
    let mut data = Unstructured::new(data);
    let (Ok(kind), Ok(count)) = (data.arbitrary(), data.arbitrary()) else { return };
    let op = operation(kind, count);
    let Ok(value) = pieces::reply(&mut data) else { return };
    check(&op, value);
}

fn check(op: &Op, value: Value) {
    match decode(op, value) {
        Ok(applied) => {
            assert!(answers(op, &applied.reply), "{op:?} is answered by {applied:?}");
            // Whatever can be decoded can be printed.
            let _ = format!("{applied:?}");
        }
        Err(error) => assert!(is_of_a_reply(error.kind()), "{error:?}"),
    }
}

/// Whether a reply that makes no sense may fail with this.
pub(crate) const fn is_of_a_reply(kind: &ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Protocol
            | ErrorKind::Damaged
            | ErrorKind::WrongType
            | ErrorKind::NewerVersion { .. }
            | ErrorKind::OlderVersion { .. }
            | ErrorKind::NewerFeature { .. }
            | ErrorKind::Upgrading { .. }
    )
}

/// Whether the reply is the operation's, with as many items.
fn answers(op: &Op, reply: &Reply) -> bool {
    match (op, reply) {
        (Op::Enqueue(items), Reply::Enqueue(results)) => items.len() == results.len(),
        (Op::Settle(items), Reply::Settle(results)) => items.len() == results.len(),
        (Op::HandOff(items), Reply::HandOff(results)) => {
            let fits = |(item, result): (&HandOff, &HandedOff)| match result.settled {
                Settled::Done { .. } => item.messages.len() == result.messages.len(),
                _ => result.messages.is_empty(),
            };
            items.len() == results.len() && items.iter().zip(results).all(fits)
        }
        (Op::Extend(extend), Reply::Extend(results)) => extend.leases.len() == results.len(),
        (Op::Cancel(ids), Reply::Cancel(results)) => ids.len() == results.len(),
        (Op::Reschedule(items), Reply::Reschedule(results)) => items.len() == results.len(),
        (Op::Redrive(redrive), Reply::Redrive(results)) => redrive.ids.len() == results.len(),
        (Op::Purge(ids), Reply::Purge(results)) => ids.len() == results.len(),
        (Op::Get(ids), Reply::Get(results)) => ids.len() == results.len(),
        (Op::Progress(ids), Reply::Progress(results)) => (1..=ids.len()).contains(&results.len()),
        (Op::Claim(_), Reply::Claim(_))
        | (Op::Relay(_), Reply::Relay(_))
        | (Op::Pause, Reply::Pause { .. })
        | (Op::Resume, Reply::Resume { .. })
        | (Op::SetLimits(_), Reply::SetLimits { .. })
        | (Op::List(_), Reply::List(_))
        | (Op::Stats, Reply::Stats(_))
        | (Op::Forecast(_), Reply::Forecast(_))
        | (Op::History(_), Reply::History(_))
        | (Op::Check(_), Reply::Check(_))
        | (Op::Repair(_), Reply::Repair(_)) => true,
        _ => false,
    }
}

/// An operation of 1 to 8 items. Decoding looks at nothing of it but its kind, the number of its
/// items, the length of a lease and a claim's id.
fn operation(kind: u8, count: u8) -> Op {
    let ids = || (0..=count % 8).map(|id| MessageId::new(vec![id]).expect("an id of one byte"));
    let lease = Lease { claim_id: ClaimId::from_bytes([7; ClaimId::BYTES]), epoch: 1 };
    let settlements = || ids().map(|id| Settlement::new(id, lease, Outcome::Ack));
    let consumer = ConsumerName::new("w").expect("a name of one byte");
    let claim = Claim::new(consumer.clone(), lease.claim_id, 10, Millis::MAX);
    match kind % 21 {
        20 => Op::SetLimits(SetLimits::new()),
        18 => Op::Progress(ids().collect()),
        0 => Op::Enqueue(ids().map(|id| NewMessage::new(id, "")).collect()),
        1 => Op::Claim(claim),
        2 => Op::Settle(settlements().collect()),
        3 => Op::Extend(Extend::new(ids().map(|id| (id, lease)).collect(), Millis::MAX)),
        4 => Op::Cancel(ids().collect()),
        5 => Op::Reschedule(ids().map(|id| Reschedule::new(id, Schedule::NOW)).collect()),
        6 => Op::Redrive(Redrive::new(ids().collect(), Schedule::NOW)),
        7 => Op::Purge(ids().collect()),
        8 => Op::Pause,
        9 => Op::Resume,
        10 => Op::Get(ids().collect()),
        11 => Op::List(List::new(Status::Ready, 10)),
        12 => Op::Stats,
        13 => Op::Forecast((0..=u64::from(count % 8)).map(Millis::saturating).collect()),
        14 => Op::Check(Check::new(10)),
        15 => {
            let key = DestinationKey::new("k").expect("a key of one byte");
            Op::Relay(Relay::new(Destination::List { key, max_len: None }, 10))
        }
        16 => Op::Repair(Check::new(10)),
        17 => Op::HandOff(
            ids()
                .map(|id| {
                    let follow_up = [id.as_bytes(), &b"f"[..]].concat();
                    let follow_up = MessageId::new(follow_up).expect("an id of two bytes");
                    let settlement = Settlement::new(id, lease, Outcome::Ack);
                    let result = NewResult::new("", Millis::saturating(1));
                    let result = count.is_multiple_of(2).then_some(result);
                    HandOff::new(settlement, vec![NewMessage::new(follow_up, "")])
                        .with_result(result)
                })
                .collect(),
        ),
        _ => Op::History(if count.is_multiple_of(2) {
            Resolution::Minutes
        } else {
            Resolution::Hours
        }),
    }
}
