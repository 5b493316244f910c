//! Histories that break the promise of relays.

use std::time::Duration;

use delayline_core::{
    Destination, DestinationKey, MessageId, Millis, NewMessage, Relay, Schedule, State, Timestamp,
};

use super::*;

/// Two relays of two messages each, as the model answers, and what a consumer takes of them.
struct History {
    order: Vec<Call>,
    moved: Vec<Moved>,
    taken: Vec<Taken>,
}

impl History {
    fn sound() -> Self {
        let to = DestinationKey::try_from("to").unwrap();
        let (mut state, mut order) = (State::new(), Vec::new());
        let mut call = |ms: u64, op: Op| {
            let applied = state.apply(Timestamp::from_ms(ms).unwrap(), &op);
            order.push(Call { called: Duration::ZERO, returned: Duration::ZERO, op, applied });
        };
        let message = |(name, delay): (&str, _)| {
            let message = NewMessage::new(MessageId::try_from(name).unwrap(), name.to_owned());
            message.schedule(Schedule::In(Millis::saturating(delay)))
        };
        let messages = [("a", 30), ("b", 10), ("c", 20), ("d", 40)].map(message);
        call(1_000, Op::Enqueue(messages.to_vec()));
        let to = Destination::Stream { key: to, backlog: None };
        for ms in [1_020, 1_039, 1_050] {
            call(ms, Op::Relay(Relay::new(to.clone(), 2)));
        }
        let moved =
            [(0, &[("b", 1_010), ("c", 1_020)][..]), (1, &[("a", 1_030)]), (1, &[("d", 1_040)])];
        let mut places = 1..;
        let mut put = |&(name, due): &(&str, u64)| Put {
            key: b"to".to_vec(),
            place: places.next().map(|place| (place, 0)),
            words: ["id", name, "due", &due.to_string(), "payload", name]
                .map(|word| word.as_bytes().to_vec())
                .into(),
        };
        let moved: Vec<_> = moved
            .map(|(era, elements)| Moved { era, elements: elements.iter().map(&mut put).collect() })
            .into();
        let took = |era: usize, put: &Put| Taken {
            era,
            place: put.place.unwrap(),
            words: put.words.clone(),
        };
        let taken =
            |one: &Moved| one.elements.iter().map(|put| took(one.era, put)).collect::<Vec<_>>();
        let taken = moved.iter().flat_map(taken).collect();
        Self { order, moved, taken }
    }

    fn check(&self) -> Result<(), String> {
        check(&self.order, &self.moved, &self.taken, 1)
    }
}

#[test]
fn a_sound_history_is_accepted() {
    assert_eq!(History::sound().check(), Ok(()));
}

#[test]
fn what_was_lost_with_the_end_of_an_era_is_the_consumers_alone() {
    let mut history = History::sound();
    let lost = Taken { era: 0, place: (2, 7), words: vec![b"lost".to_vec()] };
    history.taken.insert(2, lost.clone());
    assert_eq!(history.check(), Ok(()));
    // Later entries of the same era were lost, too.
    history.taken[2].place = (1, 7);
    assert!(history.check().unwrap_err().contains("which was never sent"));
    // Nothing was lost since.
    history.taken[2] = Taken { era: 1, ..lost };
    assert!(history.check().unwrap_err().contains("which was never sent"));
}

/// The verdict on a history that was sound before.
fn accused(change: impl FnOnce(&mut History)) -> String {
    let mut history = History::sound();
    change(&mut history);
    history.check().unwrap_err()
}

#[test]
fn a_message_is_relayed_once() {
    let twice = accused(|it| {
        let again = Put { place: Some((9, 0)), ..it.moved[0].elements[0].clone() };
        it.moved[2].elements.push(again);
    });
    assert!(twice.contains("b was relayed twice"), "{twice}");
    let never = accused(|it| drop(it.moved[0].elements.pop()));
    assert!(never.contains("c was never relayed"), "{never}");
    let unseen = accused(|it| drop(it.moved.pop()));
    assert!(unseen.contains("3 relays, and 2 in the file"), "{unseen}");
}

#[test]
fn relays_are_in_order_and_not_early() {
    let early = accused(|it| it.order[1].applied.at = Timestamp::from_ms(1_019).unwrap());
    assert!(early.contains("G4: c is due at 1020"), "{early}");
    let swapped = accused(|it| {
        let elements = &mut it.moved[0].elements;
        let words = elements[0].words.clone();
        elements[0].words = std::mem::replace(&mut elements[1].words, words);
    });
    assert!(swapped.contains("G12: b was relayed after"), "{swapped}");
    let before = accused(|it| it.moved[2].elements[0].place = Some((2, 9)));
    assert!(before.contains("d is not the last entry"), "{before}");
}

#[test]
fn the_consumer_has_each_entry_once_as_it_is() {
    let twice = accused(|it| it.taken.push(it.taken[3].clone()));
    assert!(twice.contains("twice"), "{twice}");
    let never = accused(|it| drop(it.taken.remove(1)));
    assert!(never.contains("has never had"), "{never}");
    let other = accused(|it| it.taken[3].words[5].push(b'!'));
    assert!(other.contains("d! for"), "{other}");
}
