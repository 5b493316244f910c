//! The conformance suite of Delayline: whoever writes a [`Backend`](delayline_core::Backend) runs
//! it, and what passes is a delay queue with every guarantee that the documentation numbers G1 to
//! G24 and that can be seen through the trait.
//!
//! A test target with `harness = false` is all it takes:
//!
//! ```no_run
//! use std::process::ExitCode;
//! use std::sync::Arc;
//!
//! use delayline_core::{Error, Queueing};
//! use delayline_testkit::{Fixture, async_trait};
//! # use delayline_core::{Applied, At, Backend, Op, Wakeup};
//! # #[derive(Debug)]
//! # struct MyBackend;
//! # impl MyBackend { fn new() -> Self { Self } }
//! # #[async_trait]
//! # impl Backend for MyBackend {
//! #     async fn apply(&self, _: At, _: &Op) -> Result<Applied, Error> { unreachable!() }
//! # }
//! # #[async_trait]
//! # impl Wakeup for MyBackend {
//! #     async fn wait(&self, _: std::time::Duration) -> Result<bool, Error> { unreachable!() }
//! # }
//!
//! struct Mine;
//!
//! #[async_trait]
//! impl Fixture for Mine {
//!     async fn fresh(&self) -> Result<Arc<dyn Queueing>, Error> {
//!         Ok(Arc::new(MyBackend::new()))
//!     }
//! }
//!
//! fn main() -> ExitCode {
//!     delayline_testkit::main("mine", Mine)
//! }
//! ```
//!
//! Its trials, which can be listed and filtered like any Rust tests:
//!
//! - `cases::`: hand-written cases whose answers are written out by hand. Each names its
//!   guarantees, and ends with an audit, a drain and balanced books.
//! - `differential::`: random sequences of up to [`workload::MAX_MOVES`] operations, at explicit
//!   instants and without sleeping. After each operation the answer and the visible state are
//!   compared with [`State`](delayline_core::State). A sequence that fails is cut down and printed
//!   as a [`Trace`].
//! - `regressions::`: traces that are run each time.
//! - `histories::`: many clients at once; their calls must have an order in which the model
//!   answers the same.
//! - `faults::`: lost and doubled operations, sent again until they are answered.
//!
//! Two variables of the environment set the size: `DELAYLINE_CASES` is the number of random
//! sequences (1000 if it is not set), and `DELAYLINE_SEED` is what they follow from (new at each run
//! if it is not set, and printed).
//!
//! New cases may come in minor releases: a backend that passed may fail then, rightly.

#[allow(clippy::panic, reason = "a case fails by a panic, as any test")]
mod cases;
mod divergence;
#[allow(clippy::panic, reason = "a trial fails by a panic, as any test")]
mod faults;
mod fixture;
#[allow(clippy::panic, reason = "a trial fails by a panic, as any test")]
mod histories;
mod limits;
mod oracle;
#[allow(clippy::panic, reason = "a trial fails by a panic, as any test")]
mod random;
mod regressions;
mod runner;
mod settings;
mod trace;
pub mod workload;

pub use async_trait::async_trait;

pub use self::divergence::Divergence;
pub use self::faults::{Fault, Faulty};
pub use self::fixture::Fixture;
pub use self::histories::{Call, History};
pub use self::oracle::differential;
pub use self::runner::main;
#[doc(hidden)]
pub use self::runner::trials;
pub use self::trace::{Step, Trace, TraceError};

#[cfg(test)]
mod tests;
