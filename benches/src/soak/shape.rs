//! The shape of a program: queues, workers, delays.

use std::time::Duration;

/// A program with its own server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Shape {
    /// Queues with a worker and a connection each, as if each were a process, and little traffic.
    Single,
    /// A few queues that share one worker.
    Few,
    /// Many queues that share one worker.
    Many,
    /// One queue with constant traffic: retries, snoozes, cancellations.
    Busy,
}

/// Ranges of delays that a worker treats alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum DelayClass {
    /// Under a second.
    Short,
    /// Shorter than the interval between two polls of the queue (the safety poll).
    Medium,
    /// About as long as that interval.
    Poll,
    /// Longer than it: the safety poll comes before the message is due.
    Long,
}

impl Shape {
    pub(crate) const ALL: [Self; 4] = [Self::Single, Self::Few, Self::Many, Self::Busy];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Few => "few",
            Self::Many => "many",
            Self::Busy => "busy",
        }
    }

    /// Returns the number of its queues. [`Many`](Self::Many) has `many`.
    pub(crate) const fn queues(self, many: usize) -> usize {
        match self {
            Self::Single => 16,
            Self::Few => 10,
            Self::Many => many,
            Self::Busy => 1,
        }
    }

    /// Returns the number of processes that it stands for.
    pub(crate) const fn processes(self) -> usize {
        match self {
            Self::Single => self.queues(0),
            Self::Few | Self::Many | Self::Busy => 1,
        }
    }

    /// Returns how many commands per second each process may send while it is idle: half a command
    /// with up to twenty queues, and with more as many as the longest safety poll needs (G21).
    pub(crate) fn idle_rate(self, many: usize) -> f64 {
        let queues = f64::from(u32::try_from(self.queues(many)).unwrap_or(u32::MAX));
        match self {
            Self::Single | Self::Few | Self::Busy => 0.5,
            Self::Many => f64::max(0.5, queues / SHORTEST_POLL_SECONDS + 0.1),
        }
    }

    /// Returns the number of commands that poll each queue of a process once.
    pub(crate) fn polls(self, many: usize) -> f64 {
        let polls = self.queues(many) / self.processes();
        f64::from(u32::try_from(polls).unwrap_or(u32::MAX))
    }

    /// Returns the maximum time between two polls of a queue (G21).
    const fn poll(self) -> Duration {
        match self {
            Self::Single | Self::Busy => Duration::from_secs(5),
            Self::Few => Duration::from_secs(25),
            Self::Many => Duration::from_secs(50),
        }
    }
}

impl DelayClass {
    pub(crate) const ALL: [Self; 4] = [Self::Short, Self::Medium, Self::Poll, Self::Long];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Medium => "medium",
            Self::Poll => "poll",
            Self::Long => "long",
        }
    }

    /// Its relative frequency, in percent.
    pub(crate) const fn weight(self) -> u32 {
        match self {
            Self::Short => 20,
            Self::Medium => 15,
            Self::Poll => 55,
            Self::Long => 10,
        }
    }

    /// Returns the shortest and the longest of its delays.
    pub(crate) fn range(self, shape: Shape) -> (Duration, Duration) {
        // A worker polls at a random time in the last tenth of the interval.
        let (before, after) = (shape.poll().mul_f64(0.88), shape.poll().mul_f64(1.02));
        match self {
            Self::Short => (Duration::ZERO, SECOND),
            Self::Medium => (SECOND, before),
            Self::Poll => (before, after),
            Self::Long => (after, after.max(Duration::from_secs(62))),
        }
    }
}

/// Minimum number of seconds between two polls of one of many queues: nine tenths of the longest
/// safety poll.
const SHORTEST_POLL_SECONDS: f64 = 45.0;
const SECOND: Duration = Duration::from_secs(1);
