//! Operations for clients that use a moving clock.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use delayline_core::{Applied, Change, Millis, Op, Redrive, Reschedule, Schedule};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, TestRng, TestRunner};

use super::{Action, Ledger, action, start};

/// Generates operations one by one, for any number of clients of one queue. They use each other's
/// leases and repeat each other, because it learns from their results.
pub struct Improviser {
    memory: Mutex<Memory>,
    rates: bool,
}

struct Memory {
    runner: TestRunner,
    /// The next actions, in reverse. Generated many at a time: the strategy cannot be kept, because
    /// it is not `Send`.
    actions: Vec<Action>,
    ledger: Ledger,
}

impl Improviser {
    /// Creates an improviser, determined by `chance` and by the replies that it gets.
    #[must_use]
    pub fn new(chance: TestRng) -> Self {
        let runner = TestRunner::new_with_rng(Config::default(), chance);
        let memory = Memory { runner, actions: Vec::new(), ledger: Ledger::default() };
        Self { memory: Mutex::new(memory), rates: false }
    }

    /// Also sets rates. The clients must pass the time: a server counts by microseconds, and its
    /// replies have milliseconds only, so the model could not follow.
    #[must_use]
    pub fn with_rates(mut self) -> Self {
        self.rates = true;
        self
    }

    /// Returns the next operation, which is within the limits.
    #[must_use]
    pub fn next(&self) -> Op {
        let mut memory = self.memory();
        loop {
            let Some(action) = memory.actions.pop() else {
                memory.prepare();
                continue;
            };
            let op = soon(memory.ledger.concrete(&action), self.rates);
            if op.validate().is_ok() {
                return op;
            }
        }
    }

    /// Learns from a result.
    pub fn observe(&self, op: &Op, applied: &Applied) {
        self.memory().ledger.observe(applied.at, op, &applied.reply);
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory {
    fn prepare(&mut self) {
        let action = action();
        // The generator rejects nothing, so there is always a tree.
        let tree = |_| action.new_tree(&mut self.runner).map(|tree| tree.current()).ok();
        self.actions = (0..PREPARED).filter_map(tree).collect();
    }
}

impl fmt::Debug for Improviser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Improviser").finish_non_exhaustive()
    }
}

/// Returns the same operation with the instants of random runs turned into short delays.
fn soon(op: Op, rates: bool) -> Op {
    let start = start();
    let soon = |schedule| match schedule {
        Schedule::At(instant) if instant >= start && instant.since(start).as_secs() == 0 => {
            Schedule::In(Millis::try_from(instant.since(start)).unwrap_or_default())
        }
        other => other,
    };
    match op {
        Op::Enqueue(messages) => Op::Enqueue(
            messages
                .into_iter()
                .map(|message| {
                    let (schedule, expires) = (soon(message.schedule), message.expires.map(soon));
                    message.schedule(schedule).expires(expires)
                })
                .collect(),
        ),
        Op::Reschedule(items) => Op::Reschedule(
            items.into_iter().map(|item| Reschedule::new(item.id, soon(item.schedule))).collect(),
        ),
        Op::SetLimits(mut set) => {
            if let Change::Set(_) = set.rate
                && !rates
            {
                set.rate = Change::Keep;
            }
            if let Change::Set(until) = set.hold {
                set.hold = Change::Set(soon(until));
            }
            Op::SetLimits(set)
        }
        Op::Redrive(redrive) => Op::Redrive(Redrive::new(redrive.ids, soon(redrive.schedule))),
        other => other,
    }
}

const PREPARED: usize = 256;
