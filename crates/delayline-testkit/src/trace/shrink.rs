//! Reduces a failing trace to the steps needed to fail.

use std::time::{Duration, Instant};

use delayline_core::{Extend, Op, Redrive};

use super::{Step, Trace};

impl Trace {
    /// Returns a smaller trace that still fails, without unneeded steps and batch items. Stops
    /// trying after `patience`.
    pub(crate) fn shrunk(mut self, patience: Duration, fails: impl Fn(&Self) -> bool) -> Self {
        let begin = Instant::now();
        let mut progress = true;
        while std::mem::take(&mut progress) {
            // From the end, because everything after the failure goes at once.
            for n in (0..self.steps.len()).rev() {
                let candidates = std::iter::once(self.without_step(n)).chain(self.without_items(n));
                for candidate in candidates.collect::<Vec<_>>() {
                    if begin.elapsed() > patience {
                        return self;
                    }
                    if fails(&candidate) {
                        self = candidate;
                        progress = true;
                        break;
                    }
                }
            }
        }
        self
    }

    fn without_step(&self, n: usize) -> Self {
        let mut steps = self.steps.clone();
        steps.remove(n);
        Self { steps }
    }

    /// The traces in which the n-th step has one item fewer.
    fn without_items(&self, n: usize) -> impl Iterator<Item = Self> {
        let Step { at, op } = &self.steps[n];
        let smaller = (0..items(op)).filter_map(|item| without_item(op, item));
        smaller.map(move |op| {
            let mut steps = self.steps.clone();
            steps[n] = Step { at: *at, op };
            Self { steps }
        })
    }
}

const fn items(op: &Op) -> usize {
    match op {
        Op::Enqueue(items) => items.len(),
        Op::Settle(items) => items.len(),
        Op::HandOff(items) => items.len(),
        Op::Extend(extend) => extend.leases.len(),
        Op::Reschedule(items) => items.len(),
        Op::Redrive(redrive) => redrive.ids.len(),
        Op::Cancel(ids) | Op::Purge(ids) | Op::Get(ids) | Op::Progress(ids) => ids.len(),
        _ => 0,
    }
}

fn without_item(op: &Op, n: usize) -> Option<Op> {
    Some(match op {
        Op::Enqueue(items) => Op::Enqueue(without(items, n)?),
        Op::Settle(items) => Op::Settle(without(items, n)?),
        Op::HandOff(items) => Op::HandOff(without(items, n)?),
        Op::Extend(extend) => Op::Extend(Extend::new(without(&extend.leases, n)?, extend.lease)),
        Op::Reschedule(items) => Op::Reschedule(without(items, n)?),
        Op::Redrive(redrive) => {
            Op::Redrive(Redrive::new(without(&redrive.ids, n)?, redrive.schedule))
        }
        Op::Cancel(ids) => Op::Cancel(without(ids, n)?),
        Op::Purge(ids) => Op::Purge(without(ids, n)?),
        Op::Get(ids) => Op::Get(without(ids, n)?),
        Op::Progress(ids) => Op::Progress(without(ids, n)?),
        _ => return None,
    })
}

/// The other items; `None` if there are none.
fn without<T: Clone>(items: &[T], n: usize) -> Option<Vec<T>> {
    let mut items = items.to_vec();
    items.remove(n);
    (!items.is_empty()).then_some(items)
}
