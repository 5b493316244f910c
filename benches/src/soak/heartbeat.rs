//! How long the machine itself stood still: threads that sleep for a moment and note how much
//! longer it took.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Result, anyhow};

/// A thread for each core, beating.
pub(crate) struct Heartbeat {
    stop: Arc<AtomicBool>,
    stalls: Arc<Mutex<Stalls>>,
    threads: Vec<JoinHandle<()>>,
}

/// When a thread that wanted to run could not.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stalls {
    pub(crate) beats: u64,
    spans: Vec<(SystemTime, SystemTime)>,
}

impl Heartbeat {
    pub(crate) fn start() -> Result<Self> {
        let (stop, stalls) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::default()));
        let beat = |_| {
            let (stop, stalls) = (Arc::clone(&stop), Arc::clone(&stalls));
            thread::spawn(move || beat(&stop, &stalls))
        };
        let threads = (0..thread::available_parallelism()?.get()).map(beat).collect();
        Ok(Self { stop, stalls, threads })
    }

    pub(crate) fn stop(self) -> Result<Stalls> {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().map_err(|_| anyhow!("a heartbeat ended with a panic"))?;
        }
        let stalls = self.stalls.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(stalls)
    }
}

fn beat(stop: &AtomicBool, stalls: &Mutex<Stalls>) {
    while !stop.load(Ordering::Relaxed) {
        let due = Instant::now() + INTERVAL;
        thread::sleep(INTERVAL);
        let (late, now) = (due.elapsed(), SystemTime::now());
        let mut stalls = stalls.lock().unwrap_or_else(PoisonError::into_inner);
        stalls.beats += 1;
        if late >= SHORTEST_STALL {
            stalls.spans.push((now - late, now));
        }
    }
}

impl Stalls {
    #[cfg(test)]
    pub(crate) fn of(spans: Vec<(SystemTime, SystemTime)>) -> Self {
        Self { beats: 1, spans }
    }

    pub(crate) fn count(&self) -> usize {
        self.spans.len()
    }

    pub(crate) fn longest(&self) -> Duration {
        self.spans.iter().map(|span| length(*span)).max().unwrap_or_default()
    }

    /// How much of the time from `begin` to `end` at least one of the threads was held up.
    pub(crate) fn within(&self, begin: SystemTime, end: SystemTime) -> Duration {
        let clipped = self.spans.iter().map(|(from, to)| (*from.max(&begin), *to.min(&end)));
        let mut spans: Vec<_> = clipped.filter(|(from, to)| from < to).collect();
        spans.sort_unstable();
        let (mut sum, mut covered) = (Duration::ZERO, begin);
        for (from, to) in spans {
            sum += length((from.max(covered), to));
            covered = covered.max(to);
        }
        sum
    }
}

fn length((from, to): (SystemTime, SystemTime)) -> Duration {
    to.duration_since(from).unwrap_or_default()
}

const INTERVAL: Duration = Duration::from_millis(5);
const SHORTEST_STALL: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_count_once_and_only_where_they_overlap() {
        let at = |ms| SystemTime::UNIX_EPOCH + Duration::from_millis(ms);
        let spans =
            vec![(at(100), at(200)), (at(150), at(250)), (at(160), at(170)), (at(9), at(10))];
        let stalls = Stalls::of(spans);
        assert_eq!(stalls.within(at(0), at(300)), Duration::from_millis(151));
        assert_eq!(stalls.within(at(120), at(220)), Duration::from_millis(100));
        assert_eq!(stalls.within(at(300), at(400)), Duration::ZERO);
        assert_eq!(stalls.longest(), Duration::from_millis(100));
    }
}
