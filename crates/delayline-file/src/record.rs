//! The bodies of frames: what happened to which queue.

use delayline_core::{DestinationKey, Error, ErrorKind, Op, QueueName, Timestamp};
use serde::Serialize;

use crate::segment::Fields;

/// The most bytes of a body besides the operation and the name of a queue.
pub(crate) const BODY_HEAD: usize = 22;

/// A body that holds one small message, in bytes.
const USUAL_BODY: usize = 512;

/// What happened.
#[derive(Debug)]
pub(crate) enum Record {
    /// The queue with this number has this name.
    Queue { queue: u32, name: QueueName },
    /// An operation has changed a queue. `may_be_lost`: it is a claim whose messages may be handed
    /// out before it is durable.
    Op { queue: u32, at: Timestamp, clock: Clock, revision: u64, op: Op, may_be_lost: bool },
    /// A program has taken the relayed messages of a destination.
    Take { queue: u32, key: DestinationKey },
    /// The queue is no longer there.
    Removed { queue: u32 },
    /// Claims of messages that were due until then may have been lost, in all queues.
    ClaimsLost { until: Timestamp },
}

/// Where an instant comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    /// The clock of the machine, which never goes back.
    Machine,
    /// A test. It says nothing about the clock.
    Test,
}

const QUEUE: u8 = 1;
const OP: u8 = 2;
const OP_OF_TEST: u8 = 3;
const TAKE: u8 = 4;
const REMOVED: u8 = 5;
const CLAIMS_LOST: u8 = 6;

/// Added to the kind of a claim that may be lost.
const MAY_BE_LOST: u8 = 0x80;

pub(crate) fn queue(queue: u32, name: &QueueName) -> Vec<u8> {
    let mut body = vec![QUEUE];
    body.extend(queue.to_le_bytes());
    body.extend(name.as_str().as_bytes());
    body
}

pub(crate) fn take(queue: u32, key: &DestinationKey) -> Vec<u8> {
    let mut body = vec![TAKE];
    body.extend(queue.to_le_bytes());
    body.extend(key.as_bytes());
    body
}

pub(crate) fn removed(queue: u32) -> Vec<u8> {
    let mut body = vec![REMOVED];
    body.extend(queue.to_le_bytes());
    body
}

/// For all queues, so that none is named.
pub(crate) fn claims_lost(until: Timestamp) -> Vec<u8> {
    let mut body = vec![CLAIMS_LOST, 0, 0, 0, 0];
    body.extend(until.as_ms().to_le_bytes());
    body
}

/// An operation, with space in front for values that are known only once it was applied.
pub(crate) fn encode_op(op: &Op) -> Result<Vec<u8>, Error> {
    let mut body = Vec::with_capacity(USUAL_BODY);
    body.resize(BODY_HEAD - 1, 0);
    let mut serializer = rmp_serde::Serializer::new(&mut body).with_struct_map();
    op.serialize(&mut serializer).map_err(|error| {
        Error::with_detail(ErrorKind::Unsupported("the operation"), error.to_string())
    })?;
    Ok(body)
}

/// Completes an encoded operation.
pub(crate) fn stamp(body: &mut [u8], queue: u32, at: Timestamp, clock: Clock, revision: u64) {
    body[0] = if clock == Clock::Machine { OP } else { OP_OF_TEST };
    body[1..5].copy_from_slice(&queue.to_le_bytes());
    body[5..13].copy_from_slice(&at.as_ms().to_le_bytes());
    body[13..21].copy_from_slice(&revision.to_le_bytes());
}

/// Marks a stamped claim: its messages may be handed out before it is durable.
pub(crate) fn mark_may_be_lost(body: &mut [u8]) {
    body[0] |= MAY_BE_LOST;
}

/// Returns whether a body is marked so.
pub(crate) fn may_be_lost(body: &[u8]) -> bool {
    body.first().is_some_and(|kind| kind & MAY_BE_LOST != 0)
}

impl Record {
    pub(crate) fn decode(body: &[u8]) -> Result<Self, String> {
        let (&kind, rest) = body.split_first().ok_or("a record is empty")?;
        let mut fields = Fields(rest);
        let queue = fields.u32();
        let may_be_lost = may_be_lost(body);
        match kind & !MAY_BE_LOST {
            QUEUE => {
                let name = std::str::from_utf8(fields.0).map_err(|error| error.to_string())?;
                let name = QueueName::from_stored(name).map_err(|error| error.to_string())?;
                Ok(Self::Queue { queue, name })
            }
            TAKE => {
                let key = DestinationKey::new(fields.0.to_vec());
                Ok(Self::Take { queue, key: key.map_err(|error| error.to_string())? })
            }
            REMOVED => Ok(Self::Removed { queue }),
            CLAIMS_LOST => {
                let until = Timestamp::from_ms(fields.u64()).map_err(|error| error.to_string())?;
                Ok(Self::ClaimsLost { until })
            }
            kind @ (OP | OP_OF_TEST) => {
                let at = Timestamp::from_ms(fields.u64()).map_err(|error| error.to_string())?;
                let clock = if kind == OP { Clock::Machine } else { Clock::Test };
                let revision = fields.u64();
                let op = rmp_serde::from_slice(fields.0).map_err(|error| error.to_string())?;
                Ok(Self::Op { queue, at, clock, revision, op, may_be_lost })
            }
            _ => Err(format!("a record has the unknown kind {kind}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use delayline_core::{MessageId, Millis, NewMessage, Schedule};

    use super::*;
    use crate::segment::FRAME;

    #[test]
    fn an_enqueue_takes_at_most_150_bytes_besides_id_and_payload() {
        let id = MessageId::try_from("order-12345678901234").unwrap();
        let message = NewMessage::new(id.clone(), vec![0xff; 100])
            .schedule(Schedule::In(Millis::new(86_400_000).unwrap()));
        let mut body = encode_op(&Op::Enqueue(vec![message])).unwrap();
        stamp(&mut body, 1, Timestamp::MAX, Clock::Machine, u64::MAX);
        let overhead = body.len() + usize::try_from(FRAME).unwrap() - id.as_bytes().len() - 100;
        assert!(overhead <= 150, "{overhead}");
        let Ok(Record::Op { queue: 1, revision: u64::MAX, op, .. }) = Record::decode(&body) else {
            panic!("it is read as it was written")
        };
        assert!(matches!(&op, Op::Enqueue(messages) if messages[0].payload.len() == 100));
    }
}
