//! Whole runs of the model.

use delayline_core::limits::MAX_PAGE;
use delayline_core::{Check, Op, Reply, State, Timestamp};
use delayline_testkit::{Trace, workload};

/// Reads the bytes as a run and carries it out on the model.
///
/// # Panics
///
/// The model panics, an invariant does not hold after a step, the model's audit finds something,
/// or the run's text does not read back.
pub fn trace(data: &[u8]) {
    let trace = workload::trace_from_bytes(data);
    let mut state = State::new();
    for (step, number) in trace.steps.iter().zip(1..) {
        // A backend refuses these.
        if step.op.validate().is_err() {
            continue;
        }
        let before = state.clone().apply(step.at, &Op::Stats).revision;
        let applied = state.apply(step.at, &step.op);
        let wrong = |what: &str| -> ! { panic!("step {number}: {what}\n{trace}") };
        if !(before..=before + 1).contains(&applied.revision) {
            wrong("the revision jumped");
        }
        if let Err(what) = state.check_invariants() {
            wrong(&what);
        }
        if let Some(finding) = audit(&mut state, step.at) {
            wrong(&finding);
        }
    }
    let text = trace.to_string();
    match text.parse::<Trace>() {
        Ok(again) => assert_eq!(again, trace),
        Err(error) => panic!("{error}\n{text}"),
    }
}

fn audit(state: &mut State, now: Timestamp) -> Option<String> {
    let mut after = None;
    loop {
        let page = Op::Check(Check::new(MAX_PAGE).after(after));
        let Reply::Check(checked) = state.apply(now, &page).reply else {
            return Some("the audit was answered with something else".to_owned());
        };
        if let Some(finding) = checked.findings.first() {
            return Some(format!("{finding:?}"));
        }
        after = checked.next;
        after?;
    }
}
