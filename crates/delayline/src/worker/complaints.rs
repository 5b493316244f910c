//! Persistent failures of the backend.

use std::collections::HashMap;
use std::time::Duration;

use delayline_core::ErrorKind;
use tokio::time::Instant;

/// The persistent failures. A worker retries at least every two seconds, and its log should not
/// mention each attempt.
#[derive(Debug, Default)]
pub(super) struct Complaints(HashMap<Of, (ErrorKind, Instant)>);

/// A queue, an operation, and whether the failure is one of shards that it can do without.
pub(super) type Of = (usize, &'static str, bool);

impl Complaints {
    /// Records a failure of an operation. Returns `true` if it should be logged: the first time,
    /// when the kind of failure changes, and once a minute.
    pub(super) fn failed(&mut self, of: Of, kind: &ErrorKind) -> bool {
        let now = Instant::now();
        let known = self.0.get(&of);
        let is_old = known.is_some_and(|(known, at)| known == kind && now < *at + PAUSE);
        if !is_old {
            self.0.insert(of, (kind.clone(), now));
        }
        !is_old
    }

    /// Records a success of an operation. Returns whether it had been failing.
    pub(super) fn succeeded(&mut self, of: Of) -> bool {
        !self.0.is_empty() && self.0.remove(&of).is_some()
    }
}

const PAUSE: Duration = Duration::from_secs(60);
