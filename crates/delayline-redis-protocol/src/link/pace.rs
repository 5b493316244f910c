//! When the next connection may be tried: soon at first, at most every two seconds in the end.

use std::time::Duration;

use delayline_core::Error;
use tokio::time::Instant;

/// The pause before the third attempt in a row. The second one comes at once: most lost
/// connections are one broken socket, not a broken server.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause between attempts.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Counts failures in a row and spaces the attempts.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    failures: u32,
    not_before: Option<Instant>,
    last: Option<Error>,
}

impl Pace {
    /// Whether a connection may be tried now.
    ///
    /// # Errors
    ///
    /// It is too early: the error of the last failure again, so that a call fails promptly and
    /// says why.
    pub(crate) fn permit(&self, now: Instant) -> Result<(), Error> {
        match (self.not_before, &self.last) {
            (Some(not_before), Some(last)) if now < not_before => Err(last.clone()),
            _ => Ok(()),
        }
    }

    /// An attempt failed, or a connection was lost before it served a call.
    pub(crate) fn failed(&mut self, now: Instant, error: Error) {
        self.failures = self.failures.saturating_add(1);
        self.not_before = Some(now + spread(pause(self.failures), fastrand::f64()));
        self.last = Some(error);
    }

    /// A connection served a call: the next loss starts counting anew.
    pub(crate) fn served(&mut self) {
        self.failures = 0;
    }
}

/// Doubles from the second failure on.
fn pause(failures: u32) -> Duration {
    let Some(doublings) = failures.checked_sub(2) else {
        return Duration::ZERO;
    };
    FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(doublings)).min(LONGEST_PAUSE)
}

/// The pause, spread over its upper half by a number from 0 to 1: clients that lost their server
/// together must not come back together.
fn spread(pause: Duration, chance: f64) -> Duration {
    pause.mul_f64(0.5 + chance / 2.0)
}

#[cfg(test)]
mod tests {
    use delayline_core::ErrorKind;

    use super::*;

    fn refusal() -> Error {
        Error::new(ErrorKind::Unreachable)
    }

    #[test]
    fn pauses_double_up_to_the_cap() {
        let millis: Vec<u128> = (0..10).map(|failures| pause(failures).as_millis()).collect();
        assert_eq!(millis, [0, 0, 50, 100, 200, 400, 800, 1600, 2000, 2000]);
        assert_eq!(pause(u32::MAX), LONGEST_PAUSE);
    }

    #[test]
    fn first_failure_permits_another_attempt_at_once() {
        let now = Instant::now();
        let mut pace = Pace::default();
        pace.failed(now, refusal());
        assert!(pace.permit(now).is_ok());
        pace.failed(now, refusal());
        assert_eq!(pace.permit(now).unwrap_err().kind(), &ErrorKind::Unreachable);
        assert!(pace.permit(now + FIRST_PAUSE).is_ok());
    }

    #[test]
    fn clients_do_not_come_back_together() {
        assert_eq!(spread(LONGEST_PAUSE, 0.0), LONGEST_PAUSE / 2);
        assert_eq!(spread(LONGEST_PAUSE, 1.0), LONGEST_PAUSE);
        let now = Instant::now();
        let come_back = |_| {
            let mut pace = Pace::default();
            (0..10).for_each(|_| pace.failed(now, refusal()));
            pace.not_before.unwrap().duration_since(now)
        };
        let times: std::collections::BTreeSet<_> = (0..100).map(come_back).collect();
        let (first, last) = (times.first().unwrap(), times.last().unwrap());
        assert!(*first >= LONGEST_PAUSE / 2 && *last <= LONGEST_PAUSE, "{first:?} to {last:?}");
        assert!(*last - *first > LONGEST_PAUSE / 4, "{first:?} to {last:?}");
    }

    #[test]
    fn serving_starts_the_count_anew() {
        let now = Instant::now();
        let mut pace = Pace::default();
        for _ in 0..20 {
            pace.failed(now, refusal());
        }
        pace.served();
        pace.failed(now, refusal());
        assert!(pace.permit(now).is_ok());
    }
}
