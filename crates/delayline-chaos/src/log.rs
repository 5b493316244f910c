//! What the clients of one queue asked, when, and what they know of it.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use delayline_core::{Applied, At, Backend, Class, Error, Op, Queueing, Timestamp, Wakeup};
use tokio::sync::RwLock;

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
    /// The driver, which is told with what is kept of a failed round.
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

/// What a caller knows of its call.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Answered(Applied),
    /// The error promises that nothing was executed.
    NotExecuted(#[expect(dead_code, reason = "shown with what is kept of a failed round")] Error),
    /// It may have been executed, or will be; so it is also while nothing has come back yet.
    Unknown,
}

/// Writes down every call to one queue, whichever client it goes through.
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
        inner: impl Queueing + 'static,
    ) -> Arc<dyn Queueing> {
        Arc::new(Recorded { client, inner, log: Arc::clone(self) })
    }

    pub(crate) fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a fault that struck at `from` and was over at `to` met a call: one that was under way
    /// when it struck, or one whose answer it took.
    pub(crate) fn met(&self, from: Duration, to: Duration) -> bool {
        let met = |entry: &Entry| {
            let unheard = matches!(entry.outcome, Outcome::Unknown);
            let latest_call = if unheard { to } else { from };
            entry.called <= latest_call && entry.returned.is_none_or(|returned| returned >= from)
        };
        self.entries().iter().rev().take(RECENT).any(met)
    }

    /// How many calls have been answered.
    pub(crate) fn answered(&self) -> usize {
        let entries = self.entries();
        entries.iter().filter(|entry| matches!(entry.outcome, Outcome::Answered(_))).count()
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
        // A caller that is dropped here leaves the entry as it is: unknown.
        let answer = self.inner.apply(at, op).await;
        let mut entries = self.log.entries();
        let entry = &mut entries[number];
        entry.returned = Some(setting.elapsed());
        match &answer {
            Ok(applied) => entry.outcome = Outcome::Answered(applied.clone()),
            Err(error) if error.class() != Class::Ambiguous => {
                entry.outcome = Outcome::NotExecuted(error.clone());
            }
            Err(_) => {}
        }
        answer
    }
}

#[async_trait]
impl<B: Queueing> Wakeup for Recorded<B> {
    async fn wait(&self, timeout: Duration) -> Result<bool, Error> {
        self.inner.wait(timeout).await
    }

    async fn ring(&self) -> Result<(), Error> {
        self.inner.ring().await
    }
}

/// How many of the latest calls can have met a fault that is just over.
const RECENT: usize = 10_000;
