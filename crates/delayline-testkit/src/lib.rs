//! The conformance suite of Delayline, for every [`Backend`](delayline_core::Backend). A backend
//! that passes is a delay queue with the documented guarantees G1 to G24, G28 to G38 and G40, as
//! far as the trait shows them.
//!
//! All it needs is a test target with `harness = false`:
//!
//! ```no_run
//! use std::process::ExitCode;
//! use std::sync::Arc;
//!
//! use delayline_core::{Error, QueueBackend};
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
//!     async fn fresh(&self) -> Result<Arc<dyn QueueBackend>, Error> {
//!         Ok(Arc::new(MyBackend::new()))
//!     }
//! }
//!
//! fn main() -> ExitCode {
//!     delayline_testkit::main("mine", Mine)
//! }
//! ```
//!
//! Its trials can be listed and filtered like other Rust tests:
//!
//! - `cases::`: hand-written cases with hand-written results. Each names its guarantees, and ends
//!   with an audit, a drain and balanced books.
//! - `differential::`: random sequences of up to [`workload::MAX_MOVES`] operations, at explicit
//!   instants and without sleeping. After each operation, the result and the visible state are
//!   compared with [`State`](delayline_core::State). A failing sequence is minimised and printed as
//!   a [`Trace`].
//! - `regressions::`: traces that are replayed on every run.
//! - `histories::`: many concurrent clients; there must be an order of their calls in which the
//!   model returns the same results.
//! - `faults::`: lost and duplicated operations, repeated until they get a reply, and operations
//!   whose futures are dropped.
//! - `reopen::`: queues that are closed and opened again, with everything that they had. Only for
//!   backends whose [`Fixture::reopen`] does so; for others they are reported as ignored.
//! - `two_clients::`: sequences whose steps two clients take in turns. Only for backends whose
//!   [`Fixture::another`] opens a second client; for others they are reported as ignored.
//!
//! Two environment variables control a run: `DELAYLINE_CASES` is the number of random sequences
//! ([`Fixture::random_cases`] if unset), and `DELAYLINE_SEED` is their seed (chosen anew for each
//! run if unset, and printed).
//!
//! Minor releases may add cases, so a backend that passed before may rightly fail.

mod calls;
#[allow(clippy::panic, reason = "a case fails by a panic, as any test")]
mod cases;
mod clients;
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
#[allow(clippy::panic, reason = "a trial fails by a panic, as any test")]
mod reopen;
mod reopenable;
mod runner;
#[allow(clippy::panic, reason = "a trial fails by a panic, as any test")]
mod settings;
mod sited;
mod trace;
#[allow(clippy::panic, reason = "a trial fails by a panic, as any test")]
mod two_clients;
pub mod workload;

pub use async_trait::async_trait;

pub use self::divergence::Divergence;
pub use self::faults::{Fault, Faulty};
pub use self::fixture::Fixture;
pub use self::histories::{Call, History, drain};
pub use self::oracle::differential;
#[doc(hidden)]
pub use self::runner::trials;
pub use self::runner::{main, main_of_ways};
pub use self::trace::{Step, Trace, TraceError};

#[cfg(test)]
mod tests;
