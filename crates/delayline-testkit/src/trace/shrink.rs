//! Reduces a failing trace to the steps needed to fail.

use std::time::{Duration, Instant};

use delayline_core::Op;
use serde_json::Value;

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
        with_fewer_items(op).into_iter().map(move |op| {
            let mut steps = self.steps.clone();
            steps[n] = Step { at: *at, op };
            Self { steps }
        })
    }
}

/// For each item of an operation, the operation without it. One item at least stays.
fn with_fewer_items(op: &Op) -> Vec<Op> {
    let Ok(json) = serde_json::to_value(op) else { return Vec::new() };
    let without = |n| {
        let mut json = json.clone();
        items(&mut json)?.remove(n);
        serde_json::from_value(json).ok()
    };
    let count = items(&mut json.clone()).map_or(0, |items| items.len());
    if count > 1 { (0..count).filter_map(without).collect() } else { Vec::new() }
}

/// The items in `{"NAME":[...]}` or `{"NAME":{"FIELD":[...]}}`.
fn items(op: &mut Value) -> Option<&mut Vec<Value>> {
    match op.as_object_mut()?.values_mut().next()? {
        Value::Array(items) => Some(items),
        Value::Object(fields) => fields.values_mut().find_map(Value::as_array_mut),
        _ => None,
    }
}
