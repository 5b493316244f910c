//! Compares the entries that a consumer has read from a stream with the relayed messages.

use std::collections::{BTreeMap, BTreeSet};

use delayline_core::{Element, Enqueued, Op, Reply};
use delayline_testkit::Call;

use crate::evidence::{EntryId, Put};

/// An entry as a consumer has read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) era: usize,
    pub(crate) place: EntryId,
    pub(crate) words: Vec<Vec<u8>>,
}

/// What one relay has put into destinations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) era: usize,
    pub(crate) elements: Vec<Put>,
}

/// Whether each message of a queue whose messages are all relayed was relayed once and in order,
/// and reached the consumer as it is. Only entries lost with the end of an era are known to the
/// consumer alone.
///
/// # Errors
///
/// The violations, beginning with the number of the guarantee.
pub(crate) fn check(
    order: &[Call],
    moved: &[Moved],
    taken: &[Taken],
    last_era: usize,
) -> Result<(), String> {
    let entries = entries(order, moved)?;
    let mut unread: BTreeSet<_> = entries.keys().copied().collect();
    let mut seen = BTreeSet::new();
    for one in taken {
        let what = || one.words.iter().map(|word| word.escape_ascii().to_string());
        let what = || what().collect::<Vec<_>>().join(" ");
        if !seen.insert(one.place) {
            return Err(format!("G28: the consumer had {} twice", what()));
        }
        match entries.get(&one.place) {
            Some((_, element)) if element.words == one.words => {
                unread.remove(&one.place);
            }
            Some((_, element)) => {
                return Err(format!("G28: the consumer had {} for {element:?}", what()));
            }
            // It was lost with all that came after it.
            None => {
                let mut later = entries.range(one.place..);
                if one.era >= last_era || later.any(|(_, (era, _))| *era <= one.era) {
                    return Err(format!("G28: the consumer had {}, which was never sent", what()));
                }
            }
        }
    }
    match unread.first() {
        Some(place) => Err(format!("G28: the consumer has never had {:?}", entries[place].1)),
        None => Ok(()),
    }
}

/// The entries that relays have put into the stream, in which each message is once.
fn entries<'a>(
    order: &[Call],
    moved: &'a [Moved],
) -> Result<BTreeMap<EntryId, (usize, &'a Put)>, String> {
    let (mut dues, mut relays) = (BTreeMap::new(), Vec::new());
    for Call { op, applied, .. } in order {
        match (op, &applied.reply) {
            (Op::Enqueue(messages), Reply::Enqueue(answers)) => {
                for (message, answer) in messages.iter().zip(answers) {
                    if let Enqueued::Created { due } = answer {
                        dues.insert(message.id.as_bytes(), due.as_ms());
                    }
                }
            }
            (_, Reply::Relay(relayed)) if !relayed.ids.is_empty() => relays.push(applied.at),
            _ => {}
        }
    }
    if relays.len() != moved.len() {
        return Err(format!("G28: {} relays, and {} in the file", relays.len(), moved.len()));
    }
    let mut entries = BTreeMap::new();
    for (one, at) in moved.iter().zip(relays) {
        let mut latest = 0;
        for element in &one.elements {
            let malformed = || format!("G28: {element:?} is no entry of a message");
            let Streamed { id, due, .. } = Streamed::read(&element.words).ok_or_else(malformed)?;
            let name = id.escape_ascii();
            if dues.remove(id) != Some(due) {
                return Err(format!("G28: {name} was relayed twice, or with another due time"));
            }
            if due > at.as_ms() {
                return Err(format!("G4: {name} is due at {due} and was relayed at {at}"));
            }
            if due < latest {
                return Err(format!("G12: {name} was relayed after what was due later"));
            }
            latest = due;
            let place = element.place.ok_or("G28: an entry of a stream has no id")?;
            if entries.last_key_value().is_some_and(|(last, _)| *last >= place) {
                return Err(format!("G28: {name} is not the last entry"));
            }
            entries.insert(place, (one.era, element));
        }
    }
    match dues.keys().next() {
        Some(id) => Err(format!("G28: {} was never relayed", id.escape_ascii())),
        None => Ok(entries),
    }
}

/// The message in an entry of a stream.
pub(crate) struct Streamed<'a> {
    pub(crate) id: &'a [u8],
    pub(crate) due: u64,
    /// The fields behind these two, and their values.
    pub(crate) others: &'a [Vec<u8>],
}

impl<'a> Streamed<'a> {
    /// Reads an entry, or returns `None` if it has no message.
    pub(crate) fn read(words: &'a [Vec<u8>]) -> Option<Self> {
        let [id_name, id, due_name, due, others @ ..] = words else { return None };
        let is_it = id_name == Element::ID.as_bytes() && due_name == Element::DUE.as_bytes();
        let due = std::str::from_utf8(due).ok()?.parse().ok()?;
        is_it.then_some(Self { id, due, others })
    }
}

#[cfg(test)]
mod tests;
