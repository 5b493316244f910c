//! Queues that are closed and opened again: they must have everything that was acknowledged.

use proptest::collection::vec;
use tokio::runtime::Runtime;

use crate::fixture::Lacks;
use crate::limits::{CASES_A_REOPENING, MAX_REOPENINGS, REOPEN_EVERY};
use crate::oracle::differential_reopening;
use crate::reopenable::Reopenable;
use crate::settings::Settings;
use crate::workload::{self, MAX_MOVES};
use crate::{Fixture, Trace};

/// Why a trial is ignored.
const STORES_NOTHING: Lacks = Lacks("`Fixture::reopen` returns `None`: the backend stores nothing");

/// Opens the queue again on random sequences. Panics if it differs from the model.
pub(crate) fn random_ops(
    runtime: &Runtime,
    fixture: &dyn Fixture,
    settings: Settings,
) -> Result<(), Lacks> {
    probe(runtime, fixture)?;
    let runs = (workload::moves(), vec(0..MAX_MOVES, 0..=MAX_REOPENINGS));
    settings.check(REOPEN_STREAM, CASES_A_REOPENING, &runs, |(moves, before)| {
        run(runtime, fixture, &workload::trace(&moves), &before)
    });
    Ok(())
}

/// Opens the queue again now and then in a trace. Panics if it differs from the model.
pub(crate) fn replay(runtime: &Runtime, fixture: &dyn Fixture, text: &str) -> Result<(), Lacks> {
    probe(runtime, fixture)?;
    let trace: Trace = text.parse().unwrap_or_else(|error| panic!("not a trace: {error}"));
    let before: Vec<_> = (0..trace.steps.len()).step_by(REOPEN_EVERY).collect();
    run(runtime, fixture, &trace, &before).unwrap_or_else(|reason| panic!("{reason}"));
    Ok(())
}

fn run(
    runtime: &Runtime,
    fixture: &dyn Fixture,
    trace: &Trace,
    before: &[usize],
) -> Result<(), String> {
    let queue = runtime.block_on(Reopenable::fresh(fixture))?;
    let verdict = runtime.block_on(differential_reopening(&queue, trace, before));
    verdict.map_err(|divergence| {
        let steps: Vec<_> = before.iter().map(|number| number + 1).collect();
        format!("reopened before the steps {steps:?} and after the last one, {divergence}")
    })
}

/// Whether queues can be opened again.
fn probe(runtime: &Runtime, fixture: &dyn Fixture) -> Result<(), Lacks> {
    let reopened = runtime.block_on(async {
        let queue = fixture.fresh().await.unwrap_or_else(|error| panic!("no queue: {error}"));
        fixture.reopen(queue).await
    });
    match reopened {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(STORES_NOTHING),
        Err(error) => panic!("an empty queue cannot be reopened: {error}"),
    }
}

/// Different from those of the other random trials.
const REOPEN_STREAM: u64 = 3;
