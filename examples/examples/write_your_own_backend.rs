//! A custom backend, and the conformance suite running on it.
//!
//! It keeps a queue in a file: each operation is a line of text, and opening the file replays it.
//! The rules come from `State`, which any backend that executes one operation at a time can use.
//!
//! ```sh
//! cargo run --example write_your_own_backend -- --list
//! cargo run --example write_your_own_backend
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use delayline_core::{
    Applied, At, Backend, Error, ErrorKind, Op, QueueBackend, QueueName, State, Timestamp, Wakeup,
};
use delayline_testkit::{Fixture, Step, Trace, async_trait};
use tempfile::TempDir;
use tokio::sync::Notify;

#[derive(Debug)]
struct FileBackend {
    name: QueueName,
    queue: Mutex<(State, File)>,
    bell: Notify,
}

impl FileBackend {
    /// The queue in the file of its name, which need not exist. The name may be `a/b` or `..`, so
    /// the file has `%`, which no name has, for `/`, and a suffix.
    fn open(directory: &Path, name: QueueName) -> io::Result<Self> {
        let path = directory.join(name.as_str().replace('/', "%") + ".trace");
        let file = OpenOptions::new().append(true).create(true).open(&path)?;
        let text = fs::read_to_string(&path)?;
        // A process that was killed may have left half a line.
        let end = text.rfind('\n').map_or(0, |last| last + 1);
        file.set_len(end as u64)?;
        let history: Trace = text[..end].parse().map_err(io::Error::other)?;
        let mut state = State::new();
        for step in history.steps {
            state.apply(step.at, &step.op);
        }
        Ok(Self { name, queue: Mutex::new((state, file)), bell: Notify::new() })
    }
}

/// Appends a line, or nothing: half a line would spoil the next.
fn append(file: &mut File, step: &Step) -> io::Result<()> {
    let end = file.metadata()?.len();
    writeln!(file, "{step}").or_else(|error| file.set_len(end).and(Err(error)))
}

#[async_trait]
impl Backend for FileBackend {
    async fn apply(&self, at: At, op: &Op) -> Result<Applied, Error> {
        op.validate()?;
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let (state, file) = &mut *queue;
        let step = Step { at: instant(at), op: op.clone() };
        if !op.is_read_only() {
            // The written data may still exist, so a failure here is ambiguous.
            append(file, &step).map_err(|error| {
                Error::with_source(ErrorKind::ConnectionLost, "the file", error)
            })?;
            // More hints than needed do no harm.
            self.bell.notify_one();
        }
        Ok(state.apply(step.at, op))
    }

    fn queue_name(&self) -> Option<&QueueName> {
        Some(&self.name)
    }
}

#[async_trait]
impl Wakeup for FileBackend {
    async fn wait(&self, timeout: Duration) -> Result<bool, Error> {
        Ok(tokio::time::timeout(timeout, self.bell.notified()).await.is_ok())
    }

    async fn ring(&self) -> Result<(), Error> {
        self.bell.notify_one();
        Ok(())
    }
}

/// The current millisecond, rounded down so that nothing is early.
fn instant(at: At) -> Timestamp {
    match at {
        At::Fixed(instant) => instant,
        At::Server => {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
            Timestamp::from_ms(ms).unwrap_or(Timestamp::MAX)
        }
    }
}

/// Queues `files/0`, `files/1` and so on in a directory.
struct Files(TempDir, AtomicU64);

impl Files {
    fn open(&self, name: QueueName) -> Result<Arc<dyn QueueBackend>, Error> {
        let backend = FileBackend::open(self.0.path(), name);
        let failed = |error| Error::with_source(ErrorKind::Unreachable, "the file", error);
        Ok(Arc::new(backend.map_err(failed)?))
    }
}

#[async_trait]
impl Fixture for Files {
    async fn fresh(&self) -> Result<Arc<dyn QueueBackend>, Error> {
        let number = self.1.fetch_add(1, Ordering::Relaxed);
        self.open(QueueName::new(format!("files/{number}"))?)
    }

    async fn reopen(
        &self,
        queue: Arc<dyn QueueBackend>,
    ) -> Result<Option<Arc<dyn QueueBackend>>, Error> {
        let name = queue.queue_name().cloned();
        // Closes the file: there is no other reference.
        drop(queue);
        name.map(|name| self.open(name)).transpose()
    }
}

fn main() -> io::Result<ExitCode> {
    let files = Files(tempfile::tempdir()?, AtomicU64::new(0));
    Ok(delayline_testkit::main("a file", files))
}
