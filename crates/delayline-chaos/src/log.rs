//! The calls of the clients of one queue, with their times and results.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use delayline_core::{
    Applied, At, Backend, Error, ErrorClass, ErrorKind, Op, QueueBackend, QueueName, Timestamp,
    Wakeup,
};
use tokio::sync::RwLock;

use crate::strikes::Effect;

/// What all calls of one round share.
#[derive(Debug)]
pub(crate) struct Setting {
    begin: Instant,
    /// How far the clock that the operations go by is ahead of the machine's, in milliseconds.
    step_ms: AtomicI64,
    /// Whether the operations go by the server's clock instead.
    server_clock: bool,
    /// The number of the era, which every call holds on to. An era ends when what the server has
    /// acknowledged may be lost.
    pub(crate) era: RwLock<usize>,
}

impl Setting {
    pub(crate) fn new(server_clock: bool) -> Arc<Self> {
        let (begin, step_ms) = (Instant::now(), AtomicI64::new(0));
        Arc::new(Self { begin, step_ms, server_clock, era: RwLock::new(0) })
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.begin.elapsed()
    }

    pub(crate) const fn goes_by_server(&self) -> bool {
        self.server_clock
    }

    /// Sets the clock of the operations, against the machine's.
    pub(crate) fn set_step(&self, ms: i64) {
        self.step_ms.store(ms, Ordering::Relaxed);
    }

    fn now(&self) -> Timestamp {
        let elapsed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let ms = u64::try_from(elapsed.as_millis()).unwrap_or_default();
        let ms = ms.saturating_add_signed(self.step_ms.load(Ordering::Relaxed));
        Timestamp::from_ms(ms).unwrap_or(Timestamp::MAX)
    }
}

/// One call.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// The driver, which is named in the record of a failed round.
    pub(crate) client: &'static str,
    pub(crate) era: usize,
    pub(crate) called: Duration,
    /// When the caller had an answer or gave up.
    pub(crate) returned: Option<Duration>,
    /// The instant that the operation was sent with.
    pub(crate) at: At,
    pub(crate) op: Op,
    pub(crate) outcome: Outcome,
}

impl Entry {
    /// Whether it was under way at some time between two instants.
    fn is_between(&self, from: Duration, to: Duration) -> bool {
        self.called <= to && self.returned.is_none_or(|returned| returned >= from)
    }
}

/// What a caller knows of its call.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Answered(Applied),
    /// The error promises that nothing was executed.
    NotExecuted(Error),
    /// It may have been executed, or will be; also while there is no reply yet.
    Unknown,
}

/// Writes down every call to one queue, of any client.
#[derive(Debug)]
pub(crate) struct Log {
    setting: Arc<Setting>,
    entries: Mutex<Vec<Entry>>,
}

impl Log {
    pub(crate) fn new(setting: &Arc<Setting>) -> Arc<Self> {
        Arc::new(Self { setting: Arc::clone(setting), entries: Mutex::default() })
    }

    /// A client of the queue whose calls are written down here.
    pub(crate) fn recorded(
        self: &Arc<Self>,
        client: &'static str,
        inner: impl QueueBackend + 'static,
    ) -> Arc<dyn QueueBackend> {
        Arc::new(Recorded { client, inner, log: Arc::clone(self) })
    }

    pub(crate) fn setting(&self) -> &Setting {
        &self.setting
    }

    pub(crate) fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a call that was under way between two instants felt a fault: it got no answer, or it
    /// took as long as half of that time.
    pub(crate) fn has_met(&self, effect: Effect, from: Duration, to: Duration) -> bool {
        let end = self.setting.elapsed();
        let met = |entry: &Entry| match effect {
            Effect::Failure => match &entry.outcome {
                Outcome::Answered(_) => false,
                // A version that does not know what the queue uses is refused without a fault.
                Outcome::NotExecuted(error) => {
                    !matches!(error.kind(), ErrorKind::NewerFeature { .. })
                }
                // One that is only under way has felt nothing yet.
                Outcome::Unknown => entry.returned.is_some(),
            },
            Effect::Delay => entry.returned.unwrap_or(end) - entry.called >= (to - from) / 2,
            Effect::None => true,
        };
        let entries = self.entries();
        entries.iter().rev().take(RECENT).any(|entry| entry.is_between(from, to) && met(entry))
    }

    /// When a client had the first of some answers.
    pub(crate) fn first_answer(
        &self,
        client: &str,
        is_one: impl Fn(&Entry) -> bool,
    ) -> Option<Duration> {
        let answer = |entry: &Entry| match entry.outcome {
            Outcome::Answered(_) if entry.client == client && is_one(entry) => entry.returned,
            _ => None,
        };
        self.entries().iter().rev().take(RECENT).filter_map(answer).min()
    }
}

#[derive(Debug)]
struct Recorded<B> {
    client: &'static str,
    inner: B,
    log: Arc<Log>,
}

#[async_trait]
impl<B: Backend> Backend for Recorded<B> {
    fn queue_name(&self) -> Option<&QueueName> {
        self.inner.queue_name()
    }

    async fn apply(&self, at: At, op: &Op) -> Result<Applied, Error> {
        let setting = &self.log.setting;
        let era = setting.era.read().await;
        let at = match at {
            At::Server if !setting.server_clock => At::Fixed(setting.now()),
            at => at,
        };
        let number = {
            let mut entries = self.log.entries();
            entries.push(Entry {
                client: self.client,
                era: *era,
                called: setting.elapsed(),
                returned: None,
                at,
                op: op.clone(),
                outcome: Outcome::Unknown,
            });
            entries.len() - 1
        };
        // A caller that is dropped here leaves the outcome as it is: unknown.
        let _end = End { log: &self.log, number };
        let answer = self.inner.apply(at, op).await;
        let entry = &mut self.log.entries()[number];
        match &answer {
            Ok(applied) => entry.outcome = Outcome::Answered(applied.clone()),
            Err(error) if error.class() != ErrorClass::Ambiguous => {
                entry.outcome = Outcome::NotExecuted(error.clone());
            }
            Err(_) => {}
        }
        answer
    }
}

/// Writes down when a call returned, or was given up.
struct End<'a> {
    log: &'a Log,
    number: usize,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        let now = self.log.setting.elapsed();
        self.log.entries()[self.number].returned = Some(now);
    }
}

#[async_trait]
impl<B: QueueBackend> Wakeup for Recorded<B> {
    async fn wait(&self, timeout: Duration) -> Result<bool, Error> {
        self.inner.wait(timeout).await
    }

    async fn ring(&self) -> Result<(), Error> {
        self.inner.ring().await
    }
}

/// How many of the latest calls can have met a fault that is just over.
const RECENT: usize = 40_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise, every fault counts as felt once a queue uses the feature of a later version.
    #[test]
    fn a_fault_is_not_felt_by_a_call_that_is_refused_anyway_or_under_way() {
        let is_felt = |outcome, returned| {
            let log = Log::new(&Setting::new(false));
            log.entries().push(Entry {
                client: "one",
                era: 0,
                called: Duration::ZERO,
                returned,
                at: At::Server,
                op: Op::Stats,
                outcome,
            });
            log.has_met(Effect::Failure, Duration::ZERO, Duration::from_secs(1))
        };
        let refused = |kind| Outcome::NotExecuted(Error::new(kind));
        let returned = Some(Duration::from_millis(1));
        assert!(is_felt(refused(ErrorKind::Unreachable), returned));
        assert!(!is_felt(refused(ErrorKind::NewerFeature { major: 3, minor: 1 }), returned));
        assert!(is_felt(Outcome::Unknown, returned));
        assert!(!is_felt(Outcome::Unknown, None), "it is under way");
    }
}
