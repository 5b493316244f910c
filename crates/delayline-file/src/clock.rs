//! The clock of a directory: the machine's, which never goes back.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use delayline_core::limits::MAX_TIMESTAMP_MS;
use delayline_core::{Error, ErrorKind, Timestamp};

/// How far the machine's clock may be behind the latest instant, in milliseconds: an hour. Up to
/// that, time stands still until the clock has caught up.
pub(crate) const MAX_STEP_BACK_MS: u64 = 3_600_000;

/// A clock that never goes back.
#[derive(Debug)]
pub(crate) struct Clock {
    /// The latest instant, in milliseconds.
    latest: AtomicU64,
}

impl Clock {
    pub(crate) const fn new(latest: Timestamp) -> Self {
        Self { latest: AtomicU64::new(latest.as_ms()) }
    }

    /// Returns the time, and the microseconds of the machine's clock past it; zero while time
    /// stands still.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Busy`] if the machine's clock has stepped back too far.
    pub(crate) fn now(&self) -> Result<(Timestamp, u16), Error> {
        let (machine, micros) = machine();
        let latest = self.latest.fetch_max(machine, Ordering::AcqRel).max(machine);
        if latest - machine > MAX_STEP_BACK_MS {
            let detail =
                format!("the clock shows {machine} ms, and showed {latest} ms before: correct it");
            return Err(Error::with_detail(ErrorKind::Busy, detail));
        }
        let micros = if latest == machine { micros } else { 0 };
        Ok((Timestamp::from_ms(latest).unwrap_or(Timestamp::MAX), micros))
    }

    /// Returns an instant that no earlier process of this machine has reached, unless the machine's
    /// clock has stepped back by more than it may.
    pub(crate) fn upper_bound(&self) -> Timestamp {
        let reached = self.latest().as_ms().max(machine_ms());
        Timestamp::from_ms(reached + MAX_STEP_BACK_MS).unwrap_or(Timestamp::MAX)
    }

    /// Returns the latest instant.
    pub(crate) fn latest(&self) -> Timestamp {
        Timestamp::from_ms(self.latest.load(Ordering::Acquire)).unwrap_or(Timestamp::MAX)
    }
}

/// Returns the milliseconds of the machine's clock.
pub(crate) fn machine_ms() -> u64 {
    machine().0
}

/// Returns the milliseconds of the machine's clock, and its microseconds past them. Rounded down,
/// unlike due times: a message due in this millisecond is due.
fn machine() -> (u64, u16) {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let ms = u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX).min(MAX_TIMESTAMP_MS);
    (ms, u16::try_from(since_epoch.subsec_micros() % 1_000).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ahead(ms: u64) -> Clock {
        Clock::new(Timestamp::from_ms(machine_ms() + ms).unwrap())
    }

    /// Otherwise, instants would go back after a restart, and leases would last longer.
    #[test]
    fn time_stands_still_while_the_machine_is_less_than_an_hour_behind() {
        let clock = ahead(MAX_STEP_BACK_MS / 2);
        assert_eq!(clock.now().unwrap(), (clock.latest(), 0));
        let error = ahead(MAX_STEP_BACK_MS + 60_000).now().unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::Busy);
    }
}
