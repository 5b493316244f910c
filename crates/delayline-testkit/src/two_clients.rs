//! Two clients of one queue: each must see at once what the other has done.

use tokio::runtime::Runtime;

use crate::clients::Clients;
use crate::fixture::Lacks;
use crate::limits::CASES_A_PAIR;
use crate::oracle::differential_of_two;
use crate::settings::Settings;
use crate::{Fixture, Trace, workload};

/// Why a trial is ignored.
const ONE_CLIENT: Lacks = Lacks("`Fixture::another` returns `None`: a queue has one client");

/// Deals random sequences out to two clients. Panics if they differ from the model.
pub(crate) fn random_ops(
    runtime: &Runtime,
    fixture: &dyn Fixture,
    settings: Settings,
) -> Result<(), Lacks> {
    probe(runtime, fixture)?;
    settings.check(STREAM, CASES_A_PAIR, &workload::moves(), |moves| {
        run(runtime, fixture, &workload::trace(&moves))
    });
    Ok(())
}

/// Deals a trace out to two clients. Panics if they differ from the model.
pub(crate) fn replay(runtime: &Runtime, fixture: &dyn Fixture, text: &str) -> Result<(), Lacks> {
    probe(runtime, fixture)?;
    let trace: Trace = text.parse().unwrap_or_else(|error| panic!("not a trace: {error}"));
    run(runtime, fixture, &trace).unwrap_or_else(|reason| panic!("{reason}"));
    Ok(())
}

fn run(runtime: &Runtime, fixture: &dyn Fixture, trace: &Trace) -> Result<(), String> {
    runtime.block_on(async {
        let clients = Clients::fresh(fixture).await;
        let clients = clients.map_err(|error| format!("no queue: {error}"))?;
        let verdict = differential_of_two(&clients, trace).await;
        verdict.map_err(|divergence| format!("with two clients in turns, {divergence}"))
    })
}

/// Whether a queue can have two clients.
fn probe(runtime: &Runtime, fixture: &dyn Fixture) -> Result<(), Lacks> {
    let clients = runtime.block_on(Clients::fresh(fixture));
    let clients = clients.unwrap_or_else(|error| panic!("no queue: {error}"));
    if clients.second().is_some() { Ok(()) } else { Err(ONE_CLIENT) }
}

/// Different from those of the other random trials.
const STREAM: u64 = 4;
