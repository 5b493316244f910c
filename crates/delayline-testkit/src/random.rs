//! Random sequences of operations, and sequences that once failed.

use proptest::test_runner::{TestCaseError, TestError};
use tokio::runtime::Runtime;

use crate::clients::only_client;
use crate::limits::SHRINK_TIME;
use crate::oracle::differential_of_one;
use crate::settings::Settings;
use crate::{Fixture, Trace, workload};

/// Compares the backend with the model on random sequences. Panics with the smallest that differs.
pub(crate) fn random_ops(runtime: &Runtime, fixture: &dyn Fixture, settings: Settings) {
    let outcome = settings.runner(0).run(&workload::moves(), |moves| {
        run(runtime, fixture, &workload::trace(&moves)).map_err(TestCaseError::fail)
    });
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(reason, _)) if !settings.cuts_down => panic!("{settings}: {reason}"),
        Err(TestError::Fail(reason, moves)) => {
            // The moves are minimal; the trace that they produce can often be reduced further.
            let trace = workload::trace(&moves);
            let fails = |trace: &Trace| run(runtime, fixture, trace).is_err();
            let trace = trace.shrunk(SHRINK_TIME, fails);
            let reason = run(runtime, fixture, &trace).err().unwrap_or_else(|| reason.to_string());
            panic!("{settings}: {reason}");
        }
        Err(TestError::Abort(reason)) => panic!("the generator gave up: {reason}"),
    }
}

/// Compares the backend with the model on one trace. Panics if they differ.
pub(crate) fn replay(runtime: &Runtime, fixture: &dyn Fixture, text: &str) {
    let trace: Trace = text.parse().unwrap_or_else(|error| panic!("not a trace: {error}"));
    run(runtime, fixture, &trace).unwrap_or_else(|reason| panic!("{reason}"));
}

fn run(runtime: &Runtime, fixture: &dyn Fixture, trace: &Trace) -> Result<(), String> {
    runtime.block_on(async {
        let queue = only_client(fixture).await.map_err(|error| format!("no queue: {error}"))?;
        differential_of_one(&*queue, trace).await.map_err(|divergence| divergence.to_string())
    })
}
