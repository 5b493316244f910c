//! An executed operation.

use std::time::Duration;

use crate::{Reply, Timestamp};

/// An executed operation: when, at which point in the queue's history, and with what result.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Applied {
    /// The server's clock at execution, or the instant of [`At::Fixed`](crate::At::Fixed).
    pub at: Timestamp,
    /// The microseconds of the server's clock past `at`, below 1,000; 0 if the backend does not
    /// return them. On Redis, only replies to claims have them. Equality ignores them.
    #[cfg_attr(feature = "serde", serde(default))]
    pub micros: u16,
    /// The number of operations that have changed this queue so far. An operation that changes
    /// something increments it; others return the current number. So a log of calls can be put into
    /// execution order and replayed.
    pub revision: u64,
    /// The result.
    pub reply: Reply,
}

impl Applied {
    /// An operation that was executed at `at`, when `revision` operations had changed the queue.
    #[must_use]
    pub const fn new(at: Timestamp, revision: u64, reply: Reply) -> Self {
        Self { at, micros: 0, revision, reply }
    }

    /// Returns the same with the microseconds that the server's clock was past `at`; 999 if there
    /// are more.
    #[must_use]
    pub const fn with_micros(mut self, micros: u16) -> Self {
        self.micros = if micros < 1_000 { micros } else { 999 };
        self
    }

    /// Returns the time from the execution until `instant`; zero if `instant` is earlier.
    #[must_use]
    pub fn until(&self, instant: Timestamp) -> Duration {
        instant.since(self.at).saturating_sub(Duration::from_micros(self.micros.into()))
    }
}

/// Operations know milliseconds only, so a model that repeats one at `at` has the same result.
impl PartialEq for Applied {
    fn eq(&self, other: &Self) -> bool {
        let Self { at, micros: _, revision, reply } = self;
        (at, revision, reply) == (&other.at, &other.revision, &other.reply)
    }
}

impl Eq for Applied {}
