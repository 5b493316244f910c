//! What a worker takes and returns besides the names in the crate root:
//! [`Worker`], [`Workers`](crate::Workers), [`Job`] and
//! [`Outcome`].
//!
//! Workers claim messages, run a handler on each, and settle them.

#[cfg(feature = "testing")]
mod alone;
mod batch;
mod builder;
mod cancellation;
mod complaints;
mod config;
mod control;
mod failure;
#[cfg(feature = "testing")]
mod gathering;
mod handler;
pub(crate) mod holds;
mod hook;
pub(crate) mod job;
mod linger;
pub(crate) mod one;
pub(crate) mod outcome;
mod retry;
mod run;
mod saves;
#[cfg(feature = "tower")]
mod service;
pub(crate) mod state;
mod stop;
mod stuck;
mod undecodable;
pub(crate) mod workers;

pub use delayline_core::Jitter;
pub use delayline_core::worker::{CancelReason, Summary};

#[cfg(feature = "testing")]
pub(crate) use self::alone::Alone;
pub use self::batch::{Outcomes, batch_handler};
pub use self::builder::WorkerBuilder;
pub use self::cancellation::Cancellation;
pub use self::failure::HandlerError;
#[cfg(feature = "testing")]
pub(crate) use self::gathering::Gathering;
use self::job::Job;
use self::one::Worker;
use self::outcome::Outcome;
#[cfg(feature = "testing")]
pub(crate) use self::retry::Retry;
#[cfg(feature = "tower")]
pub use self::service::service_handler;
pub(crate) use self::stop::Stop;
pub use self::stop::WorkerHandle;
pub use self::stuck::Stuck;
pub use self::undecodable::Undecodable;
pub use crate::jobs::{AnyKind, Undecoded};
