//! What the server's account of an operation tells about the operation.

use std::collections::BTreeMap;

use bytes::Bytes;
use delayline_core::{
    Found, Known, MessageId, MessageState, Op, Position, Reply, State, Timestamp,
};
use delayline_redis_protocol::layout::place_of_score;

use crate::witness::words;

/// Where an operation has put messages.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// For each message that it touched, its score in the index afterwards; `None` if it is not there.
    places: BTreeMap<MessageId, Option<u64>>,
}

impl Effects {
    /// Reads them off a transaction's text.
    pub(crate) fn read(text: &[u8]) -> Self {
        let mut effects = Self::default();
        let mut position = 0;
        while let Some(command) = words(text, &mut position) {
            let [name, key, rest @ ..] = &command[..] else { continue };
            if !text[key.clone()].ends_with(b":index") {
                continue;
            }
            let word = |place: &std::ops::Range<usize>| &text[place.clone()];
            match word(name) {
                b"ZADD" => {
                    for pair in rest.chunks_exact(2) {
                        effects.note(word(&pair[1]), number(word(&pair[0])));
                    }
                }
                // A message that takes the place of another has its own entry before.
                b"ZREM" => rest.iter().for_each(|member| effects.note_gone(word(member))),
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
            Op::Claim(_) | Op::Relay(_) => !self.places.is_empty(),
            // An update may have left no more than a follower or its token.
            Op::Enqueue(items) => {
                let updates = items.iter().any(|item| item.known != Known::Refuse);
                updates && self.places.is_empty() || items.iter().any(|item| touched(&item.id))
            }
            Op::Settle(items) => items.iter().any(|item| touched(&item.id)),
            // Its claim may have touched any.
            Op::Turn(_) => !self.places.is_empty(),
            Op::HandOff(items) => items.iter().any(|item| {
                touched(&item.settlement.id) || item.messages.iter().any(|it| touched(&it.id))
            }),
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
            // The others touch none.
            _ => false,
        }
    }

    /// Whether a model has all touched messages in the same places.
    pub(crate) fn agree_with(&self, model: &mut State, now: Timestamp) -> bool {
        let ids: Vec<_> = self.places.keys().cloned().collect();
        let Reply::Get(found) = model.apply(now, &Op::Get(ids)).reply else { return false };
        self.places.values().zip(&found).all(|(told, found)| {
            let place = match found {
                Found::Live(message) => {
                    let info = &message.info;
                    let (band, instant) = match info.state {
                        MessageState::Scheduled | MessageState::Ready => {
                            (info.priority.level(), info.due)
                        }
                        MessageState::Leased { deadline, .. } => (Position::LEASED, deadline),
                        MessageState::Dead { since, .. } => (Position::DEAD, since),
                    };
                    Some((u64::from(band), instant.as_ms()))
                }
                Found::Finished(_) | Found::Unknown | Found::Unreadable => None,
            };
            told.map(place_of_score) == place
        })
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

/// The id behind the sequence number.
fn id_of(member: &[u8]) -> Option<MessageId> {
    member.get(8..).map(Bytes::copy_from_slice).and_then(|id| MessageId::new(id).ok())
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}
