//! Whether there is an order of the calls in which the model returns the same results.
//!
//! The revisions order the calls that changed something, and show between which of them the others
//! were executed. So the only thing to search for is the call that created each revision.

use std::collections::BTreeMap;
use std::time::Duration;

use delayline_core::{Applied, Op, State, Timestamp};

use super::call::Call;
use crate::divergence::{difference, show};
use crate::{Step, Trace};

/// Puts the calls into execution order.
pub(super) fn order(calls: &[Call]) -> Result<Vec<&Call>, String> {
    let mut groups = BTreeMap::<u64, Vec<&Call>>::new();
    for call in calls {
        groups.entry(call.applied.revision).or_default().push(call);
    }
    let (mut model, mut order) = (State::new(), Vec::with_capacity(calls.len()));
    let (mut latest_call, mut latest_at) = (Duration::ZERO, Timestamp::MIN);
    let mut expected = 0;
    for (revision, group) in groups {
        // Revision 0 is the empty queue; no call needs to have seen it.
        expected = if expected == 0 && revision == 1 { 1 } else { expected };
        if revision != expected {
            return Err(format!(
                "no call raised the revision to {expected}; the next one told is {revision}"
            ));
        }
        let (next, group) = step(&model, revision, group)
            .map_err(|reason| format!("{reason}\nafter these, in order:\n{}", tail(&order)))?;
        for call in &group {
            if call.returned < latest_call {
                return Err(format!(
                    "at revision {revision}: {} had its answer before an operation was asked that \
                     it comes after",
                    call.op.name()
                ));
            }
            if call.applied.at < latest_at {
                return Err(format!(
                    "at revision {revision}: the clock shows {}, and {latest_at} before",
                    call.applied.at
                ));
            }
        }
        // A call of an earlier group may have been sent after all of this one.
        latest_call = group.iter().map(|call| call.called).fold(latest_call, Duration::max);
        latest_at = group.iter().map(|call| call.applied.at).max().unwrap_or(latest_at);
        order.extend(group);
        model = next;
        expected = revision + 1;
    }
    Ok(order)
}

/// Returns the model at a revision and the calls that returned it, beginning with its creator.
fn step<'a>(
    model: &State,
    revision: u64,
    mut group: Vec<&'a Call>,
) -> Result<(State, Vec<&'a Call>), String> {
    group.sort_by_key(|call| (call.applied.at, call.called));
    if revision == 0 {
        return agrees(model, &group).map(|()| (model.clone(), group));
    }
    let mut reasons = Vec::new();
    for n in 0..group.len() {
        let mover = group[n];
        if mover.op.is_read_only() || matches!(mover.op, Op::Repair(_)) {
            continue;
        }
        let mut next = model.clone();
        let expected = next.apply(mover.applied.at, &mover.op);
        if expected != mover.applied {
            reasons.push(mismatch(mover, &expected));
            continue;
        }
        let mut rest = group.clone();
        rest.remove(n);
        if rest
            .iter()
            .any(|call| call.returned < mover.called || call.applied.at < mover.applied.at)
        {
            reasons.push(format!("{} came after what saw its effect", mover.op.name()));
            continue;
        }
        match agrees(&next, &rest) {
            Ok(()) => {
                rest.insert(0, mover);
                return Ok((next, rest));
            }
            Err(reason) => reasons.push(reason),
        }
    }
    let reasons = reasons.join("\nor: ");
    Err(format!("no call explains revision {revision}:\n{reasons}"))
}

/// Checks that the model returns the same results for read-only calls.
fn agrees(model: &State, calls: &[&Call]) -> Result<(), String> {
    for call in calls {
        let expected = model.clone().apply(call.applied.at, &call.op);
        if expected != call.applied {
            return Err(mismatch(call, &expected));
        }
    }
    Ok(())
}

fn mismatch(call: &Call, expected: &Applied) -> String {
    let difference = difference(&show(&Ok(expected.clone())), &show(&Ok(call.applied.clone())));
    format!("{}\n(- is the model's answer, + is the backend's)\n{difference}", step_of(call))
}

/// The most recent calls, as text.
fn tail(order: &[&Call]) -> String {
    let steps = order[order.len().saturating_sub(SHOWN)..].iter().map(|call| step_of(call));
    Trace { steps: steps.collect() }.to_string()
}

fn step_of(call: &Call) -> Step {
    Step { at: call.applied.at, op: call.op.clone() }
}

/// The number of calls shown before the failure.
const SHOWN: usize = 30;

#[cfg(test)]
mod tests {
    use delayline_core::{MessageId, NewMessage};

    use super::*;

    #[test]
    fn a_call_that_returned_before_one_of_any_earlier_revision_was_sent_is_found() {
        let enqueue = |id| Op::Enqueue(vec![NewMessage::new(MessageId::try_from(id).unwrap(), "")]);
        let times = [
            (enqueue("a"), 0, 1),
            (Op::Stats, 10, 11),
            (enqueue("b"), 0, 11),
            (enqueue("c"), 1, 5),
        ];
        let mut state = State::new();
        let calls = times.map(|(op, called, returned)| {
            let applied = state.apply(Timestamp::MIN, &op);
            let [called, returned] = [called, returned].map(Duration::from_secs);
            Call { called, returned, op, applied }
        });
        assert!(order(&calls[..3]).is_ok());
        let reason = order(&calls).unwrap_err();
        assert!(reason.starts_with("at revision 3: enqueue had its answer before"), "{reason}");
    }
}
