//! Relays on the model.

use super::*;
use crate::{
    Backlog, Claim, ClaimId, ConsumerName, Destination, GroupName, Millis, NewMessage, Op,
    Priority, Reply, Schedule,
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
fn due_messages_are_moved_in_order_and_once() {
    let mut state = State::new();
    for (name, delay) in [("b", 20), ("a", 10), ("urgent", 15), ("c", 30)] {
        enqueue(&mut state, 0, name, delay);
    }
    let early = relay(&mut state, 9, 10, None);
    assert_eq!((early.ids.len(), early.more, early.next), (0, false, Some(at(10))));
    let some = relay(&mut state, 20, 2, None);
    assert_eq!((ids(&some), some.more), (vec!["urgent".to_owned(), "a".to_owned()], true));
    let rest = relay(&mut state, 20, 2, None);
    assert_eq!((ids(&rest), rest.more, rest.next), (vec!["b".to_owned()], false, Some(at(30))));
    let elements = state.take_relayed(&key());
    let payloads: Vec<_> = elements.iter().map(|element| &element.payload[..]).collect();
    assert_eq!(payloads, [&b"urgent"[..], b"a", b"b"]);
    assert_eq!(elements[1].due, at(10));
    let Reply::Stats(stats) = state.apply(at(20), &Op::Stats).reply else { panic!() };
    assert_eq!((stats.totals.relayed, stats.scheduled, stats.ready), (3, 1, 0));
}

#[test]
fn a_full_destination_holds_messages_back_until_there_is_room() {
    let mut state = State::new();
    for n in 0..5 {
        enqueue(&mut state, 0, &format!("m{n}"), 0);
    }
    let first = relay(&mut state, 1, 10, Some(3));
    assert_eq!((first.ids.len(), first.more, first.held_back), (3, false, true));
    let full = relay(&mut state, 1, 10, Some(3));
    assert_eq!((full.ids.len(), full.held_back, full.next), (0, true, Some(at(0))));
    state.take_relayed(&key());
    let rest = relay(&mut state, 1, 10, Some(2));
    assert_eq!((rest.ids.len(), rest.held_back, rest.next), (2, false, None));
}

#[test]
fn a_stream_is_full_by_what_its_group_has_left() {
    let mut state = State::new();
    enqueue(&mut state, 0, "a", 0);
    enqueue(&mut state, 0, "b", 0);
    let backlog = Some(Backlog { group: GroupName::try_from("g").unwrap(), max: 1 });
    let to = Destination::Stream { key: key(), backlog };
    let Reply::Relay(relayed) = state.apply(at(1), &Op::Relay(Relay { to, max: 9 })).reply else {
        panic!()
    };
    assert_eq!((ids(&relayed), relayed.held_back), (vec!["a".to_owned()], true));
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

#[test]
fn a_paused_queue_relays_nothing() {
    let mut state = State::new();
    enqueue(&mut state, 0, "a", 0);
    state.apply(at(0), &Op::Pause);
    let paused = relay(&mut state, 1, 9, Some(1));
    assert_eq!((paused.ids.len(), paused.more, paused.held_back), (0, false, false));
    assert_eq!(paused.next, None);
}
