//! Operations whose futures are dropped.

use tokio::runtime::Runtime;

use crate::clients::only_client;
use crate::limits::{CASES_A_DROP, MOST_POLLS};
use crate::oracle::differential_dropping;
use crate::settings::Settings;
use crate::{Fixture, Trace, workload};

/// Drops the last operation of random sequences. Panics if the queue is then neither as before it
/// nor as after it.
pub(crate) fn dropped_operations_are_whole(
    runtime: &Runtime,
    fixture: &dyn Fixture,
    settings: Settings,
) {
    let runs = (workload::moves(), 1..=MOST_POLLS);
    settings.check(STREAM, CASES_A_DROP, &runs, |(moves, polls)| {
        let mut trace = workload::trace(&moves);
        while trace.steps.pop_if(|step| step.op.is_read_only()).is_some() {}
        run(runtime, fixture, &trace, polls)
    });
}

fn run(runtime: &Runtime, fixture: &dyn Fixture, trace: &Trace, polls: u32) -> Result<(), String> {
    runtime.block_on(async {
        let queue = only_client(fixture).await.map_err(|error| format!("no queue: {error}"))?;
        let verdict = differential_dropping(&*queue, trace, polls).await;
        verdict.map_err(|divergence| {
            format!(
                "the last operation was dropped after {polls} polls, and was not executed \
                 completely or not at all: {divergence}"
            )
        })
    })
}

/// Different from those of the other random trials.
const STREAM: u64 = 5;
