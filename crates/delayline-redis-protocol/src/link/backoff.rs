//! Spaces attempts to connect: a short pause at first, and up to two seconds later.

use std::time::Duration;

use delayline_core::{Backoff, Error};
use tokio::time::Instant;

/// The pause before the third attempt in a row. The second attempt follows at once, because most
/// failures are those of one socket, not of the server.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause between attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Spaces the attempts after failures in a row.
#[derive(Debug, Default)]
pub(crate) struct ReconnectBackoff {
    /// `None` until the first failure.
    backoff: Option<Backoff>,
    not_before: Option<Instant>,
    last: Option<Error>,
}

impl ReconnectBackoff {
    /// Permits an attempt, unless it is too early.
    ///
    /// # Errors
    ///
    /// If it is too early: the error of the last failure, so that a call fails at once with the
    /// reason.
    pub(crate) fn permit(&self, now: Instant) -> Result<(), Error> {
        match (self.not_before, &self.last) {
            (Some(not_before), Some(last)) if now < not_before => Err(last.clone()),
            _ => Ok(()),
        }
    }

    /// Notes that an attempt failed, or that a connection was lost before it served a call.
    pub(crate) fn failed(&mut self, now: Instant, error: Error) {
        let pause = match &mut self.backoff {
            Some(backoff) => backoff.next(fastrand::u32(..)),
            None => {
                self.backoff = Some(Backoff::new(FIRST_PAUSE, LONGEST_PAUSE));
                Duration::ZERO
            }
        };
        self.not_before = Some(now + pause);
        self.last = Some(error);
    }

    /// Notes that a connection served a call, so that the next loss counts as the first one.
    pub(crate) fn served(&mut self) {
        self.backoff = None;
    }
}

#[cfg(test)]
mod tests {
    use delayline_core::ErrorKind;

    use super::*;

    fn refusal() -> Error {
        Error::new(ErrorKind::Unreachable)
    }

    #[test]
    fn first_failure_permits_another_attempt_at_once() {
        let now = Instant::now();
        let mut backoff = ReconnectBackoff::default();
        backoff.failed(now, refusal());
        assert!(backoff.permit(now).is_ok());
        backoff.failed(now, refusal());
        assert_eq!(backoff.permit(now).unwrap_err().kind(), &ErrorKind::Unreachable);
        assert!(backoff.permit(now + FIRST_PAUSE).is_ok());
    }

    #[test]
    fn clients_do_not_come_back_together() {
        let now = Instant::now();
        let come_back = |_| {
            let mut backoff = ReconnectBackoff::default();
            (0..10).for_each(|_| backoff.failed(now, refusal()));
            backoff.not_before.unwrap().duration_since(now)
        };
        let times: std::collections::BTreeSet<_> = (0..100).map(come_back).collect();
        let (first, last) = (times.first().unwrap(), times.last().unwrap());
        assert!(*first >= LONGEST_PAUSE / 2 && *last <= LONGEST_PAUSE, "{first:?} to {last:?}");
        assert!(*last - *first > LONGEST_PAUSE / 4, "{first:?} to {last:?}");
    }

    #[test]
    fn serving_starts_the_count_anew() {
        let now = Instant::now();
        let mut backoff = ReconnectBackoff::default();
        for _ in 0..20 {
            backoff.failed(now, refusal());
        }
        backoff.served();
        backoff.failed(now, refusal());
        assert!(backoff.permit(now).is_ok());
    }
}
