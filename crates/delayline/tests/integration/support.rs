//! A queue in memory that goes by tokio's clock, which tests pause, and that fails on demand.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

use std::collections::VecDeque;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use delayline::admin::{QueueName, Stats};
use delayline::backend::{At, Backend, Found, Op, Reply, Wakeup};
use delayline::{Durability, ErrorKind, MessageId, Timestamp};
use delayline_core::{Applied, Error};
use delayline_memory::MemoryBackend;
use tokio::time::Instant;
use tracing::{Dispatch, Level};
use tracing_subscriber::fmt::format::FmtSpan;

/// What happens to an operation.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// It is executed and answered.
    None,
    /// It is executed, and the reply is lost.
    LostReply,
    /// It is lost before it is executed, and the caller gets no reply.
    LostRequest,
    /// It is executed, and not known to be safe.
    Unconfirmed,
    /// It is executed, and the reply takes 100 ms.
    SlowReply,
    /// It is refused for now.
    Busy,
    /// It is refused by a server that is out of memory.
    Full,
    /// It is refused permanently.
    Denied,
}

type Plan = Box<dyn FnMut(&Op) -> Fault + Send>;

pub struct Faulty {
    name: QueueName,
    inner: Mutex<Arc<MemoryBackend>>,
    /// Every operation that was executed and changes something, with its instant.
    executed: Mutex<Vec<(Timestamp, Op)>>,
    start: Instant,
    plan: Mutex<Plan>,
    /// Every operation sent, with the time since the start.
    log: Mutex<Vec<(Duration, Op)>>,
    /// Every operation sent, with its durability.
    durabilities: Mutex<Vec<(&'static str, Durability)>>,
    waits: Mutex<u32>,
}

impl std::fmt::Debug for Faulty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Faulty").finish_non_exhaustive()
    }
}

impl Faulty {
    pub fn new() -> Arc<Self> {
        Self::with_plan(|_| Fault::None)
    }

    pub fn with_plan(plan: impl FnMut(&Op) -> Fault + Send + 'static) -> Arc<Self> {
        Arc::new(Self {
            name: "numbers".parse().unwrap(),
            inner: Mutex::default(),
            executed: Mutex::default(),
            start: Instant::now(),
            plan: Mutex::new(Box::new(plan)),
            log: Mutex::default(),
            durabilities: Mutex::default(),
            waits: Mutex::default(),
        })
    }

    /// The first operations of this name meet these faults, all else works.
    pub fn with_faults(name: &'static str, faults: &[Fault]) -> Arc<Self> {
        let mut faults: VecDeque<_> = faults.iter().copied().collect();
        Self::with_plan(move |op| {
            if op.name() == name { faults.pop_front().unwrap_or(Fault::None) } else { Fault::None }
        })
    }

    pub fn set_plan(&self, plan: impl FnMut(&Op) -> Fault + Send + 'static) {
        *self.plan.lock().unwrap() = Box::new(plan);
    }

    pub fn now(&self) -> Timestamp {
        let elapsed = u64::try_from(self.start.elapsed().as_millis()).unwrap();
        Timestamp::from_ms(1_800_000_000_000 + elapsed).unwrap()
    }

    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// How durable the operations of this name were to be.
    pub fn durabilities(&self, name: &str) -> Vec<Durability> {
        let sent = self.durabilities.lock().unwrap();
        sent.iter().filter(|(op, _)| *op == name).map(|(_, durability)| *durability).collect()
    }

    /// The operations of this name, with the time since the start.
    pub fn sent(&self, name: &str) -> Vec<(Duration, Op)> {
        let log = self.log.lock().unwrap();
        log.iter().filter(|(_, op)| op.name() == name).cloned().collect()
    }

    /// How many operations were sent and hints waited for.
    pub fn commands(&self) -> u32 {
        let log = u32::try_from(self.log.lock().unwrap().len()).unwrap();
        log + *self.waits.lock().unwrap()
    }

    /// Executes an operation past all faults.
    pub async fn direct(&self, op: Op) -> Reply {
        self.execute(&op).await.unwrap().reply
    }

    async fn execute(&self, op: &Op) -> Result<Applied, Error> {
        let (inner, now) = (self.inner(), self.now());
        if !op.is_read_only() {
            self.executed.lock().unwrap().push((now, op.clone()));
        }
        inner.apply(At::Fixed(now), op).await
    }

    /// Loses what workers have done since the latest call of another client, at most `at_most`
    /// operations, as a failover may. Returns how many were lost.
    pub async fn fail_over(&self, at_most: usize) -> usize {
        let by_worker = |op: &Op| matches!(op, Op::Claim(_) | Op::Settle(_) | Op::Extend(_));
        let (kept, lost) = {
            let mut executed = self.executed.lock().unwrap();
            let tail = executed.iter().rev().take(at_most);
            let lost = tail.take_while(|(_, op)| by_worker(op)).count();
            let kept = executed.len() - lost;
            executed.truncate(kept);
            (executed.clone(), lost)
        };
        let inner = MemoryBackend::new();
        for (at, op) in &kept {
            inner.apply(At::Fixed(*at), op).await.unwrap();
        }
        *self.inner.lock().unwrap() = Arc::new(inner);
        lost
    }

    fn inner(&self) -> Arc<MemoryBackend> {
        self.inner.lock().unwrap().clone()
    }

    pub async fn stats(&self) -> Stats {
        match self.direct(Op::Stats).await {
            Reply::Stats(stats) => *stats,
            other => panic!("{other:?}"),
        }
    }

    pub async fn found(&self, id: &str) -> Found {
        match self.direct(Op::Get(vec![MessageId::try_from(id).unwrap()])).await {
            Reply::Get(mut found) => found.remove(0),
            other => panic!("{other:?}"),
        }
    }
}

#[async_trait]
impl Backend for Faulty {
    fn queue_name(&self) -> Option<&QueueName> {
        Some(&self.name)
    }

    async fn apply(&self, at: At, op: &Op) -> Result<Applied, Error> {
        self.apply_durably(at, op, Durability::None).await
    }

    async fn apply_durably(
        &self,
        at: At,
        op: &Op,
        durability: Durability,
    ) -> Result<Applied, Error> {
        assert_eq!(at, At::Server);
        self.log.lock().unwrap().push((self.start.elapsed(), op.clone()));
        self.durabilities.lock().unwrap().push((op.name(), durability));
        let fault = (self.plan.lock().unwrap())(op);
        let execute = || self.execute(op);
        match fault {
            Fault::None => execute().await,
            Fault::LostReply => {
                execute().await?;
                Err(Error::new(ErrorKind::ConnectionLost))
            }
            Fault::SlowReply => {
                let applied = execute().await;
                tokio::time::sleep(Duration::from_millis(100)).await;
                applied
            }
            Fault::Unconfirmed => {
                execute().await?;
                Err(Error::new(ErrorKind::Unconfirmed))
            }
            Fault::LostRequest => Err(Error::new(ErrorKind::Timeout)),
            Fault::Busy => Err(Error::new(ErrorKind::Busy)),
            Fault::Full => Err(Error::new(ErrorKind::OutOfMemory)),
            Fault::Denied => Err(Error::new(ErrorKind::PermissionDenied)),
        }
    }
}

#[async_trait]
impl Wakeup for Faulty {
    async fn wait(&self, timeout: Duration) -> Result<bool, Error> {
        *self.waits.lock().unwrap() += 1;
        self.inner().wait(timeout).await
    }

    async fn ring(&self) -> Result<(), Error> {
        self.inner().ring().await
    }
}

/// The log of this thread during a run.
pub async fn logged(run: impl AsyncFnOnce()) -> String {
    captured(Level::DEBUG, FmtSpan::NONE, run).await
}

/// The log with level `INFO`, with a line for each span that ends.
pub async fn spans(run: impl AsyncFnOnce()) -> String {
    captured(Level::INFO, FmtSpan::CLOSE, run).await
}

async fn captured(level: Level, events: FmtSpan, run: impl AsyncFnOnce()) -> String {
    // With only one subscriber, tracing-core asks the first thread that reaches a line of code
    // whether it has a subscriber. It believes a thread without one for ever.
    static SECOND: LazyLock<Dispatch> =
        LazyLock::new(|| Dispatch::new(tracing_subscriber::registry()));
    LazyLock::force(&SECOND);
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_span_events(events)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let guard = tracing::subscriber::set_default(subscriber);
    run().await;
    drop(guard);
    String::from_utf8_lossy(&lines.0.lock().unwrap()).into_owned()
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
