//! Waits that end closer to their instant than the timers of the runtime.
//!
//! Tokio's timers count whole milliseconds, so a wait ends up to two milliseconds late. One thread
//! of the process ends the last milliseconds of each wait. It is parked in between.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future;
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use delayline_core::Wakeup;
use tokio::sync::oneshot;
use tokio::time::{self, Instant};

/// Waits until `instant`, and returns at once if it has passed. Ends closer to it than Tokio's
/// timers, which count whole milliseconds.
///
/// For programs that wait for the next due message of a claim themselves. It is cancel safe: if the
/// future is dropped, the wait ends.
///
/// # Panics
///
/// Outside of a Tokio runtime, or in one without timers, unless `instant` has passed.
///
/// If the thread could not be started, the runtime's timer ends the wait. It also does in tests
/// with paused time, where time does not pass on its own.
pub async fn sleep_until(instant: Instant) {
    if let Some(coarse) = instant.checked_sub(LAST_STRETCH) {
        time::sleep_until(coarse).await;
    }
    let rest = instant.saturating_duration_since(Instant::now());
    if rest.is_zero() {
        return;
    }
    let fine = fine_sleep(rest);
    let coarse = time::sleep_until(instant);
    tokio::pin!(coarse);
    tokio::select! {
        biased;
        () = &mut coarse => {}
        () = fine => {
            if Instant::now() < instant {
                coarse.await;
            }
        }
    }
}

/// Waits for a hint until `instant`, and returns whether one arrived. Waits again after a
/// [`wait`](Wakeup::wait) that ended early. If hints are unavailable, it returns at `instant`.
///
/// If the future is dropped, at most one hint is lost.
///
/// # Panics
///
/// Outside of a Tokio runtime, or in one without timers.
pub async fn hint_until<W: Wakeup + ?Sized>(bell: &W, instant: Instant) -> bool {
    let hint = async {
        loop {
            let began = Instant::now();
            match bell.wait(instant.saturating_duration_since(began)).await {
                Ok(true) => break,
                // A backend that returns at once must not be asked in a hot loop.
                Ok(false) => time::sleep_until(began + SHORTEST_WAIT).await,
                Err(_) => future::pending().await,
            }
        }
    };
    tokio::select! {
        biased;
        () = hint => true,
        () = sleep_until(instant) => false,
    }
}

/// Waits for a short time, or for ever if there is no thread.
async fn fine_sleep(rest: Duration) {
    let Some(alarms) = &*ALARMS else { return future::pending().await };
    let (ended, end) = oneshot::channel();
    alarms.add(Alarm { at: std::time::Instant::now() + rest, ended });
    let _ = end.await;
}

/// Ends a wait at an instant.
struct Alarm {
    at: std::time::Instant,
    ended: oneshot::Sender<()>,
}

/// The waits that the thread has to end.
#[derive(Default)]
struct Alarms {
    pending: Mutex<BinaryHeap<Reverse<Alarm>>>,
    /// Notified if the earliest alarm has changed.
    earlier: Condvar,
}

impl Alarms {
    fn add(&self, alarm: Alarm) {
        let mut pending = self.lock();
        let is_earliest = pending.peek().is_none_or(|first| alarm.at < first.0.at);
        pending.push(Reverse(alarm));
        drop(pending);
        if is_earliest {
            self.earlier.notify_one();
        }
    }

    /// What the thread does.
    fn run(&self) {
        let mut pending = self.lock();
        loop {
            let now = std::time::Instant::now();
            let Some(Reverse(first)) = pending.peek() else {
                pending = self.earlier.wait(pending).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let rest = first.at.saturating_duration_since(now);
            if rest.is_zero() {
                if let Some(Reverse(alarm)) = pending.pop() {
                    // The wait may have been cancelled.
                    let _ = alarm.ended.send(());
                }
            } else {
                let waited = self.earlier.wait_timeout(pending, rest);
                (pending, _) = waited.unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BinaryHeap<Reverse<Alarm>>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PartialEq for Alarm {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Alarm {}

impl PartialOrd for Alarm {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Alarm {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.at.cmp(&other.at)
    }
}

/// The alarms of this process, or `None` if their thread could not be started. The first wait that
/// needs the thread starts it.
static ALARMS: LazyLock<Option<&'static Alarms>> = LazyLock::new(|| {
    let alarms: &Alarms = Box::leak(Box::default());
    let thread = thread::Builder::new().name("delayline-timer".to_owned());
    match thread.spawn(|| alarms.run()) {
        Ok(_) => Some(alarms),
        Err(error) => {
            tracing::debug!(%error, "the timer thread could not be started, so timers are less \
                                     precise");
            None
        }
    }
});

/// The shortest time between the beginnings of two waits for a hint.
const SHORTEST_WAIT: Duration = Duration::from_millis(100);
/// More than the runtime's timers are late.
const LAST_STRETCH: Duration = Duration::from_millis(3);

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use async_trait::async_trait;
    use delayline_core::{Error, ErrorKind};

    use super::*;

    #[tokio::test]
    async fn a_wait_never_ends_early() {
        for micros in [0, 1, 150, 999, 1_000, 2_500, 3_000, 3_001, 7_300] {
            let end = Instant::now() + Duration::from_micros(micros);
            sleep_until(end).await;
            assert!(Instant::now() >= end, "{micros} us");
        }
    }

    #[tokio::test]
    async fn later_waits_and_cancelled_ones_do_not_delay_an_earlier_one() {
        let alarms = ALARMS.unwrap();
        let hour = std::time::Instant::now() + Duration::from_secs(3_600);
        let (late, later) = oneshot::channel();
        alarms.add(Alarm { at: hour, ended: late });
        let (cancelled, receiver) = oneshot::channel();
        alarms.add(Alarm { at: std::time::Instant::now(), ended: cancelled });
        drop(receiver);
        fine_sleep(Duration::from_millis(1)).await;
        assert!(later.is_empty() && !later.is_terminated());
    }

    #[tokio::test]
    async fn of_many_waits_none_ends_early() {
        let start = Instant::now();
        let waits = (0..50_u32).rev().map(|number| async move {
            let end = start + Duration::from_micros(200) * number;
            sleep_until(end).await;
            Instant::now() >= end
        });
        assert!(futures_util::future::join_all(waits).await.into_iter().all(|in_time| in_time));
    }

    #[derive(Debug)]
    struct Bell(Mutex<Vec<Result<bool, Error>>>);

    #[async_trait]
    impl Wakeup for Bell {
        async fn wait(&self, _: Duration) -> Result<bool, Error> {
            self.0.lock().unwrap().pop().unwrap()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_that_ends_early_is_repeated_and_one_that_fails_is_not() {
        let start = Instant::now();
        let end = start + Duration::from_secs(5);
        let bell = Bell(Mutex::new(vec![Ok(true), Ok(false), Ok(false)]));
        assert!(hint_until(&bell, end).await);
        assert_eq!(start.elapsed(), 2 * SHORTEST_WAIT);
        let bell = Bell(Mutex::new(vec![Err(Error::new(ErrorKind::Unreachable))]));
        assert!(!hint_until(&bell, end).await);
        assert_eq!(Instant::now(), end);
    }

    #[tokio::test(start_paused = true)]
    async fn paused_time_is_not_waited_for() {
        let (start, real) = (Instant::now(), std::time::Instant::now());
        let end = start + Duration::from_secs(3_600);
        sleep_until(end).await;
        assert_eq!(Instant::now(), end);
        assert!(real.elapsed() < Duration::from_secs(60));
    }
}
