//! Streams that break the promise of relays.

use delayline_core::{
    Destination, DestinationKey, Error, ErrorKind, Millis, NewMessage, Relay, Schedule, State,
};

use super::super::tests::{entry, loss};
use super::*;

/// The replies that callers got, and the entries that a consumer of the stream has read.
struct History {
    entries: Vec<Entry>,
    losses: Vec<Loss>,
    stream: Vec<(EntryId, Words)>,
    reads: Vec<Read>,
    there: HashMap<MessageId, Found>,
}

fn id(name: &str) -> MessageId {
    MessageId::try_from(name.to_owned()).unwrap()
}

fn send(name: &str, delay_ms: u64) -> Op {
    let message = NewMessage::new(id(name), name.to_owned());
    Op::Enqueue(vec![message.schedule(Schedule::In(Millis::saturating(delay_ms)))])
}

fn relay() -> Op {
    let key = DestinationKey::try_from("to").unwrap();
    Op::Relay(Relay::new(Destination::Stream { key, backlog: None }, 10))
}

fn element(place: EntryId, name: &str, due: u64) -> (EntryId, Words) {
    let words = ["id", name, "due", &due.to_string(), "payload", name];
    (place, words.map(|word| word.as_bytes().to_vec()).into())
}

impl History {
    /// Two messages, each relayed by a separate call: sent at second 1, relayed at 5 and 7.
    fn sound() -> Self {
        let (mut state, mut entries) = (State::new(), Vec::new());
        let calls = [
            (1, send("a", 3_000)),
            (1, send("b", 5_000)),
            (3, relay()),
            (5, relay()),
            (7, relay()),
        ];
        for (second, op) in calls {
            let at = Timestamp::from_ms(1_000 * second).unwrap();
            let applied = state.apply(at, &op);
            entries.push(entry(second, &op, Outcome::Answered(applied)));
        }
        let relayed = Found::Finished(Status::Relayed);
        Self {
            entries,
            losses: Vec::new(),
            stream: vec![element((5_000, 0), "a", 4_000), element((7_000, 0), "b", 6_000)],
            reads: Vec::new(),
            there: [(id("a"), relayed.clone()), (id("b"), relayed)].into(),
        }
    }

    fn check(&self) -> Result<Seen, String> {
        let mut seen = Seen::default();
        let Self { entries, losses, stream, reads, there } = self;
        judge_relays(entries, losses, stream, reads, there, &mut seen).map(|()| seen)
    }

    fn read(&mut self, second: u64, (place, words): (EntryId, Words)) {
        self.reads.push(Read { at: Duration::from_secs(second), place, words });
    }

    /// The message is nowhere.
    fn lose(&mut self, name: &str) {
        self.there.remove(&id(name));
        self.stream.retain(|(_, words)| words[1] != name.as_bytes());
    }
}

/// The accusation against a history that was sound before.
fn accused(of: &str, change: impl FnOnce(&mut History)) {
    let mut history = History::sound();
    change(&mut history);
    let reason = history.check().unwrap_err();
    assert!(reason.starts_with(of), "{reason}");
}

#[test]
fn a_sound_history_is_accepted() {
    let mut history = History::sound();
    history.read(6, history.stream[0].clone());
    let seen = history.check().unwrap();
    assert_eq!((seen.relayed, seen.acknowledged, seen.lost, seen.taken_back), (2, 2, 0, 0));
    assert_eq!(seen.ordered, 5, "revisions are compared, too");
}

#[test]
fn an_acknowledged_message_arrives_unless_it_may_be_lost() {
    accused("G1: a message that was acknowledged is lost", |it| it.lose("b"));
    accused("G28: it was relayed, and is not in the stream", |it| {
        // The send may be lost, but not the relay, which came after it.
        it.lose("b");
        it.losses = vec![loss(1, 1, 2)];
    });
    let mut history = History::sound();
    history.lose("b");
    history.losses = vec![loss(1, 7, 8)];
    let seen = history.check().unwrap();
    assert_eq!((seen.relayed, seen.lost), (1, 1));
    history.losses = vec![loss(1, 7, 1)];
    assert!(history.check().is_err(), "believed too late");
}

#[test]
fn a_message_is_in_the_stream_once() {
    accused("G28: b is twice in the stream", |it| {
        it.stream.push(element((8_000, 0), "b", 6_000));
    });
    accused("G28: two relays have moved it", |it| {
        it.entries.push(Entry { called: Duration::from_secs(9), ..it.entries[4].clone() });
    });
}

#[test]
fn nothing_is_relayed_early_or_out_of_order() {
    accused("G4: a is due at 4000, and was in the stream at 3999", |it| {
        it.stream[0].0 = (3_999, 0);
    });
    accused("G4: a is due at 4000, and was relayed at 3000", |it| {
        let Outcome::Answered(applied) = &mut it.entries[3].outcome else { panic!("no answer") };
        applied.at = Timestamp::from_ms(3_000).unwrap();
    });
    accused("G12: a was relayed after", |it| it.stream.rotate_left(1));
}

#[test]
fn an_entry_is_what_was_sent() {
    accused("G28: id a due 4000 payload a! is not", |it| it.stream[0].1[5].push(b'!'));
    accused("G28: a was relayed as due at 4500", |it| it.stream[0].1[3] = b"4500".into());
    accused("G28: c was relayed, but never sent", |it| {
        it.stream.push(element((9_000, 0), "c", 8_000));
    });
    accused("G28: id a due 4000 is no entry", |it| it.stream[0].1.truncate(4));
    let mut history = History::sound();
    history.stream[0].1[3] = b"4500".into();
    history.entries.push(entry(2, &send("a", 3_500), Outcome::Unknown));
    assert!(history.check().is_ok(), "a send without an answer may have set the instant");
}

#[test]
fn the_queue_knows_what_is_in_the_stream() {
    accused("G28: in the stream: true, the queue: None", |it| {
        it.there.remove(&id("a"));
    });
    accused("G28: in the stream: true, the queue: Some(Finished(Acked))", |it| {
        it.there.insert(id("a"), Found::Finished(Status::Acked));
    });
    accused("G28: in the stream: false, the queue: Some(Finished(Relayed))", |it| {
        it.stream.pop();
        it.losses = vec![loss(1, 7, 8)];
    });
}

#[test]
fn what_was_not_executed_reaches_no_consumer() {
    let refused = || Outcome::NotExecuted(Error::new(ErrorKind::Unreachable));
    let sent = |it: &mut History| {
        it.entries.push(entry(2, &send("c", 0), refused()));
        // Its instant is then known to no caller.
        it.entries.push(entry(2, &send("a", 0), Outcome::Unknown));
    };
    let mut history = History::sound();
    sent(&mut history);
    assert_eq!(history.check().unwrap().not_executed, 1);
    accused("G28: c was relayed as due at", |it| {
        sent(it);
        it.stream.push(element((9_000, 0), "c", 8_000));
    });
}

#[test]
fn what_a_consumer_has_read_is_gone_only_if_its_relay_may_be_lost() {
    // The first relay of b was lost with its server, and the next one has moved it again.
    let read = element((6_100, 0), "b", 6_000);
    accused("G28: Read", |it| it.read(7, read.clone()));
    let mut history = History::sound();
    history.read(7, read);
    let mut lost = history.entries[4].clone();
    lost.called = Duration::from_secs(6);
    lost.returned = Some(lost.called + Duration::from_millis(100));
    history.entries.push(lost);
    history.losses = vec![loss(6, 6, 7)];
    assert_eq!(history.check().unwrap().taken_back, 1);
    history.entries[5].outcome = Outcome::Unknown;
    assert_eq!(history.check().unwrap().taken_back, 1, "no caller knows what it moved");
    history.reads[0].at = Duration::from_secs(6);
    assert!(history.check().is_err(), "read before it was relayed");
    history.reads[0].at = Duration::from_secs(7);
    history.losses.clear();
    assert!(history.check().is_err(), "nothing may be lost");
}

#[test]
fn revisions_do_not_go_back() {
    accused("G3", |it| {
        let mut old = it.entries[3].clone();
        if let Outcome::Answered(applied) = &mut old.outcome {
            applied.revision = 1;
        }
        old.called = Duration::from_secs(9);
        old.returned = Some(old.called);
        old.op = Op::Stats;
        it.entries.push(old);
    });
}
