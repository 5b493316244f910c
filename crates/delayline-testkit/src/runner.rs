//! The suite as a test program.

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Completion, Trial};
use tokio::runtime::Runtime;

use crate::cases::Case;
use crate::clients::Clients;
use crate::fixture::Lacks;
use crate::settings::Settings;
use crate::{Fixture, cases, faults, histories, random, regressions, reopen, two_clients};

/// Runs the whole suite on a backend. Call it from `main` in a test target with `harness = false`.
///
/// Accepts the arguments of any Rust test program: a filter, `--list`, `--exact` and so on. `name`
/// identifies the backend in the output.
///
/// `DELAYLINE_CASES` sets the number of random sequences ([`Fixture::random_cases`] if unset),
/// `DELAYLINE_SEED` their seed (a new one if unset; it is printed).
#[must_use]
pub fn main(name: &str, fixture: impl Fixture) -> ExitCode {
    run(vec![(name, String::new(), fixture)])
}

/// Like [`main`], for several ways to a backend in one program: pairs of the way's name, which the
/// names of its trials begin with (`cluster::differential::random_ops`), and its fixture.
#[must_use]
pub fn main_of_ways<F: Fixture>(ways: Vec<(&str, F)>) -> ExitCode {
    run(ways.into_iter().map(|(way, fixture)| (way, format!("{way}::"), fixture)).collect())
}

/// Runs the suites of named fixtures, whose trials have a prefix.
fn run<F: Fixture>(fixtures: Vec<(&str, String, F)>) -> ExitCode {
    let arguments = Arguments::from_args();
    let runtime = match Runtime::new() {
        Ok(runtime) => Arc::new(runtime),
        Err(error) => return give_up(&error.to_string()),
    };
    let mut trials = Vec::new();
    for (name, prefix, fixture) in fixtures {
        let settings = match Settings::from_env(fixture.random_cases()) {
            Ok(settings) => settings,
            Err(reason) => return give_up(&reason),
        };
        if !arguments.list {
            println!("conformance of {name}: {settings}");
        }
        let suite = Suite::new(Arc::clone(&runtime), fixture, settings);
        trials.extend(suite.trials().into_iter().map(|NamedTrial { name, ignored, run }| {
            let run = move || match run() {
                Verdict::Passed => Ok(Completion::Completed),
                Verdict::Ignored(reason) => Ok(Completion::ignored_with(reason)),
            };
            Trial::ignorable_test(format!("{prefix}{name}"), run).with_ignored_flag(ignored)
        }));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Returns the trials by name, which may run in any order and repeatedly, for programs that test
/// the suite itself. They fail by panicking; failures are not minimised.
#[doc(hidden)]
pub fn trials<F: Fixture>(
    runtime: Arc<Runtime>,
    fixture: F,
    cases: u32,
    seed: u64,
) -> Vec<(String, Box<dyn Fn() + Send + Sync>)> {
    let settings = Settings { cases, seed, cuts_down: false };
    let trials = Suite::new(runtime, fixture, settings).trials().into_iter();
    trials
        .filter(|trial| !trial.ignored)
        .map(|trial| -> (String, Box<dyn Fn() + Send + Sync>) {
            let run = move || {
                let (Verdict::Passed | Verdict::Ignored(_)) = (trial.run)();
            };
            (trial.name, Box::new(run))
        })
        .collect()
}

fn give_up(reason: &str) -> ExitCode {
    eprintln!("the suite cannot run: {reason}");
    ExitCode::FAILURE
}

struct NamedTrial {
    name: String,
    ignored: bool,
    /// Fails by panicking.
    run: Box<dyn Fn() -> Verdict + Send + Sync>,
}

/// How a trial has ended, unless it has failed.
enum Verdict {
    Passed,
    /// The backend lacks the feature under test.
    Ignored(&'static str),
}

struct Suite<F> {
    runtime: Arc<Runtime>,
    fixture: Arc<F>,
    settings: Settings,
}

impl<F: Fixture> Suite<F> {
    fn new(runtime: Arc<Runtime>, fixture: F, settings: Settings) -> Self {
        Self { runtime, fixture: Arc::new(fixture), settings }
    }

    fn trials(&self) -> Vec<NamedTrial> {
        let settings = self.settings;
        let hints = self.fixture.hints();
        let mut trials: Vec<_> = cases::all()
            .into_iter()
            .map(|case| {
                let name = format!("cases::{}", case.name);
                let ignored = case.needs_hints && !hints;
                let run = move |runtime: &Runtime, fixture: &F| run_case(runtime, fixture, &case);
                NamedTrial { ignored, ..self.trial(name, run) }
            })
            .collect();
        trials.push(self.trial("differential::random_ops", move |runtime, fixture| {
            random::random_ops(runtime, fixture, settings);
        }));
        trials.push(self.trial("histories::concurrent_clients", move |runtime, fixture| {
            histories::concurrent(runtime, fixture, settings);
        }));
        trials.push(self.trial(
            "faults::retries_are_safe (G8, G15, G16)",
            move |runtime, fixture| {
                faults::retries_are_safe(runtime, fixture, settings);
            },
        ));
        trials.push(self.trial(
            "faults::retries_after_drops_are_safe (G3, G8, G15, G16)",
            move |runtime, fixture| {
                faults::retries_after_drops_are_safe(runtime, fixture, settings);
            },
        ));
        trials.push(self.trial(
            "faults::dropped_operations_are_whole (G3)",
            move |runtime, fixture| {
                faults::dropped_operations_are_whole(runtime, fixture, settings);
            },
        ));
        trials.extend(regressions::ALL.iter().map(|(name, text)| {
            self.trial(format!("regressions::{name}"), |runtime, fixture| {
                random::replay(runtime, fixture, text);
            })
        }));
        trials.push(self.optional("two_clients::random_ops", move |runtime, fixture| {
            two_clients::random_ops(runtime, fixture, settings)
        }));
        trials.extend(regressions::ALL.iter().map(|(name, text)| {
            self.optional(format!("two_clients::{name}"), |runtime, fixture| {
                two_clients::replay(runtime, fixture, text)
            })
        }));
        trials.push(self.optional("reopen::random_ops", move |runtime, fixture| {
            reopen::random_ops(runtime, fixture, settings)
        }));
        trials.extend(regressions::ALL.iter().map(|(name, text)| {
            self.optional(format!("reopen::{name}"), |runtime, fixture| {
                reopen::replay(runtime, fixture, text)
            })
        }));
        trials.retain(|trial| self.fixture.wants(&trial.name));
        trials
    }

    /// A trial of something that not every backend has.
    fn optional(
        &self,
        name: impl Into<String>,
        run: impl Fn(&Runtime, &F) -> Result<(), Lacks> + Send + Sync + 'static,
    ) -> NamedTrial {
        let (runtime, fixture) = (Arc::clone(&self.runtime), Arc::clone(&self.fixture));
        let run = Box::new(move || match run(&runtime, &*fixture) {
            Ok(()) => Verdict::Passed,
            Err(Lacks(what)) => Verdict::Ignored(what),
        });
        NamedTrial { name: name.into(), ignored: false, run }
    }

    fn trial(
        &self,
        name: impl Into<String>,
        run: impl Fn(&Runtime, &F) + Send + Sync + 'static,
    ) -> NamedTrial {
        let (runtime, fixture) = (Arc::clone(&self.runtime), Arc::clone(&self.fixture));
        let run = Box::new(move || {
            run(&runtime, &*fixture);
            Verdict::Passed
        });
        NamedTrial { name: name.into(), ignored: false, run }
    }
}

#[allow(clippy::panic, reason = "a trial fails by a panic")]
fn run_case(runtime: &Runtime, fixture: &dyn Fixture, case: &Case) {
    runtime.block_on(async {
        let clients = Clients::fresh(fixture).await;
        let clients = clients.unwrap_or_else(|error| panic!("no queue: {error}"));
        let case_time = fixture.case_time();
        let run = tokio::time::timeout(case_time, case.run(clients)).await;
        assert!(run.is_ok(), "it did not end within {case_time:?}");
    });
}
