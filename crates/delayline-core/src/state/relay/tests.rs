//! Relays on the model.

use super::*;
use crate::{
    Claim, ClaimId, ConsumerName, Destination, Millis, NewMessage, Op, Priority, Reply, Schedule,
};

fn at(ms: u64) -> Timestamp {
    Timestamp::from_ms(1_000_000 + ms).unwrap()
}

fn key() -> DestinationKey {
    DestinationKey::try_from("to").unwrap()
}

fn enqueue(state: &mut State, ms: u64, name: &str, delay: u64) {
    let mut message = NewMessage::new(MessageId::try_from(name).unwrap(), name.to_owned());
    message.schedule = Schedule::In(Millis::saturating(delay));
    if name.starts_with("urgent") {
        message.priority = Priority::Urgent;
    }
    state.apply(at(ms), &Op::Enqueue(vec![message]));
}

fn relay(state: &mut State, ms: u64, max: usize, max_len: Option<u64>) -> Relayed {
    let op = Op::Relay(Relay { to: Destination::List { key: key(), max_len }, max });
    op.validate().unwrap();
    let before = state.revision;
    let applied = state.apply(at(ms), &op);
    assert_eq!(state.check_invariants(), Ok(()));
    let Reply::Relay(relayed) = applied.reply else { panic!("{applied:?}") };
    let changed = !relayed.ids.is_empty() || !relayed.deaths.is_empty();
    assert!(applied.revision - before == u64::from(changed) || relayed.ids.is_empty());
    relayed
}

fn ids(relayed: &Relayed) -> Vec<String> {
    relayed.ids.iter().map(ToString::to_string).collect()
}

#[test]
fn expired_leases_are_taken_back_for_the_next_relay() {
    let mut state = State::new();
    enqueue(&mut state, 0, "held", 0);
    let claim = Claim::new(
        ConsumerName::new("w").unwrap(),
        ClaimId::from_bytes([1; 16]),
        1,
        Millis::saturating(10),
    );
    state.apply(at(0), &Op::Claim(claim));
    enqueue(&mut state, 0, "free", 0);
    assert_eq!(relay(&mut state, 9, 9, None).next, Some(at(10)));
    let taken_back = relay(&mut state, 10, 9, None);
    assert_eq!((ids(&taken_back).len(), taken_back.more), (0, true));
    assert_eq!(ids(&relay(&mut state, 10, 9, None)), ["held"]);
    assert_eq!(state.take_relayed(&key()).len(), 2);
}
