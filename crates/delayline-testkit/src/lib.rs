//! The conformance suite of Delayline.

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
pub use self::trace::{Step, Trace, TraceError};
