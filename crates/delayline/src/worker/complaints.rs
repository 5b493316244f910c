//! What the backend keeps failing at.

use std::collections::HashMap;
use std::time::Duration;

use delayline_core::ErrorKind;
use tokio::time::Instant;

/// The failures that last, by queue and operation. A worker tries again every two seconds at least;
/// who reads its log need not know each time.
#[derive(Debug, Default)]
pub(super) struct Complaints(HashMap<(usize, &'static str), (ErrorKind, Instant)>);

impl Complaints {
    /// An operation has failed. Answers whether to speak of it: the first time, when it fails in
    /// another way, and once a minute.
    pub(super) fn failed(&mut self, queue: usize, op: &'static str, kind: &ErrorKind) -> bool {
        let now = Instant::now();
        let known = self.0.get(&(queue, op));
        let is_old = known.is_some_and(|(of, at)| of == kind && now < *at + PAUSE);
        if !is_old {
            self.0.insert((queue, op), (kind.clone(), now));
        }
        !is_old
    }

    /// An operation has succeeded. Answers whether it had been failing.
    pub(super) fn succeeded(&mut self, queue: usize, op: &'static str) -> bool {
        !self.0.is_empty() && self.0.remove(&(queue, op)).is_some()
    }
}

const PAUSE: Duration = Duration::from_secs(60);
