//! What the server's account of an operation tells about the operation.

use std::collections::BTreeMap;

use bytes::Bytes;
use delayline_core::{Found, MessageId, MessageState, Op, Reply, State, Timestamp};

use crate::witness::words;

/// Where an operation has put messages.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// For each message that it touched, the indexes it was put into, with the score there, and
    /// those it was taken out of.
    places: BTreeMap<MessageId, BTreeMap<Index, Option<u64>>>,
}

/// An index of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Index {
    Due,
    Leased,
    Dead,
}

impl Effects {
    /// Reads them off a transaction's text.
    pub(crate) fn read(text: &[u8]) -> Self {
        let mut effects = Self::default();
        let mut position = 0;
        while let Some(command) = words(text, &mut position) {
            let [name, key, rest @ ..] = &command[..] else { continue };
            let Some(index) = Index::of_key(&text[key.clone()]) else { continue };
            let word = |place: &std::ops::Range<usize>| &text[place.clone()];
            match word(name) {
                b"ZADD" => {
                    for pair in rest.chunks_exact(2) {
                        effects.note(word(&pair[1]), index, number(word(&pair[0])));
                    }
                }
                b"ZREM" => rest.iter().for_each(|member| effects.note(word(member), index, None)),
                _ => {}
            }
        }
        effects
    }

    /// Whether an operation can have had them: it touches messages that it names, if it names any.
    /// One that moves a message, or a deadline, to where it is already touches none.
    pub(crate) fn can_be_of(&self, op: &Op) -> bool {
        let touched = |id: &MessageId| self.places.contains_key(id);
        match op {
            Op::Claim(_) => !self.places.is_empty(),
            Op::Enqueue(items) => items.iter().any(|item| touched(&item.id)),
            Op::Settle(items) => items.iter().any(|item| touched(&item.id)),
            Op::Redrive(redrive) => redrive.ids.iter().any(touched),
            Op::Purge(ids) => ids.iter().any(touched),
            // What is only flagged stays in its place.
            Op::Cancel(ids) => self.places.is_empty() || ids.iter().any(touched),
            Op::Extend(extend) => {
                self.places.is_empty() || extend.leases.iter().any(|(id, _)| touched(id))
            }
            Op::Reschedule(items) => {
                self.places.is_empty() || items.iter().any(|item| touched(&item.id))
            }
            Op::Pause | Op::Resume => self.places.is_empty(),
            Op::Get(_) | Op::List(_) | Op::Stats | Op::Check(_) | Op::Repair(_) => false,
        }
    }

    /// Whether a model has all touched messages in the same places.
    pub(crate) fn agree_with(&self, model: &mut State, now: Timestamp) -> bool {
        let ids: Vec<_> = self.places.keys().cloned().collect();
        let Reply::Get(found) = model.apply(now, &Op::Get(ids)).reply else { return false };
        self.places.values().zip(&found).all(|(indexes, found)| {
            let told = indexes.iter().find_map(|(index, score)| Some((*index, (*score)?)));
            match found {
                Found::Live(message) => {
                    let info = &message.info;
                    let place = match info.state {
                        MessageState::Scheduled | MessageState::Ready => {
                            // The priority stands in front of the instant.
                            let level = u64::from(info.priority.level()) << 48;
                            (Index::Due, level + info.due.as_ms())
                        }
                        MessageState::Leased { deadline, .. } => (Index::Leased, deadline.as_ms()),
                        MessageState::Dead { since, .. } => (Index::Dead, since.as_ms()),
                    };
                    told == Some(place)
                }
                Found::Finished(_) | Found::Unknown | Found::Unreadable => told.is_none(),
            }
        })
    }

    fn note(&mut self, member: &[u8], index: Index, score: Option<u64>) {
        // The sequence number, and the id.
        let id = member.get(8..).map(Bytes::copy_from_slice).and_then(|id| MessageId::new(id).ok());
        if let Some(id) = id {
            self.places.entry(id).or_default().insert(index, score);
        }
    }
}

impl Index {
    fn of_key(key: &[u8]) -> Option<Self> {
        match key.rsplit(|byte| *byte == b':').next()? {
            b"due" => Some(Self::Due),
            b"leased" => Some(Self::Leased),
            b"dead" => Some(Self::Dead),
            _ => None,
        }
    }
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}
