//! What can be done to messages.

use delayline::admin::{Purged, Redriven};
use delayline::backend::Schedule;
use delayline::backend::{Op, Reply};
use delayline::codec::Raw;
use delayline::{Bytes, Cancelled, MessageId, Queue, Rescheduled, Timestamp};

use crate::Role;
use crate::failure::Failure;

/// Something to be done to messages.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    Cancel,
    Reschedule(Schedule),
    Redrive(Schedule),
    Purge,
}

/// The outcome for one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// In a word, with `_` between its parts.
    pub(crate) word: &'static str,
    /// Whether it is the requested outcome.
    pub(crate) done: bool,
    /// When the message is due now.
    pub(crate) due: Option<Timestamp>,
}

impl Action {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Reschedule(_) => "reschedule",
            Self::Redrive(_) => "redrive",
            Self::Purge => "purge",
        }
    }

    pub(crate) const fn needs(self) -> Role {
        match self {
            Self::Cancel | Self::Reschedule(_) | Self::Redrive(_) => Role::Operator,
            Self::Purge => Role::Admin,
        }
    }

    fn op(self, ids: Vec<MessageId>) -> Op {
        match self {
            Self::Cancel => Op::Cancel(ids),
            Self::Reschedule(schedule) => {
                let item = |id| delayline::backend::Reschedule::new(id, schedule);
                Op::Reschedule(ids.into_iter().map(item).collect())
            }
            Self::Redrive(schedule) => Op::Redrive(delayline::backend::Redrive::new(ids, schedule)),
            Self::Purge => Op::Purge(ids),
        }
    }
}

/// Does something to messages, without a check of the role and without a line in the audit log.
pub(crate) async fn apply(
    queue: &Queue<Bytes, Raw>,
    ids: Vec<MessageId>,
    action: Action,
) -> Result<Vec<Outcome>, Failure> {
    outcomes(queue.apply(&action.op(ids)).await?.reply)
}

/// How many met which fate: `redriven 5, not_dead 1`.
pub(crate) fn summary(outcomes: &[Outcome]) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for outcome in outcomes {
        match counts.iter_mut().find(|(word, _)| *word == outcome.word) {
            Some((_, count)) => *count += 1,
            None => counts.push((outcome.word, 1)),
        }
    }
    counts.iter().map(|(word, count)| format!("{word} {count}")).collect::<Vec<_>>().join(", ")
}

fn outcomes(reply: Reply) -> Result<Vec<Outcome>, Failure> {
    let done = |word, due| Outcome { word, done: true, due };
    let other = |word| Outcome { word, done: false, due: None };
    Ok(match reply {
        Reply::Cancel(items) => items
            .into_iter()
            .map(|item| match item {
                Cancelled::Cancelled => done(item.name(), None),
                _ => other(item.name()),
            })
            .collect(),
        Reply::Reschedule(items) => items
            .into_iter()
            .map(|item| match item {
                Rescheduled::Done { due } => done(item.name(), Some(due)),
                _ => other(item.name()),
            })
            .collect(),
        Reply::Redrive(items) => items
            .into_iter()
            .map(|item| match item {
                Redriven::Done { due } => done(item.name(), Some(due)),
                _ => other(item.name()),
            })
            .collect(),
        Reply::Purge(items) => items
            .into_iter()
            .map(|item| match item {
                Purged::Purged => done(item.name(), None),
                _ => other(item.name()),
            })
            .collect(),
        _ => return Err(Failure::Protocol),
    })
}
