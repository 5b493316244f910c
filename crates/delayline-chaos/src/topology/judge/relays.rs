//! Judges a queue whose messages are all relayed to a stream.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use bytes::Bytes;
use delayline_core::{
    Applied, Element, Enqueued, Found, MessageId, Op, Relayed, Reply, Status, Timestamp,
};

use super::{Loss, Seen, in_order, is_lossy, lives, story};
use crate::evidence::EntryId;
use crate::log::{Entry, Outcome};

/// An entry of a stream: its fields and their values.
pub(in crate::topology) type Words = Vec<Vec<u8>>;

/// An entry that a consumer has read while there were faults.
#[derive(Clone, Debug)]
pub(in crate::topology) struct Read {
    /// When the consumer received it.
    pub(in crate::topology) at: Duration,
    pub(in crate::topology) place: EntryId,
    pub(in crate::topology) words: Words,
}

/// Judges the calls to one queue by its stream. `stream` is the whole stream at the end, `reads`
/// has the entries that a consumer has read before, and `known` the messages that the queue knows
/// at the end.
///
/// # Errors
///
/// The first promise that was broken.
pub(in crate::topology) fn judge_relays(
    entries: &[Entry],
    losses: &[Loss],
    stream: &[(EntryId, Words)],
    reads: &[Read],
    known: &HashMap<MessageId, Found>,
    seen: &mut Seen,
) -> Result<(), String> {
    let sends = sends(entries);
    let relays = relays(entries, losses);
    let mut relayed = HashMap::new();
    let mut latest = 0;
    for (place, words) in stream {
        let element = sent_as(*place, words, &sends)?;
        let accused = |reason: String| format!("{reason}\n{}", story(entries, losses, element.id));
        let Arrival { id, due, .. } = element;
        if relayed.insert(id, due).is_some() {
            return Err(accused(format!("G28: {id} is twice in the stream")));
        }
        if due < latest {
            return Err(accused(format!("G12: {id} was relayed after what was due later")));
        }
        latest = due;
        let moved = relays.moved.get(id).into_iter().flatten();
        if let Some(at) = moved.map(|at| at.as_ms()).find(|&at| at < due) {
            return Err(accused(format!("G4: {id} is due at {due}, and was relayed at {at}")));
        }
        seen.relayed += 1;
    }
    let last: BTreeMap<_, _> = stream.iter().map(|(place, words)| (*place, words)).collect();
    for read in reads {
        let element = sent_as(read.place, &read.words, &sends)?;
        if last.get(&read.place) == Some(&&read.words) {
            continue;
        }
        // If the message is relayed again, the consumer gets it twice.
        if !relays.may_be_lost(element.id, read.at) {
            let id = element.id;
            return Err(format!(
                "G28: {read:?} is gone, and was relayed when nothing may be lost\n{}",
                story(entries, losses, id)
            ));
        }
        seen.taken_back += 1;
    }
    for (id, life) in &lives(entries, losses) {
        let is_relayed = relayed.contains_key(id);
        let accused = |reason| format!("{reason}: {id}\n{}", story(entries, losses, id));
        life.check(is_relayed, seen).map_err(accused)?;
        if is_relayed != matches!(known.get(id), Some(Found::Finished(Status::Relayed))) {
            let found = known.get(id);
            return Err(accused(format!("G28: in the stream: {is_relayed}, the queue: {found:?}")));
        }
        match relays.moved.get(id).map_or(0, Vec::len) {
            0 => {}
            1 if is_relayed => {}
            1 => return Err(accused("G28: it was relayed, and is not in the stream".to_owned())),
            _ => return Err(accused("G28: two relays have moved it".to_owned())),
        }
    }
    in_order(entries, losses, seen)
}

/// The sends under one id.
#[derive(Debug, Default)]
struct Sent<'a> {
    payloads: HashSet<&'a Bytes>,
    dues: HashSet<u64>,
    /// Whether the due time of a send is unknown, because its reply was lost.
    is_unknown: bool,
}

fn sends(entries: &[Entry]) -> HashMap<&MessageId, Sent<'_>> {
    let mut sends = HashMap::<_, Sent<'_>>::new();
    for entry in entries {
        let Op::Enqueue(messages) = &entry.op else { continue };
        for (n, message) in messages.iter().enumerate() {
            let sent = sends.entry(&message.id).or_default();
            sent.payloads.insert(&message.payload);
            match &entry.outcome {
                Outcome::Answered(Applied { reply: Reply::Enqueue(answers), .. }) => {
                    if let Some(Enqueued::Created { due }) = answers.get(n) {
                        sent.dues.insert(due.as_ms());
                    }
                }
                Outcome::Answered(_) | Outcome::NotExecuted(_) => {}
                Outcome::Unknown => sent.is_unknown = true,
            }
        }
    }
    sends
}

/// A message in the stream.
struct Arrival<'a> {
    id: &'a MessageId,
    due: u64,
}

/// Returns the message of an entry, after comparing it with the sent message.
fn sent_as<'a>(
    place: EntryId,
    words: &Words,
    sends: &HashMap<&'a MessageId, Sent<'_>>,
) -> Result<Arrival<'a>, String> {
    let shown = || words.iter().map(|word| word.escape_ascii().to_string()).collect::<Vec<_>>();
    let malformed = || format!("G28: {} is no entry of a message", shown().join(" "));
    let Streamed { id, due, others } = Streamed::read(words).ok_or_else(malformed)?;
    let id = MessageId::new(Bytes::copy_from_slice(id)).map_err(|_| malformed())?;
    let Some((id, sent)) = sends.get_key_value(&id) else {
        return Err(format!("G28: {id} was relayed, but never sent"));
    };
    let [name, payload] = others else { return Err(malformed()) };
    let is_sent = |payload: &Vec<u8>| sent.payloads.iter().any(|it| it[..] == payload[..]);
    if name != Element::PAYLOAD.as_bytes() || !is_sent(payload) {
        return Err(format!("G28: {} is not what was sent", shown().join(" ")));
    }
    if !sent.dues.contains(&due) && !sent.is_unknown {
        return Err(format!("G28: {id} was relayed as due at {due}, not at {:?}", sent.dues));
    }
    // A server names an entry by the time at which it adds it.
    if place.0 < due {
        return Err(format!("G4: {id} is due at {due}, and was in the stream at {}", place.0));
    }
    Ok(Arrival { id, due })
}

/// The message in an entry of a stream.
struct Streamed<'a> {
    id: &'a [u8],
    due: u64,
    /// The fields behind these two, and their values.
    others: &'a [Vec<u8>],
}

impl<'a> Streamed<'a> {
    /// Reads an entry, or returns `None` if it has no message.
    fn read(words: &'a [Vec<u8>]) -> Option<Self> {
        let [id_name, id, due_name, due, others @ ..] = words else { return None };
        let is_it = id_name == Element::ID.as_bytes() && due_name == Element::DUE.as_bytes();
        let due = std::str::from_utf8(due).ok()?.parse().ok()?;
        is_it.then_some(Self { id, due, others })
    }
}

/// The replies about relays.
struct Relays<'a> {
    /// When each message was moved by a call that must not be lost.
    moved: HashMap<&'a MessageId, Vec<Timestamp>>,
    /// The times of calls that may be lost, with their moved messages if they were answered.
    lossy: Vec<(Duration, Option<&'a Relayed>)>,
}

fn relays<'a>(entries: &'a [Entry], losses: &[Loss]) -> Relays<'a> {
    let mut relays = Relays { moved: HashMap::new(), lossy: Vec::new() };
    for entry in entries.iter().filter(|entry| matches!(entry.op, Op::Relay(_))) {
        match &entry.outcome {
            Outcome::Answered(Applied { at, reply: Reply::Relay(relayed), .. }) => {
                if is_lossy(entry, losses) {
                    relays.lossy.push((entry.called, Some(relayed)));
                    continue;
                }
                for id in &relayed.ids {
                    relays.moved.entry(id).or_default().push(*at);
                }
            }
            // It may have been executed on a server that was lost, however late its caller gave up.
            Outcome::Unknown if losses.iter().any(|loss| loss.concerns(entry)) => {
                relays.lossy.push((entry.called, None));
            }
            _ => {}
        }
    }
    relays
}

impl Relays<'_> {
    /// Returns whether a relay that may be lost can have moved a message before an instant.
    fn may_be_lost(&self, id: &MessageId, before: Duration) -> bool {
        self.lossy.iter().any(|(called, relayed)| {
            *called < before && relayed.is_none_or(|relayed| relayed.ids.contains(id))
        })
    }
}

#[cfg(test)]
mod tests;
