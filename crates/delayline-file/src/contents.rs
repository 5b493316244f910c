//! All queues of a directory, as its files say.

use std::collections::BTreeMap;

use delayline_core::{Op, QueueName, State, Timestamp};

use crate::clock::MAX_STEP_BACK_MS;
use crate::record::{Clock, Record};

/// All queues of a directory.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub(crate) queues: BTreeMap<u32, Stored>,
    /// The latest instant of the machine's clock.
    pub(crate) clock: Timestamp,
    /// The sequence number of the next frame.
    pub(crate) next: u64,
    /// Whether messages may have been handed out by claims that are lost.
    pub(crate) claims_lost: bool,
}

/// A queue.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) name: QueueName,
    pub(crate) state: State,
}

impl Stored {
    pub(crate) const fn new(name: QueueName, state: State) -> Self {
        Self { name, state }
    }
}

impl Contents {
    /// Does again what a record says.
    pub(crate) fn redo(&mut self, record: Record) -> Result<(), Unfit> {
        let unknown = |queue| Unfit::Record(format!("there is no queue {queue}"));
        match record {
            Record::Queue { queue, name } => {
                if self.queues.values().any(|stored| stored.name == name) {
                    return Err(Unfit::Record(format!("the queue {name} appears twice")));
                }
                if self.queues.insert(queue, Stored::new(name, State::new())).is_some() {
                    return Err(Unfit::Record(format!("the queue {queue} appears twice")));
                }
            }
            Record::Take { queue, key } => {
                let stored = self.queues.get_mut(&queue).ok_or_else(|| unknown(queue))?;
                stored.state.take_relayed(&key);
            }
            Record::Removed { queue } => {
                self.queues.remove(&queue).ok_or_else(|| unknown(queue))?;
            }
            Record::ClaimsLost { until } => self.skip_epochs(until),
            Record::Op { queue, at, clock, revision, op, may_be_lost } => {
                self.claims_lost |= may_be_lost;
                let stored = self.queues.get_mut(&queue).ok_or_else(|| unknown(queue))?;
                let found = stored.state.apply(at, &op).revision;
                if found != revision {
                    return Err(Unfit::Revision(format!(
                        "an operation ({}) on {} led to revision {revision}, and now to {found}",
                        op.name(),
                        stored.name
                    )));
                }
                if clock == Clock::Machine {
                    // It never goes back, unless the directory was opened with `accept_clock`.
                    let is_reset = self.clock.as_ms().saturating_sub(at.as_ms()) > MAX_STEP_BACK_MS;
                    self.clock = if is_reset { at } else { self.clock.max(at) };
                }
            }
        }
        Ok(())
    }

    /// Makes up for claims until then that may be lost.
    pub(crate) fn skip_epochs(&mut self, until: Timestamp) {
        self.queues.values_mut().for_each(|stored| stored.state.skip_epochs(until));
        self.claims_lost = false;
    }

    /// Returns the revision of a queue.
    pub(crate) fn revision(state: &mut State) -> u64 {
        state.apply(Timestamp::MIN, &Op::Get(Vec::new())).revision
    }
}

/// Why a record cannot be replayed.
pub(crate) enum Unfit {
    Record(String),
    /// The model does not do what the record says.
    Revision(String),
}
