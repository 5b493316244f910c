//! The one place where the calls of a queue are repeated.

use std::sync::Arc;
use std::time::Duration;

use delayline_core::{Applied, At, Class, Op, Queueing};
use tokio::time::{Instant, sleep};

use crate::Error;
use crate::pause::Pauses;

/// A backend, and for how long to try.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) backend: Arc<dyn Queueing>,
    pub(crate) patience: Duration,
}

/// What an operation was answered at last.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) applied: Applied,
    /// An earlier try may have been executed already: its reply was lost.
    pub(crate) repeated: bool,
}

impl Client {
    pub(crate) const DEFAULT_PATIENCE: Duration = Duration::from_secs(10);

    pub(crate) fn new(backend: Arc<dyn Queueing>) -> Self {
        Self { backend, patience: Self::DEFAULT_PATIENCE }
    }

    /// Sends `op` until its outcome is known, within bounds.
    ///
    /// What was not executed is sent again after a pause, until `patience` is over. What may have
    /// been executed is sent again unchanged, which by [`Op`]'s contract has no second effect, up
    /// to [`MAX_UNKNOWN`] times. No try begins after `patience`; a try under way is bounded by the
    /// backend.
    ///
    /// # Errors
    ///
    /// The last error. If any try may have been executed it is the error of that one, because the
    /// refusal of a later try does not tell what became of it.
    pub(crate) async fn apply(&self, op: &Op) -> Result<Answer, Error> {
        let give_up = Instant::now() + self.patience;
        let mut pauses = Pauses::new(FIRST_PAUSE, LONGEST_PAUSE);
        let mut unknown = Vec::new();
        loop {
            let error = match self.backend.apply(At::Server, op).await {
                Ok(applied) => return Ok(Answer { applied, repeated: !unknown.is_empty() }),
                Err(error) => error,
            };
            let class = error.class();
            if class == Class::Ambiguous {
                unknown.push(error.clone());
            }
            let pause = pauses.next();
            if class == Class::Rejected
                || unknown.len() >= MAX_UNKNOWN
                || Instant::now() + pause >= give_up
            {
                return Err(unknown.pop().unwrap_or(error).into());
            }
            tracing::debug!(op = op.name(), %error, "trying again");
            sleep(pause).await;
        }
    }
}

const MAX_UNKNOWN: usize = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
