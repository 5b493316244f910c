//! The suite tests backends; these test the suite: it accepts the model itself and finds defects
//! that were put in on purpose.

mod broken;
pub(crate) mod model;
mod stored;
mod wrong;

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use delayline_core::{Error, QueueBackend, QueueName};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use tokio::runtime::Runtime;

use self::broken::{Broken, Defect};
use self::model::{LostUpdates, Model, Named, TornByDrops};
use self::stored::{DEFECTS, Stored, Written};
use crate::limits::REOPEN_EVERY;
use crate::settings::Settings;
use crate::{Fault, Faulty, Fixture, Trace, differential, faults, histories, random, workload};

/// The number of random sequences within which every defect must show.
const SEQUENCES: usize = 1_000;

const SETTINGS: Settings = Settings { cases: 400, seed: 1, cuts_down: true };

/// A fixture from a function.
struct Fresh<F>(F);

#[async_trait]
impl<F: Fn() -> Arc<dyn QueueBackend> + Send + Sync + 'static> Fixture for Fresh<F> {
    async fn fresh(&self) -> Result<Arc<dyn QueueBackend>, Error> {
        Ok((self.0)())
    }
}

/// A fixture whose queues may have any number of clients, which share everything.
struct Shared<F>(F);

#[async_trait]
impl<F: Fixture> Fixture for Shared<F> {
    async fn fresh(&self) -> Result<Arc<dyn QueueBackend>, Error> {
        self.0.fresh().await
    }

    async fn another(
        &self,
        queue: &Arc<dyn QueueBackend>,
    ) -> Result<Option<Arc<dyn QueueBackend>>, Error> {
        Ok(Some(Arc::clone(queue)))
    }
}

#[tokio::test]
async fn random_sequences_find_every_defect() {
    let mut runner = TestRunner::deterministic();
    let moves = workload::moves();
    let mut missed = Vec::new();
    for &defect in Defect::ALL {
        let mut found = false;
        for _ in 0..SEQUENCES {
            let trace = workload::trace(&moves.new_tree(&mut runner).unwrap().current());
            let verdict = differential(&Broken::new(defect), &trace).await;
            if let Err(divergence) = &verdict {
                assert!(divergence.to_string().contains(&trace.to_string()), "{divergence}");
                found = true;
                break;
            }
        }
        if !found {
            missed.push(defect);
        }
    }
    assert!(missed.is_empty(), "not found in {SEQUENCES} sequences: {missed:?}");
}

#[test]
fn what_is_printed_of_a_failing_run_fails_again() {
    let runtime = Runtime::new().unwrap();
    let broken = || Broken::new(Defect::LeasesLastAMillisecondLonger);
    let fixture = Fresh(move || Arc::new(broken()) as _);
    let run = || random::random_ops(&runtime, &fixture, SETTINGS);
    let panic = std::panic::catch_unwind(AssertUnwindSafe(run)).unwrap_err();
    let text = panic.downcast::<String>().unwrap();
    let (_, trace) = text.split_once(".trace:\n").unwrap();
    let trace: Trace = trace.parse().unwrap();
    assert_eq!(trace.steps.len(), 2, "an enqueue and a claim are enough: {text}");
    assert!(runtime.block_on(differential(&broken(), &trace)).is_err());
}

#[tokio::test]
async fn traces_relay_to_the_destinations_of_their_queue() {
    let trace: Trace = crate::regressions::EVERY_OPERATION.parse().unwrap();
    for name in ["one", "another"] {
        let (name, relays) = (QueueName::new(name).unwrap(), Mutex::default());
        let queue = Named { name, model: Model::default(), relays };
        differential(&queue, &trace).await.unwrap();
        let relays = queue.relays.into_inner().unwrap();
        let suffix = format!("{{{}}}", queue.name);
        assert!(!relays.is_empty());
        assert!(relays.iter().all(|key| key.ends_with(&suffix)), "{relays:?}");
    }
}

#[test]
fn histories_of_the_model_are_in_order() {
    let runtime = Runtime::new().unwrap();
    histories::concurrent(&runtime, &Fresh(|| Arc::new(Model::default()) as _), SETTINGS);
}

#[test]
#[should_panic(expected = "round")]
fn histories_show_lost_updates() {
    let runtime = Runtime::new().unwrap();
    histories::concurrent(&runtime, &Fresh(|| Arc::new(LostUpdates::default()) as _), SETTINGS);
}

#[test]
#[should_panic(expected = "with these faults")]
fn faults_show_claims_that_cannot_be_repeated() {
    let runtime = Runtime::new().unwrap();
    let broken = Fresh(|| Arc::new(Broken::new(Defect::ClaimsAreNotRemembered)) as _);
    faults::retries_are_safe(&runtime, &broken, SETTINGS);
}

#[test]
fn drops_show_operations_that_are_torn() {
    let runtime = Runtime::new().unwrap();
    let torn = Fresh(|| Arc::new(TornByDrops::default()) as _);
    let run = || faults::dropped_operations_are_whole(&runtime, &torn, SETTINGS);
    let panic = std::panic::catch_unwind(AssertUnwindSafe(run)).unwrap_err();
    let text = panic.downcast::<String>().unwrap();
    assert!(text.contains("was not executed completely or not at all"), "{text}");
    // The settings of the run, although only some of its cases are dropped.
    assert!(text.starts_with(&format!("{SETTINGS}: ")), "{text}");
}

#[tokio::test]
async fn faults_strike_call_by_call() {
    use delayline_core::{At, Backend, ErrorClass, Op, Timestamp};
    let faulty = Faulty::new(Model::default(), [Fault::Before, Fault::After, Fault::Twice]);
    let pause = async || faulty.apply(At::Fixed(Timestamp::MIN), &Op::Pause).await;
    assert_eq!(pause().await.unwrap_err().class(), ErrorClass::NotExecuted);
    assert!(!faulty.inner().paused().await);
    assert_eq!(pause().await.unwrap_err().class(), ErrorClass::Ambiguous);
    assert!(faulty.inner().paused().await);
    assert_eq!(pause().await.unwrap().revision, 1);
    assert_eq!(pause().await.unwrap().revision, 1, "the schedule has ended");
}

/// The trials of these that fail.
fn failures(fixture: impl Fixture, wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let runtime = Arc::new(Runtime::new().unwrap());
    let trials = crate::trials(runtime, fixture, SETTINGS.cases, SETTINGS.seed);
    let trials = trials.into_iter().filter(|(name, _)| wanted(name));
    let failed = trials.filter(|(_, run)| std::panic::catch_unwind(AssertUnwindSafe(run)).is_err());
    failed.map(|(name, _)| name).collect()
}

/// The trials that open queues again and fail on a backend that writes this of each operation.
fn failed_reopenings(written: Written) -> Vec<String> {
    failures(Stored::new(written), |name| name.starts_with("reopen::"))
}

/// What shows clients that see nothing of each other.
const OF_TWO_CLIENTS: [&str; 9] = [
    "cases::dedup::of_many_at_once_one_creates (G14)",
    "histories::concurrent_clients",
    "faults::retries_are_safe (G8, G15, G16)",
    "two_clients::random_ops",
    "two_clients::every_operation",
    "two_clients::a_relay_ends_a_lease_in_order",
    "two_clients::memory_of_what_has_been",
    "two_clients::what_is_stored",
    "two_clients::what_is_stored_of_groups",
];

#[test]
fn clients_that_read_the_queue_only_once_are_found() {
    let read_once = Stored::new(|op| Some(op.clone()));
    assert_eq!(failures(read_once, |name| OF_TWO_CLIENTS.contains(&name)), OF_TWO_CLIENTS);
}

#[test]
fn clients_that_share_the_queue_pass() {
    let shared = Shared(Fresh(|| Arc::new(Model::default()) as _));
    assert_eq!(failures(shared, |name| OF_TWO_CLIENTS.contains(&name)), [""; 0]);
}

#[test]
fn a_backend_that_writes_everything_can_be_reopened() {
    assert_eq!(failed_reopenings(|op| Some(op.clone())), [""; 0]);
}

#[test]
fn each_trial_shows_a_backend_that_writes_nothing() {
    let trials = [
        "random_ops",
        "every_operation",
        "a_relay_ends_a_lease_in_order",
        "memory_of_what_has_been",
        "what_is_stored",
        "what_is_stored_of_groups",
    ];
    assert_eq!(failed_reopenings(|_| None), trials.map(|name| format!("reopen::{name}")));
}

#[test]
fn what_a_backend_does_not_write_is_missed_after_reopening() {
    for (defect, written) in DEFECTS {
        let failed = failed_reopenings(written);
        assert!(failed.iter().any(|name| name != "reopen::random_ops"), "{defect}: {failed:?}");
    }
}

/// The trace shows everything at once.
#[test]
fn the_trace_of_what_is_stored_has_all_of_it() {
    use delayline_core::{At, Backend, Completion, Op, Reply, Status};
    let trace = include_str!("../regressions/what_is_stored.trace").parse::<Trace>().unwrap();
    // The queue is opened again after these.
    let steps = &trace.steps[..3 * REOPEN_EVERY];
    let end = steps.last().unwrap().at;
    let model = Model::default();
    let mut ids = std::collections::BTreeSet::new();
    let apply = async |at, op: &Op| model.apply(At::Fixed(at), op).await.unwrap().reply;
    Runtime::new().unwrap().block_on(async {
        for step in steps {
            apply(step.at, &step.op).await;
            if let Op::Enqueue(messages) = &step.op {
                ids.extend(messages.iter().map(|message| message.id.clone()));
            }
        }
        let Reply::Stats(stats) = apply(end, &Op::Stats).await else { unreachable!() };
        assert!(stats.paused, "{stats:?}");
        for (status, count) in [
            (Status::Scheduled, stats.scheduled),
            (Status::Ready, stats.ready),
            (Status::Leased, stats.leased),
            (Status::Dead, stats.dead),
            (Status::Acked, stats.totals.acked),
            (Status::Cancelled, stats.totals.cancelled),
            (Status::Purged, stats.totals.purged),
            (Status::Relayed, stats.totals.relayed),
            (Status::Replaced, stats.totals.replaced),
            (Status::Dead, stats.totals.died_expired.min(stats.totals.died_max_crashes)),
        ] {
            assert!(count > 0, "there is none {status:?}: {stats:?}");
        }
        let progress = Op::Progress(ids.into_iter().collect());
        let Reply::Progress(progress) = apply(end, &progress).await else { unreachable!() };
        let finished = |wanted: Status| {
            progress.iter().any(|progress| {
                matches!(progress,
            Completion::Finished { status, .. } if *status == wanted)
            })
        };
        for status in [Status::Acked, Status::Cancelled, Status::Purged, Status::Relayed] {
            assert!(finished(status), "there is none {status:?}: {progress:?}");
        }
        assert!(progress.iter().any(|progress| progress.result().is_some()), "{progress:?}");
    });
}

/// The claims before the end of a group's wait do not get its message, and those after it do.
#[tokio::test]
async fn the_trace_of_groups_waits_for_their_ends() {
    use delayline_core::{At, Backend, Reply};
    let trace = include_str!("../regressions/what_is_stored_of_groups.trace");
    let trace: Trace = trace.parse().unwrap();
    let (model, mut claims) = (Model::default(), Vec::new());
    for step in &trace.steps {
        let reply = model.apply(At::Fixed(step.at), &step.op).await.unwrap().reply;
        if let Reply::Claim(claimed) = &reply {
            let ids =
                claimed.deliveries.iter().map(|delivery| delivery.message.info.id.to_string());
            claims.push(ids.collect::<Vec<_>>().join(" "));
        }
    }
    assert_eq!(claims, ["g1 h1 alone", "", "last", "", "g1", "", "h1", "", "g2 h2"]);
}
