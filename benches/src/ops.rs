//! A round: messages are enqueued, claimed and acked.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use delayline_core::{
    Claim, ClaimId, ConsumerName, Delivery, MessageId, Millis, NewMessage, Op, Outcome, Reply,
    Settlement,
};

/// Length of every payload, in bytes.
pub const PAYLOAD_BYTES: usize = 100;

static PAYLOAD: [u8; PAYLOAD_BYTES] = [b'p'; PAYLOAD_BYTES];

/// The number of the next id or claim id. None is used twice, because a queue remembers both for a
/// while.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Enqueues `count` new messages that are due at once.
///
/// # Panics
///
/// Never: the ids are within their limits.
#[must_use]
#[expect(clippy::expect_used, reason = "documented")]
pub fn enqueue(count: usize) -> Op {
    let message = |_| {
        let id = format!("message-{:012}", NEXT.fetch_add(1, Ordering::Relaxed));
        let id = MessageId::new(id).expect("an id of 20 bytes");
        NewMessage::new(id, Bytes::from_static(&PAYLOAD))
    };
    Op::Enqueue((0..count).map(message).collect())
}

/// Claims up to `max` messages, for 5 minutes.
///
/// # Panics
///
/// Never: the name is within its limits.
#[must_use]
#[expect(clippy::expect_used, reason = "documented")]
pub fn claim(max: usize) -> Op {
    let token = u128::from(NEXT.fetch_add(1, Ordering::Relaxed));
    Op::Claim(Claim::new(
        ConsumerName::new("worker").expect("a name of 6 bytes"),
        ClaimId::from_bytes(token.to_be_bytes()),
        max,
        Millis::saturating(300_000),
    ))
}

/// Returns the messages that a claim has leased.
///
/// # Panics
///
/// If there are not `expected` of them, or if `reply` belongs to another operation: the measurement
/// would be of something else.
#[track_caller]
#[must_use]
#[expect(clippy::panic, reason = "documented")]
pub fn deliveries(reply: &Reply, expected: usize) -> &[Delivery] {
    let Reply::Claim(claimed) = reply else { panic!("it is not the reply to a claim") };
    assert_eq!(claimed.deliveries.len(), expected, "a claim leased another number of messages");
    &claimed.deliveries
}

/// Acks all `deliveries`.
#[must_use]
pub fn ack(deliveries: &[Delivery]) -> Op {
    let settlement = |delivery: &Delivery| {
        Settlement::new(delivery.message.info.id.clone(), delivery.lease, Outcome::Ack)
    };
    Op::Settle(deliveries.iter().map(settlement).collect())
}
