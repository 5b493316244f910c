//! Evidence about an operation in the server's account of it.

use std::collections::BTreeMap;

use bytes::Bytes;
use delayline_core::{
    Destination, DestinationKey, Element, Found, Known, MessageId, MessageState, Op, Position,
    Reply, State, Timestamp,
};
use delayline_redis_protocol::layout::{bytes_before_id, place_of_score};

use crate::witness::words;

/// Where an operation has put messages.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// For each message that it touched, its score in the index afterwards; `None` if it is not
    /// there.
    places: BTreeMap<MessageId, Option<u64>>,
    /// Elements that it has put into lists and streams outside of the queue, in order.
    elements: Vec<Put>,
}

/// The id of a stream's entry.
pub(crate) type EntryId = (u64, u64);

/// An element of a list, or an entry of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Put {
    pub(crate) key: Vec<u8>,
    /// For an entry.
    pub(crate) place: Option<EntryId>,
    /// The element, or the fields of the entry and their values.
    pub(crate) words: Vec<Vec<u8>>,
}

impl Put {
    fn is(&self, element: &Element, to: &Destination) -> bool {
        let is_entry = matches!(to, Destination::Stream { .. });
        let mut words = vec![element.payload.to_vec()];
        if is_entry {
            let due = element.due.as_ms().to_string();
            let fields = [(Element::ID, element.id.as_bytes()), (Element::DUE, due.as_bytes())];
            let fields = fields.map(|(name, value)| [name.as_bytes().to_vec(), value.to_vec()]);
            let payload = [Element::PAYLOAD.as_bytes().to_vec(), element.payload.to_vec()];
            words = fields.into_iter().chain([payload]).flatten().collect();
            for (name, value) in element.headers.iter() {
                words.extend([[Element::HEADER, name].concat().into_bytes(), value.to_vec()]);
            }
        }
        self.key == to.key().as_bytes()[..]
            && self.place.is_some() == is_entry
            && self.words == words
    }
}

impl Effects {
    /// Reads them off a transaction's text.
    pub(crate) fn read(text: &[u8]) -> Self {
        let mut effects = Self::default();
        let mut position = 0;
        while let Some(command) = words(text, &mut position) {
            let [name, key, rest @ ..] = &command[..] else { continue };
            let word = |place: &std::ops::Range<usize>| &text[place.clone()];
            let owned = |place: &std::ops::Range<usize>| word(place).to_vec();
            let (key, is_index) = (word(key), word(key).ends_with(b":index"));
            let is_destination = !key.starts_with(DestinationKey::RESERVED.as_bytes());
            match word(name) {
                b"RPUSH" if is_destination => {
                    let put = |it| Put { key: key.to_vec(), place: None, words: vec![owned(it)] };
                    effects.elements.extend(rest.iter().map(put));
                }
                b"XADD" if is_destination => {
                    let [place, words @ ..] = rest else { continue };
                    let (place, words) = (entry_id(word(place)), words.iter().map(owned).collect());
                    effects.elements.push(Put { key: key.to_vec(), place, words });
                }
                b"ZADD" if is_index => {
                    for pair in rest.chunks_exact(2) {
                        effects.note(word(&pair[1]), number(word(&pair[0])));
                    }
                }
                // A message that takes the place of another has its own entry before.
                b"ZREM" if is_index => {
                    rest.iter().for_each(|member| effects.note_gone(word(member)));
                }
                _ => {}
            }
        }
        effects
    }

    /// Whether an operation can have had them: it touches messages that it names, if it names any.
    /// One that moves a message, or a deadline, to where it is already touches none.
    pub(crate) fn can_be_of(&self, op: &Op) -> bool {
        let touched = |id: &MessageId| self.places.contains_key(id);
        if !self.elements.is_empty() {
            return matches!(op, Op::Relay(_));
        }
        match op {
            // Without a message, it may have caught up with the rate after a step of the clock.
            Op::Claim(_) | Op::Relay(_) => true,
            // An update may have left no more than a follower or its token.
            Op::Enqueue(items) => {
                let updates = items.iter().any(|item| item.known != Known::Refuse);
                updates && self.places.is_empty() || items.iter().any(|item| touched(&item.id))
            }
            Op::Settle(items) => items.iter().any(|item| touched(&item.id)),
            // Its claim may have touched any.
            Op::HandOff(items) => items.iter().any(|item| {
                touched(&item.settlement.id) || item.messages.iter().any(|it| touched(&it.id))
            }),
            Op::Redrive(redrive) => redrive.ids.iter().any(touched),
            Op::Purge(ids) => ids.iter().any(touched),
            // A message that is only flagged stays in its place.
            Op::Cancel(ids) => self.places.is_empty() || ids.iter().any(touched),
            Op::Extend(extend) => {
                self.places.is_empty() || extend.leases.iter().any(|(id, _)| touched(id))
            }
            Op::Reschedule(items) => {
                self.places.is_empty() || items.iter().any(|item| touched(&item.id))
            }
            Op::Pause | Op::Resume | Op::SetLimits(_) => self.places.is_empty(),
            Op::Get(_)
            | Op::Progress(_)
            | Op::List(_)
            | Op::Stats
            | Op::Forecast(_)
            | Op::History(_)
            | Op::Check(_)
            | Op::Repair(_) => false,
            // `Op` may gain operations: each says above what it touches.
            other => unreachable!("what can {} touch?", other.name()),
        }
    }

    /// Whether a model has all touched messages in the same places.
    pub(crate) fn agree_with(&self, model: &mut State, now: Timestamp) -> bool {
        let ids: Vec<_> = self.places.keys().cloned().collect();
        let Reply::Get(found) = model.apply(now, &Op::Get(ids)).reply else { return false };
        self.places.values().zip(&found).all(|(told, found)| {
            let told = told.map(place_of_score);
            let Found::Live(message) = found else { return told.is_none() };
            let info = &message.info;
            let is_at = |band: u8, instant: u64| told == Some((u64::from(band), instant));
            match (info.state, &info.group) {
                (MessageState::Leased { deadline, .. }, _) => {
                    is_at(Position::LEASED, deadline.as_ms())
                }
                (MessageState::Dead { since, .. }, _) => is_at(Position::DEAD, since.as_ms()),
                (_, None) => is_at(info.priority.level(), info.due.as_ms()),
                // No reply says whether it is in the lane of its group.
                (_, Some(group)) => {
                    is_at(Position::GROUPED, info.due.as_ms())
                        || is_at(Position::LANES, group.lane())
                }
            }
        })
    }

    /// Whether an operation that the model has just executed has put exactly its moved messages
    /// into destinations, unchanged and in order.
    pub(crate) fn agree_on_elements(&self, model: &State, op: &Op, reply: &Reply) -> bool {
        let (Op::Relay(relay), Reply::Relay(relayed)) = (op, reply) else {
            return self.elements.is_empty();
        };
        if relayed.ids.is_empty() {
            return self.elements.is_empty();
        }
        let all = model.clone().take_relayed(relay.to.key());
        let new = &all[all.len().saturating_sub(relayed.ids.len())..];
        self.elements.len() == new.len()
            && self.elements.iter().zip(new).all(|(put, element)| put.is(element, &relay.to))
    }

    /// Its elements in destinations.
    pub(crate) fn elements(&self) -> &[Put] {
        &self.elements
    }

    fn note(&mut self, member: &[u8], score: Option<u64>) {
        if let Some(id) = id_of(member) {
            self.places.insert(id, score);
        }
    }

    fn note_gone(&mut self, member: &[u8]) {
        if let Some(id) = id_of(member) {
            self.places.entry(id).or_insert(None);
        }
    }
}

/// The id of a member of the index.
fn id_of(member: &[u8]) -> Option<MessageId> {
    member
        .get(bytes_before_id(member)..)
        .map(Bytes::copy_from_slice)
        .and_then(|id| MessageId::new(id).ok())
}

pub(crate) fn entry_id(text: &[u8]) -> Option<EntryId> {
    let dash = text.iter().position(|byte| *byte == b'-')?;
    Some((number(&text[..dash])?, number(&text[dash + 1..])?))
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use delayline_core::{Millis, NewMessage, Relay, Schedule};

    use super::*;

    /// What a relay of two messages has written, and whether the model agrees.
    fn agrees(to: &Destination, commands: &[&[&str]]) -> bool {
        let (mut model, at) = (State::new(), |ms| Timestamp::from_ms(ms).unwrap());
        let message = |(id, due): (&str, u64)| {
            let mut message = NewMessage::new(MessageId::try_from(id).unwrap(), format!("is {id}"));
            message.headers.set("h", "v").unwrap();
            message.schedule(Schedule::In(Millis::saturating(due)))
        };
        model.apply(at(0), &Op::Enqueue([("a", 2), ("b", 1), ("c", 0)].map(message).to_vec()));
        // The existing elements.
        model.apply(at(0), &Op::Relay(Relay::new(to.clone(), 1)));
        let op = Op::Relay(Relay::new(to.clone(), 5));
        let reply = model.apply(at(2), &op).reply;
        let mut text = String::new();
        for words in commands {
            text += &format!("*{}\r\n", words.len());
            words.iter().for_each(|word| text += &format!("${}\r\n{word}\r\n", word.len()));
        }
        let effects = Effects::read(text.as_bytes());
        // No other operation puts anything anywhere.
        assert_eq!(
            effects.elements().is_empty(),
            effects.agree_on_elements(&model, &Op::Stats, &reply)
        );
        effects.agree_on_elements(&model, &op, &reply)
    }

    #[test]
    fn a_relay_puts_each_message_into_a_list_once_as_it_is() {
        let to = Destination::List { key: DestinationKey::try_from("to").unwrap(), max_len: None };
        assert!(agrees(&to, &[&["RPUSH", "to", "is b", "is a"]]));
        // The bell of the queue is none of it.
        let bell = &["RPUSH", "delayline:{q}:bell", "1"][..];
        assert!(agrees(&to, &[&["RPUSH", "to", "is b", "is a"], bell]));
        assert!(!agrees(&to, &[bell]));
        for elements in
            [&["is b"][..], &["is a", "is b"], &["is b", "is a", "is a"], &["is b", "is a "]]
        {
            assert!(!agrees(&to, &[&[&["RPUSH", "to"], elements].concat()]), "{elements:?}");
        }
        assert!(!agrees(&to, &[&["RPUSH", "elsewhere", "is b", "is a"]]));
    }

    #[test]
    fn a_relay_puts_each_message_into_a_stream_once_as_it_is() {
        let to =
            Destination::Stream { key: DestinationKey::try_from("to").unwrap(), backlog: None };
        let entry = |place, id, due, payload| {
            ["XADD", "to", place, "id", id, "due", due, "payload", payload, "header:h", "v"]
        };
        let (b, a) = (entry("7-0", "b", "1", "is b"), entry("7-1", "a", "2", "is a"));
        assert!(agrees(&to, &[&b, &a]));
        assert!(!agrees(&to, &[&a, &b]));
        assert!(!agrees(&to, &[&b]));
        assert!(!agrees(&to, &[&b, &a, &entry("7-2", "a", "2", "is a")]));
        assert!(!agrees(&to, &[&b, &entry("7-1", "a", "3", "is a")]));
        assert!(!agrees(&to, &[&b, &a[..9]]));
        assert!(!agrees(&to, &[&["RPUSH", "to", "is b", "is a"]]));
    }
}
