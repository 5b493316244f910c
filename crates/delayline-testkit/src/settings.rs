//! The settings of a run, from the environment.

use std::fmt;
use std::hash::{BuildHasher, RandomState};

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use crate::limits::SHRINK_TIME;

/// How much is tested, and the seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) cases: u32,
    pub(crate) seed: u64,
    /// Whether failures are minimised.
    pub(crate) cuts_down: bool,
}

impl Settings {
    /// Reads `DELAYLINE_CASES`, or else takes `cases`, and `DELAYLINE_SEED`; without the latter,
    /// each run has a new seed.
    pub(crate) fn from_env(cases: u32) -> Result<Self, String> {
        Ok(Self {
            cases: variable("DELAYLINE_CASES")?.unwrap_or(cases),
            seed: variable("DELAYLINE_SEED")?.unwrap_or_else(|| RandomState::new().hash_one(0)),
            cuts_down: true,
        })
    }

    /// The same seed with another number of cases.
    pub(crate) const fn with_cases(self, cases: u32) -> Self {
        Self { cases, ..self }
    }

    /// A runner whose randomness is derived from the seed and the stream's number.
    pub(crate) fn runner(self, stream: u64) -> TestRunner {
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&self.seed.to_be_bytes());
        seed[8..16].copy_from_slice(&stream.to_be_bytes());
        let config = Config {
            cases: self.cases,
            failure_persistence: None,
            max_shrink_time: u32::try_from(SHRINK_TIME.as_millis()).unwrap_or(u32::MAX),
            max_shrink_iters: if self.cuts_down { u32::MAX } else { 0 },
            ..Config::default()
        };
        TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed))
    }

    /// Tests random values: one per this many cases. Panics with the settings and the reason of a
    /// failure.
    pub(crate) fn check<S: Strategy>(
        self,
        stream: u64,
        cases_a_value: u32,
        values: &S,
        test: impl Fn(S::Value) -> Result<(), String>,
    ) {
        let test = |value| test(value).map_err(TestCaseError::fail);
        let mut runner = self.with_cases(self.cases.div_ceil(cases_a_value)).runner(stream);
        match runner.run(values, test) {
            Ok(()) => {}
            Err(TestError::Fail(reason, _)) => panic!("{self}: {reason}"),
            Err(TestError::Abort(reason)) => panic!("the generator gave up: {reason}"),
        }
    }
}

/// The settings that reproduce this run.
impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DELAYLINE_SEED={} DELAYLINE_CASES={}", self.seed, self.cases)
    }
}

fn variable<N: std::str::FromStr>(name: &str) -> Result<Option<N>, String> {
    match std::env::var(name) {
        Err(_) => Ok(None),
        Ok(value) => value.parse().map(Some).map_err(|_| format!("{name}={value} is no number")),
    }
}
