//! Persistent failures of the backend.

use std::collections::HashMap;
use std::time::Duration;

use delayline_core::ErrorKind;
use tokio::time::Instant;

/// The persistent failures, by queue and operation. A worker retries at least every two seconds,
/// and its log should not mention each attempt.
#[derive(Debug, Default)]
pub(super) struct Complaints(HashMap<(usize, &'static str), (ErrorKind, Instant)>);

impl Complaints {
    /// Records a failure of an operation. Returns `true` if it should be logged: the first time,
    /// when the kind of failure changes, and once a minute.
    pub(super) fn failed(&mut self, queue: usize, op: &'static str, kind: &ErrorKind) -> bool {
        let now = Instant::now();
        let known = self.0.get(&(queue, op));
        let is_old = known.is_some_and(|(of, at)| of == kind && now < *at + PAUSE);
        if !is_old {
            self.0.insert((queue, op), (kind.clone(), now));
        }
        !is_old
    }

    /// Records a success of an operation. Returns whether it had been failing.
    pub(super) fn succeeded(&mut self, queue: usize, op: &'static str) -> bool {
        !self.0.is_empty() && self.0.remove(&(queue, op)).is_some()
    }
}

const PAUSE: Duration = Duration::from_secs(60);
